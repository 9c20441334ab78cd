"""Commands that are about numbers, not about what the host does meanwhile."""

import contextlib
import logging


@contextlib.contextmanager
def quietly():
    """Without what the host says while it loads things."""
    before = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        yield
    finally:
        logging.disable(before)
