"""Document-level neural machine translation as a fairseq plugin (``--user-dir``).

Importing this package registers its tasks, models, scorer and tokenizer with fairseq.  Every
sub-package is imported here, because fairseq itself imports ``tasks/`` and ``models/`` only
when the package was not imported before it.
"""

import os

from fairseq_docmt._checkpoint_classes import allow_checkpoint_classes
from fairseq_docmt.errors import show_user_errors_plainly

# --user-dir is compared with this by its absolute path when the package was imported before.
__path__ = [os.path.abspath(path) for path in __path__]

allow_checkpoint_classes()
show_user_errors_plainly()

from fairseq_docmt import data, generation, models, optim, scoring, tasks  # noqa: E402

__version__ = "0.1.0"
__all__ = ["data", "generation", "models", "optim", "scoring", "tasks"]
