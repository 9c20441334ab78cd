"""Runs of the context probe's scripts, for tests of its results."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import score
import tiny
from scipy.stats import binom

FOLDER = tiny.ROOT / "examples" / "context_probe"
PHENOMENA = ["pronoun", "formality", "term", "ellipsis"]


def run(script, folder, *arguments):
    """Run a script of the probe and return its questions and outputs."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", str(FOLDER / script), str(folder), *map(str, arguments)]
    subprocess.run(command, env={**os.environ, "PATH": path}, check=True)
    return results(folder)


def folder_of(tmp_path_factory, name):
    """Return a folder for trained models; one in PROBE_WORK, if this variable is set."""
    if "PROBE_WORK" not in os.environ:
        return tmp_path_factory.mktemp(name)
    folder = Path(os.environ["PROBE_WORK"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_each(script, folder, *systems, options=()):
    """Run a script for one system after the other; return its questions and outputs.

    Systems that were finished in an earlier run with this folder are not run again.
    """
    for system in systems:
        done = folder / f".done_{system}"
        if not done.exists():
            # The scripts refuse to overwrite the model of an earlier run.
            shutil.rmtree(folder / system, ignore_errors=True)
            run(script, folder, system, *options)
            done.touch()
    return results(folder)


def results(folder):
    """Return the questions and outputs of a script."""
    questions = score.read_questions(str(folder / "data" / "test.probe.jsonl"))
    return questions, {
        output.name[len("out_") :]: score.read_output(str(output / "generate-test.txt"))
        for output in folder.glob("out_*")
    }


def assert_at_ceiling(result):
    """Assert that an accuracy is not better than chance, by a binomial bound."""
    # Formality is one draw for a whole document of the 200, the rest one draw for each question.
    trials = min(result.total, 200)
    assert result.rate <= binom.ppf(0.999, trials, result.ceiling) / trials


def assert_whole_sentences(output, equal):
    """Assert that lengths are right and that a share of the sentences equals the reference."""
    found = score.quality(output)
    assert 0.97 < found.length_ratio < 1.03
    assert found.rate > equal
