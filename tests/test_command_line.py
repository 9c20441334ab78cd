"""The command ``fairseq-docmt``."""

import subprocess
import sys

import pytest
import tiny

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError


def test_the_directory_for_user_dir():
    for words in ([], ["user-dir"]):
        command = [sys.executable, "-m", "fairseq_docmt", *words]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        assert found.stdout == f"{tiny.USER_DIR}\n"


def test_the_list_of_commands():
    listed = tiny.run_main(command_line.main)
    assert listed == tiny.run_main(command_line.main, "--help")
    lines = [line.split(maxsplit=1) for line in listed.splitlines() if line.startswith("  ")]
    assert [name for name, _ in lines] == [*command_line.COMMANDS]
    assert all(line[-1] in ".?" for _, line in lines)


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_help(name, capsys):
    if name == command_line.USER_DIR:
        return
    with pytest.raises(SystemExit) as end:
        tiny.run_main(command_line.main, name, "--help")
    assert end.value.code == 0


def test_an_unknown_command():
    message = "^metric is no command; do you mean metrics[?]$"
    with pytest.raises(UserError, match=message):
        tiny.run_main(command_line.main, "metric")
    with pytest.raises(
        UserError, match="^xyz is no command; choose from translate, export-ctranslate2, metrics, "
    ):
        tiny.run_main(command_line.main, "xyz")


def test_a_command_runs(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("w1 w2 w3 w4\n")
    options = ["--metrics", "s-bleu", "--reference", tmp_path / "a", f"x={tmp_path / 'b'}"]
    assert "100.0" in tiny.run_main(command_line.main, "metrics", *options)


def test_preparation_needs_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(command_line, "PACKAGE", tmp_path / "fairseq_docmt")
    with pytest.raises(UserError, match="prepare.py is missing; run prepare in a checkout"):
        tiny.run_main(command_line.main, "prepare")


@pytest.mark.parametrize(
    "words",
    [
        ["user-dir"],
        ["--help"],
        ["metrics", "--metrics", "s-bleu,chrf", "--reference", "FILE", "x=FILE"],
        ["convert", "--out", "OUT", "FILE"],
        ["mbr", "--source", "FILE", "--out", "OUT", "x=FILE", "y=FILE"],
    ],
    ids=lambda words: words[0],
)
def test_commands_without_a_model_load_neither_fairseq_nor_torch(words, tmp_path):
    """Importing the two takes seconds."""
    (tmp_path / "text").write_text("w1 w2 w3 w4\n")
    paths = {"FILE": str(tmp_path / "text"), "OUT": str(tmp_path / "out")}
    for name, path in paths.items():
        words = [word.replace(name, path) for word in words]
    program = (
        "import sys; sys.argv[0] = '-m'\n"
        "from fairseq_docmt import command_line\n"
        "command_line.main()\n"
        "slow = {'fairseq', 'torch', 'scipy', 'matplotlib', 'spacy'} & {*sys.modules}\n"
        "sys.exit(f'loaded {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_commands_with_a_model_register_the_systems():
    program = "from fairseq_docmt import register; register(); from fairseq import tasks\n"
    program += "assert 'sliding_window_translation' in tasks.TASK_REGISTRY"
    for name in ("-m", "fairseq-docmt", "python"):
        lines = f"import sys; sys.argv[0] = {name!r}\n{program}"
        subprocess.run([sys.executable, "-c", lines], check=True)
