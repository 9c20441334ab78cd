"""Folders of the probe's scripts: each keeps the corpus that it was made with."""

import os
import subprocess

import pytest
from probe import FOLDER

STUB = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
[ "$(basename "$0")" != "$FAILS" ] || exit 1
"""


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

    def run(*command, fails=""):
        environment = {**variables, "FAILS": fails}
        done = subprocess.run(["bash", *command], env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr

    return run


def prepare(folder, *options):
    steps = f"set -euo pipefail; here={FOLDER} work={folder}; . $here/../flags.sh"
    steps += "; . $here/steps.sh; prepare"
    return "-c", " ".join([steps, *options])


def test_a_folder_keeps_its_corpus(run, tmp_path):
    """It is made once."""
    folder, others = tmp_path / "W", ["--phenomena", "pronoun"]
    for _ in range(2):
        assert run(*prepare(folder, "--phenomena", "term")) == (0, "")
    message = f"error: {folder} was made with other options (--phenomena term); give another folder"
    for options in ([], others):
        assert run(*prepare(folder, *options)) == (1, f"{message}\n")
    assert run(*prepare(tmp_path / "V")) == (0, "")
    message = f"error: {tmp_path}/V was made with other options (none); give another folder\n"
    assert run(*prepare(tmp_path / "V", *others)) == (1, message)
    assert (tmp_path / "calls").read_text().count("make_data") == 2


@pytest.mark.parametrize("program", ["fairseq-preprocess", "cp"])
def test_a_corpus_that_was_interrupted_is_made_again(run, tmp_path, program):
    command = prepare(tmp_path / "W", "--phenomena", "term")
    (tmp_path / "W").mkdir()
    assert run(*command, fails=program)[0] == 1
    assert not (tmp_path / "W" / "corpus_options").exists()
    assert run(*command) == (0, "")
    assert (tmp_path / "calls").read_text().count("make_data") == 2


def test_systems_of_one_run_have_the_same_corpus(run, tmp_path):
    script, folder = str(FOLDER / "run_options.sh"), str(tmp_path / "W")
    status, said = run(script, folder, "window", "attention", "document")
    assert (status, said) == (
        1,
        "error: window and document have different corpora; give another folder to each\n",
    )
    assert not (tmp_path / "calls").exists() or "train" not in (tmp_path / "calls").read_text()


def test_a_model_of_an_earlier_run_stays(run, tmp_path):
    """A folder without one is used."""
    steps = f"here={FOLDER} work={tmp_path} seed=1; . $here/../flags.sh; . $here/steps.sh"
    model = tmp_path / "model"
    for _ in range(2):
        assert run("-c", f"{steps}; keep_earlier {model}") == (0, "")
        model.mkdir(exist_ok=True)
    (model / "checkpoint_last.pt").touch()
    message = f"error: {model} has the model of an earlier run; remove it or give another folder\n"
    assert run("-c", f"{steps}; keep_earlier {model}") == (1, message)
