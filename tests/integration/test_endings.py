"""A command that has done its work ends with status 0, whichever way it ends.

fairseq loads batches ahead in a thread, and Python aborts if the thread is inside torch when the
process ends.  So processes end here as in use, while the thread is loading: they are
forked from a process that has imported everything, and batches take longer to load than to train.
"""

import json
import os
import signal
import subprocess
import sys

import pytest
import tiny

FORKS = """
import gc, json, os, signal, sys
from pathlib import Path
import tiny, torch, torch._dynamo  # which the first optimizer imports
from cheap_hydra import cheap_hydra
import fairseq.trainer
from fairseq_docmt.data import document_view, stream_view

def slow(collater):
    def collate(self, samples, pad_to_length=None):
        torch.rand(200_000).sort()
        return collater(self, samples, pad_to_length)
    return collate

def breaking(train_step, by):
    def train(self, samples, raise_oom=False):
        if self.get_num_updates() == 3:
            by()
        return train_step(self, samples, raise_oom)
    return train

def fail():
    raise RuntimeError("on purpose")

BREAKS = {"fail": fail, "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT)}
for kind in (document_view.DocumentView, stream_view.StreamView):
    kind.collater = slow(kind.collater)
# Shells let programs in the background ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
data, save_dir, runs = sys.argv[1:]
keep = cheap_hydra()
keep.__enter__()
gc.freeze()
for number, (by, *arguments) in enumerate(json.loads(runs)):
    process = os.fork()
    if process == 0:
        break
    _, status = os.waitpid(process, 0)
    print(os.WTERMSIG(status) and -os.WTERMSIG(status) or os.WEXITSTATUS(status), flush=True)
else:
    sys.exit()
if by:
    trainer = fairseq.trainer.Trainer
    trainer.train_step = breaking(trainer.train_step, BREAKS[by])
tiny.train(data, Path(save_dir, str(number)), "--max-tokens", "30", *arguments)
"""
#: a failure or none, and options
WINDOWS = ["", "--task", "sliding_window_translation"]
STREAM = ["", "--task", "sentence_stream_translation", "--batch-size", "2"]
STREAM += ["--chunk-sentences", "1", *tiny.memory()]
OFTEN = ["--validate-interval-updates", "2", "--max-valid-steps", "1", "--max-update", "1000"]
FAST = {
    "--max-update": [*WINDOWS, "--max-update", "5"],
    "--stop-time-hours": [*WINDOWS, "--max-update", "1000", "--stop-time-hours", "1e-5"],
    "--patience": [*WINDOWS, *OFTEN, "--lr", "0", "--patience", "1"],
    "an exception": ["fail", *WINDOWS[1:]],
    "Ctrl-C": ["interrupt", *WINDOWS[1:]],
}
STATUS = {name: 0 for name in FAST}
STATUS.update({"an exception": 1, "Ctrl-C": -signal.SIGINT})
LONG = {
    "documents": ["", "--task", "full_document_translation", "--max-update", "5"],
    "stream": [*STREAM, "--max-update", "5"],
    "validation within an epoch": [*WINDOWS, *OFTEN[:4], "--max-update", "6"],
    "--stop-min-lr": [*WINDOWS, *OFTEN[:4], "--stop-min-lr", "1", "--max-update", "6"],
    "processes that load": [*WINDOWS, "--num-workers", "2", "--max-update", "5"],
}


@pytest.fixture(scope="module")
def data(made_once):
    """Binarised text with many more batches in an epoch than are trained with or loaded ahead."""
    return made_once("endings", lambda folder: tiny.corpus(folder, train=(5,) * 60)) / "bin"


@pytest.fixture
def ends(data, tmp_path):
    """Function that trains and returns the exit status of each training."""

    def run(trainings):
        command = [sys.executable, "-W", "ignore", "-c", FORKS, str(data), str(tmp_path)]
        path = os.pathsep.join([str(tiny.ROOT), str(tiny.ROOT / "tests")])
        done = subprocess.run(
            [*command, json.dumps(trainings)],
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return list(map(int, done.stdout.split())), done.stderr

    return run


def test_five_ways_to_end_a_training(ends):
    status, said = ends(list(FAST.values()))
    assert dict(zip(FAST, status)) == STATUS, said[-3000:]
    assert said.count("RuntimeError: on purpose") == 1
    assert "terminate called" not in said


@pytest.mark.parametrize("kind, size", [(WINDOWS, "--max-tokens 30"), (STREAM, "")])
@pytest.mark.parametrize("limit", ["--max-update 3", "--stop-time-hours 1e-09"])
def test_a_training_that_is_done_changes_nothing(binarised, tmp_path, caplog, kind, size, limit):
    def train(*options):
        tiny.train(binarised, tmp_path, *kind[1:], *size.split(), *options)
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    done = train(*limit.split())
    assert "nothing is left" not in caplog.text
    with caplog.at_level("INFO"):
        assert train(*limit.split()) == done
    said = f"checkpoint_last.pt has reached {limit}; give a higher value to train on"
    assert caplog.text.count(said) == 1
    # The parameters alone are the beginning of another training.
    assert train(*limit.split(), "--reset-optimizer", "--reset-meters") != done


@pytest.mark.long
def test_thirty_trainings(ends):
    """Of all tasks; also with processes that load, and validation that reads a part of its set."""
    trainings = [*LONG.values(), FAST["--max-update"]] * 5
    status, said = ends(trainings)
    assert status == [0] * 30, said[-2000:]
