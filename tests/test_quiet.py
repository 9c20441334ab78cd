"""Commands that print results suppress log messages only while they load a model."""

import logging

import pytest

from fairseq_docmt._quiet import quietly


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
