"""What commands of fairseq say if --task was forgotten."""

import logging
import os
import subprocess
import sys

import pytest
import tiny

from fairseq_docmt._stock_tasks import StockTaskCheck, check_arguments, check_stock_tasks
from fairseq_docmt.errors import UserError

STOCK = ["--task", "translation"]
BLANK = "--task translation, the default, reads the blank lines between documents of {} as "
BLANK += "sentences; give a document task, such as --task sliding_window_translation"


@pytest.fixture(autouse=True)
def logs_as_the_commands_do(caplog):
    with caplog.at_level(logging.INFO):
        yield


def about_blank_lines(caplog):
    return [text for text in caplog.messages if "blank lines" in text]


@pytest.mark.parametrize("lengths, warned", [((9, 10), True), ((19,), False)])
def test_a_corpus_of_documents(tmp_path, caplog, lengths, warned):
    """Training and decoding say so; a corpus without blank lines is what fairseq reads."""
    data = tiny.corpus(tmp_path, train=lengths, valid=(8,), test=lengths)
    path = tiny.train(data, tmp_path / "ck", *STOCK, updates=1)
    assert about_blank_lines(caplog) == [BLANK.format(data)] * warned
    tiny.generate(data, path, *STOCK)
    assert about_blank_lines(caplog) == [BLANK.format(data)] * warned * 2


def test_what_cannot_be_read_is_left_to_fairseq(tmp_path, caplog):
    with pytest.raises(Exception, match="Could not infer language pair"):
        tiny.train(tmp_path, tmp_path / "ck", *STOCK)
    assert not about_blank_lines(caplog)


@pytest.mark.parametrize("command", [tiny.generate, lambda *a: tiny.interactive(*a[:2], ["w1"])])
def test_a_checkpoint_of_documents(binarised, window_checkpoint, command):
    """Its dictionaries have more symbols, so that fairseq would fail."""
    with pytest.raises(UserError) as refused:
        command(binarised, window_checkpoint)
    assert str(refused.value) == (
        f"{window_checkpoint} was trained with --task sliding_window_translation, not with "
        "translation, the default; give --task sliding_window_translation"
    )


@pytest.mark.parametrize(
    "model, task",
    [
        (tiny.memory(), "sentence_stream_translation"),
        (tiny.cache(), "sentence_stream_translation"),
        (tiny.memnet(), "document_rows_translation"),
    ],
)
def test_models_of_documents(binarised, tmp_path, model, task):
    with pytest.raises(UserError) as refused:
        tiny.train(binarised, tmp_path, *STOCK, model=model)
    assert str(refused.value) == (
        f"--arch {model[1]} gets no context from fairseq's own tasks, of which translation is the "
        f"default; give --task {task}"
    )


@pytest.mark.parametrize(
    "model, warned", [(tiny.group(), 1), (tiny.rfa("--sentence-gate", "decay"), 1), (tiny.rfa(), 0)]
)
def test_models_of_several_sentences(binarised, tmp_path, caplog, model, warned):
    """They are transformers on single sentences, from which document training may start."""
    tiny.train(binarised, tmp_path, *STOCK, model=model, updates=1)
    assert warned == caplog.messages.count(
        f"fairseq's own tasks, of which translation is the default, give --arch {model[1]} single "
        "sentences, where its context options have no effect"
    )


def test_each_command_is_checked_once():
    check_stock_tasks()
    filters = logging.getLogger("fairseq_cli.train").filters
    assert sum(isinstance(known, StockTaskCheck) for known in filters) == 1


@pytest.mark.parametrize(
    "method", ["--distributed-init-method", "distributed.distributed_init_method"]
)
def test_a_process_for_each_gpu_where_there_is_none(monkeypatch, method):
    """fairseq would end with status 0 and without a word."""
    given = ["data", f"{method}=env://"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(UserError, match="starts a process for each GPU, and there is none; give"):
        check_arguments(given)
    check_arguments([*given, "--distributed-no-spawn"])
    check_arguments(["--distributed-world-size", "2"])
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    check_arguments(given)


@pytest.mark.parametrize(
    "option, package",
    [
        ("--save-async", "iopath"),
        ("checkpoint.write_checkpoints_asynchronously=true", "iopath"),
        ("--use-plasma-view", "pyarrow.plasma"),
    ],
)
def test_options_that_need_packages(monkeypatch, option, package):
    """Without iopath, fairseq would train nothing and end with status 0."""
    monkeypatch.setitem(sys.modules, package.split(".")[0], None)
    name = option.split(".")[-1].split("=")[0].strip("-").replace("_", "-")
    with pytest.raises(UserError, match=f"--{name} needs {package}, which is not installed; leave"):
        check_arguments(["data", option])
    check_arguments(["data", option.split("=")[0] + "=false"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    check_arguments(["data", option])


def test_the_options_are_checked_when_the_package_is_loaded():
    command = [sys.executable, "-c", "import fairseq_docmt", "--distributed-init-method=env://"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("error: with --distributed-init-method, fairseq starts")
