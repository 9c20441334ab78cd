"""Document-level neural machine translation as a fairseq plugin (``--user-dir``).

Importing this package registers its tasks, models, criteria, optimizers, scorer and tokenizer with
fairseq.  It imports all its sub-packages itself, because fairseq imports only ``tasks/`` and
``models/``, and only if the package was not imported before.
"""

import os

from fairseq_docmt._quiet import hide_known_messages, keep_logging_settings, quietly
from fairseq_docmt.errors import show_user_errors_plainly

# Some of fairseq's own tasks ask for packages that translation does not need, and log at DEBUG.
with keep_logging_settings(), quietly():
    import fairseq.tasks  # noqa: F401

from fairseq_docmt._checkpoint_classes import allow_checkpoint_classes

# If the package is already imported, fairseq compares this path with the absolute --user-dir.
__path__ = [os.path.abspath(path) for path in __path__]

hide_known_messages()
allow_checkpoint_classes()
show_user_errors_plainly()

from fairseq_docmt._stock_tasks import check_stock_tasks  # noqa: E402

check_stock_tasks()

from fairseq_docmt import criterions, data, generation, models, optim, scoring, tasks  # noqa: E402

__version__ = "0.1.0"
__all__ = ["criterions", "data", "generation", "models", "optim", "scoring", "tasks"]
