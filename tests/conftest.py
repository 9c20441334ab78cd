"""Fixtures: one thread, fixed seeds, tiny checkpoints, and the shared real corpora if present."""

import fcntl
import gc
import hashlib
import os
import random
import shutil
import signal
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import sacrebleu.sacrebleu  # noqa: F401  lets a broken pipe end the process, undone below
import torch
from cheap_hydra import cheap_hydra

warnings.simplefilter("ignore")
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
torch.set_num_threads(1)
# fairseq's iterators refer to themselves.  Once they are collected as garbage, torch can no longer
# tell the processes that load batches to stop, and waits for each of them for this many seconds.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1
gc.disable()

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def pytest_collection_finish():
    """Keep the collector of garbage from looking at the collected tests, which live to the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def fixed_seed():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def tiny_commands():
    """Spare the work that takes longest in a tiny command."""
    # Without a GPU, torch keeps each seed for three kinds of them, each with a trace of the stack.
    with cheap_hydra(), mock.patch("traceback.format_stack", return_value=[]):
        yield


@pytest.fixture
def shared_data():
    """Return the folder of real document-level corpora; skip the test if it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs real corpora in ../shared/data, which are not part of the project")
    return SHARED_DATA


@pytest.fixture
def compiled_kernels():
    """Skip the test if the kernels are not compiled."""
    from fairseq_docmt.ops import step_kernels

    if not step_kernels.is_compiled():
        pytest.skip("the kernels are not compiled: install again with a C++ compiler")


@pytest.fixture
def small_products(monkeypatch):
    """Let oneDNN compute small products too, which are otherwise left to torch."""
    from fairseq_docmt.ops import onednn_linear

    monkeypatch.setattr(onednn_linear, "FEWEST_MULTIPLICATIONS", 0)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Return a function that makes a folder once for all test processes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "shared"
    folder.mkdir(exist_ok=True)

    def make(key, build):
        made = folder / hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        with open(f"{made}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            if not (made / "complete").exists():
                shutil.rmtree(made, ignore_errors=True)
                made.mkdir()
                build(made)
                (made / "complete").touch()
        return made

    return make


@pytest.fixture(scope="session")
def binarised(made_once):
    """Return a binarised tiny corpus, whose test documents have 1, 5, 2 and 7 sentences."""
    import tiny

    return made_once("corpus", tiny.corpus) / "bin"


@pytest.fixture(scope="session")
def barely_trained(binarised, made_once):
    """Return a function that trains a tiny model just enough for its outputs to differ.

    Its checkpoint has no state of the optimizer, so that it is read three times as fast.
    """
    import tiny

    def train(*arguments, model=tiny.MODEL):
        options = [*arguments, "--no-save-optimizer-state"]

        def build(folder):
            tiny.train(binarised, folder, *options, updates=60, model=model)

        return made_once((arguments, model), build) / "checkpoint_last.pt"

    return train


@pytest.fixture(scope="session")
def window_checkpoint(barely_trained):
    """Return a checkpoint with windows of 3 sentences."""
    return barely_trained("--task", "sliding_window_translation", "--window-size", "3")


@pytest.fixture(scope="session")
def other_window_checkpoint(barely_trained):
    """Return a second checkpoint for ensembles with ``window_checkpoint``."""
    options = ["--task", "sliding_window_translation", "--window-size", "3"]
    return barely_trained(*options, "--seed", "7")


@pytest.fixture(scope="session")
def rfa_window_checkpoint(barely_trained):
    """Return a checkpoint with windows of 3 sentences and gated random feature attention."""
    import tiny

    options = ["--task", "sliding_window_translation", "--window-size", "3"]
    return barely_trained(*options, model=tiny.rfa("--sentence-gate", "decay"))


@pytest.fixture(scope="session")
def document_checkpoint(barely_trained):
    """Return a checkpoint of documents in parts of up to 20 target tokens."""
    options = ["--task", "full_document_translation", "--max-document-tokens", "20"]
    return barely_trained(*options)


@pytest.fixture(scope="session")
def rfa_document_checkpoint(barely_trained):
    """Return a checkpoint of such documents with gated random feature attention."""
    import tiny

    options = ["--task", "full_document_translation", "--max-document-tokens", "20"]
    return barely_trained(*options, model=tiny.rfa("--sentence-gate", "average"))


@pytest.fixture(scope="session")
def window_attention_document_checkpoint(barely_trained):
    """Return a checkpoint of such documents with window attention."""
    import tiny

    options = ["--task", "full_document_translation", "--max-document-tokens", "20"]
    return barely_trained(*options, model=tiny.window("--train-alignment", "sentence"))


@pytest.fixture(scope="session")
def lst_document_checkpoint(barely_trained):
    """Return a checkpoint of such documents with long-short term attention."""
    import tiny

    options = ["--task", "full_document_translation", "--max-document-tokens", "20"]
    return barely_trained(*options, model=tiny.lst())


@pytest.fixture(scope="session")
def memory_stream_checkpoint(barely_trained):
    """Return a checkpoint of sentences in lanes with a recurrent memory."""
    import tiny

    options = ["--task", "sentence_stream_translation", "--batch-size", "3"]
    return barely_trained(*options, "--chunk-sentences", "2", model=tiny.memory())


@pytest.fixture(scope="session")
def rnnsearch_window_checkpoint(barely_trained):
    """Return a recurrent checkpoint with windows of 3 sentences."""
    import tiny

    options = ["--task", "sliding_window_translation", "--window-size", "3"]
    return barely_trained(*options, model=tiny.rnnsearch("--decoder-layers", "2"))


@pytest.fixture(scope="session")
def cache_stream_checkpoint(barely_trained):
    """Return a checkpoint of sentences in lanes with a cache."""
    import tiny

    options = ["--task", "sentence_stream_translation", "--batch-size", "3"]
    options += ["--chunk-sentences", "2", "--lr", "0.03"]
    return barely_trained(*options, model=tiny.cache())


@pytest.fixture(scope="session")
def sentence_lm(binarised, made_once):
    """Return ``--sentence-lm`` for tiny models: source language models in both directions."""
    import tiny

    folder = made_once("sentence_lm", lambda folder: tiny.sentence_lm(binarised, folder))
    names = ("forward", "backward")
    return os.pathsep.join(str(folder / name / "checkpoint_last.pt") for name in names)


@pytest.fixture(scope="session")
def memnet_rows_checkpoint(barely_trained, sentence_lm):
    """Return a checkpoint of such documents with both document memories."""
    import tiny

    options = ["--task", "document_rows_translation", "--max-document-tokens", "20"]
    options += ["--gold-drafts", "--sentence-lm", sentence_lm, "--lr", "0.03"]
    return barely_trained(*options, model=tiny.memnet())


@pytest.fixture(scope="session")
def context_stream_checkpoint(barely_trained):
    """Return a recurrent checkpoint with a summary of the three previous source sentences."""
    import tiny

    options = ["--task", "sentence_stream_translation", "--batch-size", "3"]
    options += ["--chunk-sentences", "2", "--lr", "0.03"]
    return barely_trained(*options, model=tiny.context("--context", "hierarchical"))


@pytest.fixture(scope="session")
def previous_target_stream_checkpoint(barely_trained):
    """Return a recurrent checkpoint with the last decoder state of the previous sentence."""
    import tiny

    options = ["--task", "sentence_stream_translation", "--batch-size", "3"]
    options += ["--chunk-sentences", "2", "--lr", "0.03"]
    return barely_trained(*options, model=tiny.context("--decoder-layers", "2"))
