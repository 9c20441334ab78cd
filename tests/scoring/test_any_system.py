"""The page about systems trained elsewhere: its commands on its made files, and its output."""

import re
import shlex
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "evaluate_any_system"


def test_the_commands_of_the_page(scoring, tmp_path, monkeypatch):
    pytest.importorskip("mweralign", reason="alignment needs mweralign")
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(FOLDER / "made")
    commands = re.findall(r"fairseq-docmt ((?:[^\n]*\\\n)*[^\n]*)", page)
    assert len(commands) == 3
    for command in commands:
        out = str(tmp_path / "report.html")
        words = shlex.split(command.replace("\\\n", " "))
        printed = scoring(*(out if word == "report.html" else word for word in words))
        if f"$ fairseq-docmt {command}\n" in page:
            shown = page.split(f"{command}\n")[1].split("```")[0]
            assert printed.startswith(shown)
    assert (tmp_path / "report.html").is_file()
