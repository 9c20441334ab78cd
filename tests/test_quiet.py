"""What is hidden of the messages of fairseq, and how to see it."""

import argparse
import logging
import subprocess
import sys
import warnings

import pytest
import tiny
from long_tests import LONG
from omegaconf import OmegaConf

from fairseq_docmt import _quiet
from fairseq_docmt._quiet import quietly

LOGGER = logging.getLogger("fairseq_cli.train")
WINDOW = ["--task", "sliding_window_translation"]


@pytest.fixture
def without_filters(monkeypatch):
    """Filters of this process as before the package was imported."""
    monkeypatch.setattr(LOGGER, "filters", [])
    with warnings.catch_warnings():
        warnings.resetwarnings()
        yield


def logged(data, folder, caplog, *task):
    caplog.clear()
    with caplog.at_level(logging.INFO):
        tiny.train(data, folder, *task, updates=1)
    return [str(record.msg) for record in caplog.records if record.name == LOGGER.name]


def test_document_tasks_train_without_dumps(binarised, tmp_path, caplog):
    """Everything else is logged; with a stock task everything is."""
    ours = logged(binarised, tmp_path / "a", caplog, *WINDOW)
    stock = logged(binarised, tmp_path / "b", caplog, "--task", "translation")
    for beginning, shown in (("{'_name': None, 'common'", 0), ("TransformerModel(", 0)):
        assert sum(line.startswith(beginning) for line in ours) == shown
        assert sum(line.startswith(beginning) for line in stock) == shown + 1
    for beginning in ("task: ", "num. shared model params", "done training in"):
        assert any(line.startswith(beginning) for line in ours)


def test_tasks_without_a_dataclass_log_as_they_do(caplog):
    """Their options are a Namespace, as in fairseq's multilingual tasks."""
    cfg = OmegaConf.create({}, flags={"allow_objects": True})
    cfg.task = argparse.Namespace(_name="translation_multi_simple_epoch")
    with caplog.at_level(logging.INFO):
        LOGGER.info(cfg)
    assert len(caplog.records) == 1


def test_all_is_shown_on_request(binarised, tmp_path, caplog, without_filters, monkeypatch):
    monkeypatch.setenv("LOGLEVEL", "DEBUG")
    _quiet.hide_known_messages()
    assert not warnings.filters
    assert any("'_name'" in line for line in logged(binarised, tmp_path, caplog, *WINDOW))


def test_only_known_warnings_are_hidden(without_filters, monkeypatch):
    monkeypatch.setattr(_quiet.sys, "warnoptions", [])
    _quiet.hide_known_messages()
    with warnings.catch_warnings(record=True) as shown:
        warnings.warn("'pin_memory' argument is set as true but no accelerator is found")  # noqa: B028
        warnings.warn("something of the user's own")  # noqa: B028
    assert [str(warning.message) for warning in shown] == ["something of the user's own"]


def test_filters_of_the_user_stay(without_filters, monkeypatch):
    monkeypatch.setattr(_quiet.sys, "warnoptions", ["default"])
    _quiet.hide_known_messages()
    assert not warnings.filters


@pytest.mark.parametrize(
    "options, said",
    [
        (
            [],
            "tokens of the training text, with its subwords, split at spaces, with n-grams up to 4",
        ),
        (
            ["--remove-bpe"],
            "words of the training text, with subwords joined but not detokenized, s",
        ),
        (
            ["--remove-bpe", "--tokenizer", "moses"],
            "detokenized text, split at spaces, with n-gram",
        ),
        (["--tokenizer", "moses"], "tokens of the training text, with its subwords, split at"),
        (
            ["--tokenizer", "moses", "--scoring", "sacrebleu"],
            "detokenized text, by --scoring sacre",
        ),
        (["--scoring", "document_bleu"], "tokens of the training text, with its subwords, by --sc"),
        (
            ["--scoring", "chrf"],
            "tokens of the training text, with its subwords, by --scoring chrf",
        ),
    ],
)
def test_generate_ends_with_what_its_score_is_of(
    binarised, window_checkpoint, caplog, options, said
):
    with caplog.at_level(logging.INFO):
        tiny.generate(binarised, window_checkpoint, *WINDOW, "-s", "src", "-t", "tgt", *options)
    last = [r.getMessage() for r in caplog.records if r.name == "fairseq_cli.generate"][-1]
    assert last.startswith("Translated 15 sentences (")
    name = "The score" if "chrf" in options else "BLEU"
    assert last.splitlines()[1].startswith(f"{name} is of {said}")


def test_the_advice_of_fairseq_about_bleu_is_replaced(caplog):
    log = _quiet._WithoutDumps().filter
    record = logging.makeLogRecord
    advice = {"name": "fairseq_cli.generate", "msg": f"{_quiet.BLEU_ADVICE[1]}, the BLEU score …"}
    assert log(record(advice))  # of a task of fairseq
    filtering = _quiet._WithoutDumps()
    filtering.cfg = OmegaConf.create({"common_eval": {}})
    assert not filtering.filter(record(advice))
    assert filtering.filter(record({**advice, "msg": "something else"}))


def test_messages_are_suppressed_inside_only(caplog):
    logger = logging.getLogger("fairseq.test")
    with caplog.at_level(logging.INFO):
        with quietly():
            logger.info("inside")
            logger.warning("a warning")
        logger.info("after")
    assert caplog.messages == ["a warning", "after"]


def test_an_error_ends_the_silence():
    before = logging.root.manager.disable
    with pytest.raises(RuntimeError), quietly():
        raise RuntimeError
    assert logging.root.manager.disable == before


@LONG
def test_the_import_leaves_the_logging_of_python_alone():
    lines = "import logging, fairseq_docmt; print(logging.root.level, logging.root.handlers)"
    shown = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert shown.stdout == f"{logging.WARNING} []\n"
    assert not shown.stderr
