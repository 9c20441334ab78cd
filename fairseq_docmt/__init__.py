"""Document-level neural machine translation as a fairseq plugin (``--user-dir``).

Importing this package registers its tasks, models, criteria, optimizers, scorer and tokenizer with
fairseq.  All sub-packages are imported here, because fairseq itself would import only ``tasks/``
and ``models/``, and would not import even these if the package had been imported before.
"""

import os
import sys

NAME = "fairseq_docmt"
if __name__ != NAME:  # --user-dir is a link of another name; the package itself must be found, too
    sys.path.append(os.path.dirname(os.path.realpath(__path__[0])))

import fairseq_docmt._standard_streams  # noqa: E402, F401
from fairseq_docmt.error_sentences import show_user_errors_plainly  # noqa: E402
from fairseq_docmt.errors import UserError  # noqa: E402

# If the package is already imported, fairseq compares this path with the absolute --user-dir.
__path__ = [os.path.abspath(path) for path in __path__]

show_user_errors_plainly()


def register() -> None:
    """Register all tasks, models and other classes of this package with fairseq.

    This happens when the package is imported.  The only exception is the command ``fairseq-docmt``:
    it starts faster without fairseq, so it calls this function only when fairseq is needed.
    """
    from fairseq_docmt._quiet import hide_known_messages, keep_logging_settings, quietly

    # Some of fairseq's own tasks ask for packages that translation does not need, and log at DEBUG.
    with keep_logging_settings(), quietly():
        import fairseq.tasks  # noqa: F401

    from fairseq_docmt._checkpoint_classes import allow_checkpoint_classes
    from fairseq_docmt._stock_tasks import check_arguments, check_stock_tasks

    hide_known_messages()
    allow_checkpoint_classes()
    check_stock_tasks()
    check_arguments(sys.argv[1:])

    from fairseq_docmt import criterions, data, generation, models, optim, tasks  # noqa: F401


# Most commands of fairseq-docmt need no model.  They start without fairseq and torch, which take
# seconds to import.  While Python looks for the module of its option -m, it is called "-m"; the
# processes of translate are called "fairseq-docmt translate".
if os.path.basename(sys.argv[0]).split()[:1] not in (["fairseq-docmt"], ["-m"]):
    register()

__version__ = "0.2.0"
__all__ = ["criterions", "data", "generation", "models", "optim", "scoring", "tasks"]
__all__ += ["register"]

if __name__ != NAME:
    package = sys.modules[NAME]
    if not os.path.samefile(__path__[0], package.__path__[0]):
        raise UserError(
            f"--user-dir {__path__[0]} is a copy of the package under another name, and would be "
            f"registered twice; give {package.__path__[0]}"
        )
    # fairseq imports the modules below its name for --user-dir, which registers them again.
    for known in [name for name in sys.modules if f"{name}.".startswith(f"{NAME}.")]:
        sys.modules[__name__ + known[len(NAME) :]] = sys.modules[known]
