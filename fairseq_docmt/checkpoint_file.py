"""Reading of a checkpoint file before fairseq loads it, to report faults in one sentence."""

import argparse
import os
import pickle
import re
import zipfile
from typing import Any, Dict, NamedTuple

import torch
from torch import Tensor

from fairseq_docmt.errors import UserError


class CheckpointFile(NamedTuple):
    """Content of a checkpoint, whose tensors stay on disk where torch can leave them there.

    Attributes:
        path: path of the file.
        settings: options of training, by group (``task``, ``model``, …).
        task_state: state of the task.
        weights: parameters of the model.
    """

    path: str
    settings: Dict[str, Dict[str, Any]]
    task_state: Dict[str, Any]
    weights: Dict[str, Tensor]

    @property
    def task(self) -> str:
        """Registered name of the task of training."""
        return self._setting("task")

    @property
    def arch(self) -> str:
        """Name of the architecture."""
        return self.settings.get("model", {}).get("arch") or self._setting("model")

    def limit_positions(self, cfg) -> None:
        """Limit the maximum positions of a task to those of training, as fairseq's batches do.

        Args:
            cfg: options of the task, changed in place.
        """
        for option in ("max_source_positions", "max_target_positions"):
            trained = self.settings["task"].get(option)
            if trained is not None:
                setattr(cfg, option, min(getattr(cfg, option), trained))

    def _setting(self, group: str) -> str:
        return self.settings.get(group, {}).get("_name") or f"an unknown {group}"


def read_checkpoint(path: str) -> CheckpointFile:
    """Read a checkpoint of fairseq.

    Raises:
        UserError: the file is missing, damaged, not a checkpoint, or has unknown objects in it.
    """
    state = load_state(path)
    wanted = isinstance(state, dict) and isinstance(state.get("model"), dict)
    settings = (state.get("cfg") or state.get("args")) if wanted else None
    if not settings:
        raise UserError(f"{path} is not a checkpoint of fairseq; give a file that it has saved")
    return CheckpointFile(path, _by_group(settings), state.get("task_state", {}), state["model"])


def read_language_model(path: str) -> CheckpointFile:
    """Read a checkpoint of a language model of fairseq.

    Raises:
        UserError: see :func:`read_checkpoint`, or it is no language model.
    """
    file = read_checkpoint(path)
    if file.task != "language_modeling":
        raise UserError(
            f"{path} was trained with --task {file.task}; give a language model "
            "(--task language_modeling)"
        )
    return file


def load_state(path: str) -> Any:
    """Return all that is in a file saved by torch, without running code from it.

    Raises:
        UserError: the file is missing, damaged, or has unknown objects in it.
    """
    if os.path.isdir(path):
        raise UserError(f"checkpoint {path} is a folder; give a file in it")
    if not os.path.exists(path):
        raise UserError(f"checkpoint {path} not found")
    if os.path.getsize(path) == 0:
        raise UserError(f"checkpoint {path} is empty; use an earlier one or train again")
    safe = hasattr(torch.serialization, "add_safe_globals")
    options = {"weights_only": True, "mmap": zipfile.is_zipfile(path)}
    try:
        return torch.load(path, map_location="cpu", **(options if safe else {}))
    except pickle.UnpicklingError as error:
        if not re.search("[Uu]nsupported (global|class)", str(error)):
            raise _damaged(path) from None
        raise UserError(
            f"checkpoint {path} has objects that may run programs when they are loaded, which "
            "torch refuses (weights only); use a checkpoint with tensors and options alone"
        ) from None
    except PermissionError as error:
        raise UserError(f"checkpoint {path} cannot be read: {error.strerror}") from None
    except MemoryError:
        raise
    except Exception:  # whatever the bytes of a damaged file make of the unpickler
        raise _damaged(path) from None


def _damaged(path: str) -> UserError:
    return UserError(
        f"checkpoint {path} is damaged or not a checkpoint; copy it again, use an earlier one or "
        "train again"
    )


def _by_group(settings) -> Dict[str, Dict[str, Any]]:
    """Return options by group; those of old checkpoints are in one namespace."""
    if isinstance(settings, argparse.Namespace):
        options = vars(settings)
        names = {"task": options.get("task"), "model": options.get("arch")}
        return {group: {**options, "_name": name} for group, name in names.items()}
    groups = {name: settings[name] for name in settings}
    as_dict = {
        name: vars(group) if isinstance(group, argparse.Namespace) else group
        for name, group in groups.items()
    }
    return {name: dict(group) for name, group in as_dict.items() if hasattr(group, "keys")}
