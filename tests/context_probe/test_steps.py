"""Folders of the probe's scripts: each keeps the corpus that it was made with."""

import os
import subprocess

import pytest
from probe import FOLDER

STUB = '#!/bin/sh\necho "$(basename "$0") $*" >> "$CALLS"\n'


@pytest.fixture
def run(tmp_path):
    """Run lines of bash with commands that only write what they were called with."""
    stubs = tmp_path / "bin"
    stubs.mkdir()
    for name in ("python", "fairseq-preprocess", "fairseq-train", "fairseq-generate", "cp"):
        (stubs / name).write_text(STUB)
        (stubs / name).chmod(0o755)
    variables = {
        **os.environ,
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
    }

    def run(*command):
        done = subprocess.run(["bash", *command], env=variables, capture_output=True, text=True)
        return done.returncode, done.stderr

    return run


def prepare(folder, *options):
    steps = f"set -euo pipefail; here={FOLDER} work={folder}; . $here/steps.sh; prepare"
    return "-c", " ".join([steps, *options])


def test_a_folder_keeps_its_corpus(run, tmp_path):
    folder = tmp_path / "W"
    for _ in range(2):
        assert run(*prepare(folder, "--phenomena", "term")) == (0, "")
    calls = (tmp_path / "calls").read_text()
    for others in ([], ["--phenomena", "pronoun"]):
        message = f"error: {folder} has another script's corpus; give another folder\n"
        assert run(*prepare(folder, *others)) == (1, message)
    made = [line for line in (tmp_path / "calls").read_text().splitlines() if "make_data" in line]
    assert len(made) == calls.count("make_data") == 2


def test_systems_of_one_run_have_the_same_corpus(run, tmp_path):
    script, folder = str(FOLDER / "run_options.sh"), str(tmp_path / "W")
    status, said = run(script, folder, "window", "attention", "document")
    assert (status, said) == (
        1,
        "error: window and document have different corpora; give another folder to each\n",
    )
    assert not (tmp_path / "calls").exists() or "train" not in (tmp_path / "calls").read_text()
