"""Suppression of fairseq's log messages in commands that print results."""

import contextlib
import logging


@contextlib.contextmanager
def quietly():
    """Suppress log messages up to level INFO, e.g. while fairseq loads a model."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
