"""Checks on fairseq's commands, mainly for users who have forgotten ``--task``.

Without ``--task``, fairseq uses its own task ``translation``, which reads the blank lines between
documents as sentences.  That task has no check for blank lines, so the checks are made by a log
filter: each command logs its configuration just before it sets up the task.
"""

import importlib.util
import logging
import os
import struct
from typing import Sequence

import numpy as np

from fairseq_docmt.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError

logger = logging.getLogger(__name__)

#: command of fairseq -> option group and name of the split that it reads
SPLITS = {"train": "train_subset", "generate": "gen_subset", "interactive": None}
#: option of fairseq-train -> package without which it ends in a traceback, or trains nothing
NEED_PACKAGES = {
    "save-async": "iopath",
    "write-checkpoints-asynchronously": "iopath",
    "use-plasma-view": "pyarrow.plasma",
}


class StockTaskCheck(logging.Filter):
    """Log filter that checks the configuration which a fairseq command logs when it starts.

    No record is dropped.  For the checks, see :meth:`filter`.

    Args:
        split: option that names the split which the command reads, such as ``train_subset``; None
            for ``fairseq-interactive``, which reads no split.
    """

    def __init__(self, split):
        super().__init__()
        self.split = split

    def filter(self, record: logging.LogRecord) -> bool:
        """Check fairseq's configuration when it is logged; return True, so that it is logged.

        If the task is fairseq's default and the source has blank lines, a warning is logged.

        Raises:
            UserError: a checkpoint given by ``--path`` is damaged, may run code when loaded, or was
                trained with a document task although the command uses fairseq's default task.
        """
        cfg = record.msg
        if type(cfg).__name__ != "DictConfig" or "common_eval" not in cfg:
            return True
        is_default = getattr(cfg.get("task"), "_name", None) == "translation"
        _check_checkpoints(cfg.common_eval.path, is_default)
        split = self.split and cfg.dataset[self.split]
        if is_default and split and _has_blank_lines(cfg.task, split):
            logger.warning(
                "--task translation, the default, reads the blank lines between documents of %s "
                "as sentences; give a document task, such as --task sliding_window_translation",
                cfg.task.data,
            )
        return True


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse options of fairseq's commands with which they would do nothing, or end in a traceback.

    Args:
        arguments: command line, or overrides of hydra.

    Raises:
        UserError: an option needs a package that is missing; or ``--distributed-init-method`` is
            given without ``--distributed-no-spawn`` where there is no GPU: fairseq would start a
            process for each GPU, and end with status 0.
    """
    options = (argument.split("=") for argument in arguments)
    on = (name for name, *value in options if value[:1] not in (["false"], ["False"]))
    given = {name.split(".")[-1].strip("-").replace("_", "-") for name in on}
    for name, package in NEED_PACKAGES.items():
        if name in given and not _is_installed(package):
            raise UserError(f"--{name} needs {package}, which is not installed; leave it out")
    if {"distributed-init-method", "distributed-no-spawn"} & given == {"distributed-init-method"}:
        import torch

        if not torch.cuda.device_count():
            raise UserError(
                "with --distributed-init-method, fairseq starts a process for each GPU, and there "
                "is none; give --distributed-no-spawn, and a command for each --distributed-rank"
            )


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # of the package that has it
        return False


def check_stock_tasks() -> None:
    """Make fairseq's commands check the data and the checkpoints when they run a stock task.

    The check is a :class:`StockTaskCheck` in the logger of ``fairseq-train``, ``fairseq-generate``
    and ``fairseq-interactive``, because each of them logs its configuration when it starts.
    """
    for command, split in SPLITS.items():
        command_logger = logging.getLogger(f"fairseq_cli.{command}")
        if not any(isinstance(known, StockTaskCheck) for known in command_logger.filters):
            command_logger.addFilter(StockTaskCheck(split))


def _check_checkpoints(paths, is_default: bool) -> None:
    """Refuse checkpoints that may run code when loaded, or that need another task.

    If the command uses fairseq's default task, a checkpoint of a document task is refused.  Files
    that do not exist are skipped, because fairseq reports them.

    Args:
        paths: value of ``--path``; None or "" for no checkpoints.
        is_default: whether the task is ``translation``, fairseq's default.

    Raises:
        UserError: a checkpoint is refused or damaged.
    """
    from fairseq import utils

    from fairseq_docmt.checkpoint_file import read_checkpoint
    from fairseq_docmt.tasks._stored_options import KEY

    for path in utils.split_paths(paths or ""):
        if not os.path.isfile(path):
            continue  # fairseq reports it
        stored = read_checkpoint(path).task_state.get(KEY)
        if is_default and stored is not None:
            raise UserError(
                f"{path} was trained with --task {stored['task']}, not with translation, the "
                f"default; give --task {stored['task']}"
            )


def _has_blank_lines(task, split: str) -> bool:
    """Return whether the source of a split has blank lines; False if it cannot be read."""
    from fairseq import utils
    from fairseq.data import data_utils

    folder = next(iter(utils.split_paths(task.data or "")), "")
    if not os.path.isdir(folder):
        return False
    pair = (task.source_lang, task.target_lang)
    if None in pair:
        pair = data_utils.infer_language_pair(folder)
    name = os.path.join(folder, f"{split}.{pair[0]}-{pair[1]}.{pair[0]}")
    try:
        lines = data_utils.load_indexed_dataset(name)
    except (OSError, ValueError, EOFError, AssertionError, struct.error):
        return False
    return lines is not None and bool(np.any(np.asarray(lines.sizes) <= BLANK_SIZE))
