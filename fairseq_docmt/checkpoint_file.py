"""Reading of a checkpoint file before fairseq loads it, to report faults in one sentence."""

import argparse
import os
import pickle
import pickletools
import re
import zipfile
from typing import Any, Dict, NamedTuple, Set

import torch
from torch import Tensor

from fairseq_docmt._checkpoint_options import check_options, other_checkpoints
from fairseq_docmt.errors import UserError


class CheckpointFile(NamedTuple):
    """Content of a checkpoint, whose tensors stay on disk where torch can leave them there.

    Attributes:
        path: path of the file.
        settings: options of training, by group (``task``, ``model``, …).
        task_state: state of the task.
        weights: parameters of the model.
        updates: number of updates that a training resumes from, 0 without an optimizer's state.
        hours: duration of training.
    """

    path: str
    settings: Dict[str, Dict[str, Any]]
    task_state: Dict[str, Any]
    weights: Dict[str, Tensor]
    updates: int = 0
    hours: float = 0.0

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
        UserError: see :func:`load_state`, or the file is not a checkpoint.
    """
    state = load_state(path)
    wanted = isinstance(state, dict) and isinstance(state.get("model"), dict)
    settings = (state.get("args") or state.get("cfg")) if wanted else None  # as fairseq prefers
    if not settings:
        raise UserError(f"{path} is not a checkpoint of fairseq; give a file that it has saved")
    task_state = state.get("task_state", {})
    return CheckpointFile(
        path, _by_group(settings), task_state, state["model"], _updates(state), _hours(state)
    )


def _updates(state: dict) -> int:
    history = state.get("optimizer_history")
    if not history or state.get("last_optimizer_state") is None:
        return 0
    return history[-1].get("num_updates", 0)


def _hours(state: dict) -> float:
    return (state.get("extra_state") or {}).get("previous_training_time", 0) / 3600


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

    Neither does fairseq run any when it builds a model from it afterwards.

    Raises:
        UserError: the file is missing or damaged, or has objects or options that may run programs.
    """
    state = _loaded(path)
    seen, others = {path}, _files_read_with(path, state)
    while others:
        other = others.pop()
        if other in seen:
            continue
        seen.add(other)
        try:
            content = _loaded(other)
        except UserError:
            continue  # fairseq cannot load it either
        others |= _files_read_with(other, content)
    return state


def _files_read_with(path: str, state: Any) -> Set[str]:
    """Check the options of a checkpoint; return other checkpoints that fairseq may read for it.

    Raises:
        UserError: an option may run programs.
    """
    shard = f"{path[:-3]}-shard0.pt"  # which fairseq prefers
    others = {shard} if os.path.exists(shard) else set()
    if isinstance(state, dict):
        for settings in (state.get("args"), state.get("cfg")):
            check_options(settings, f"checkpoint {path}")
            others.update(other_checkpoints(settings))
    return others


def _loaded(path: str) -> Any:
    if os.path.isdir(path):
        raise UserError(f"checkpoint {path} is a folder; give a file in it")
    if not os.path.exists(path):
        raise UserError(f"checkpoint {path} not found")
    if os.path.getsize(path) == 0:
        raise UserError(f"checkpoint {path} is empty; use an earlier one or train again")
    safe = hasattr(torch.serialization, "add_safe_globals")
    is_archive = zipfile.is_zipfile(path)
    try:
        if is_archive:
            _check_sums(path)
        options = {"weights_only": True, "mmap": is_archive} if safe else {}
        return torch.load(path, map_location="cpu", **options)
    except pickle.UnpicklingError:
        if not is_archive and not _is_pickle(path):
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


def _check_sums(path: str) -> None:
    """Check the contents of an archive against its checksums, if it was saved with any.

    Raises:
        BadZipFile: they differ.
    """
    with zipfile.ZipFile(path) as archive:
        has_sums = any(content.CRC for content in archive.infolist())
        bad = archive.testzip() if has_sums else None
    if bad is not None:
        raise zipfile.BadZipFile(bad)


def _is_pickle(path: str) -> bool:
    """Return whether a file is intact as a pickle, which torch then has refused for its objects."""
    with open(path, "rb") as file:
        try:
            return sum(1 for _ in pickletools.genops(file)) > 0
        except Exception:  # whatever the bytes of a damaged file make of it
            return False


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


def misfit(message: str) -> str:
    """Return the first difference between a checkpoint and a model, from the message of torch."""
    sizes = re.search(r"size mismatch for (\S+): .*?Size\(\[(.*?)\]\).*?Size\(\[(.*?)\]\)", message)
    if sizes:
        name, trained, built = sizes.groups()
        return f"{name} has the shape [{trained}] in the checkpoint, but [{built}] in the model"
    names = re.findall(r"""["']([\w.]+)["']""", message)
    if not names:
        return message.splitlines()[0]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    if "Missing" in message:
        return f"the checkpoint lacks {names[0]}{more}"
    return f"only the checkpoint has {names[0]}{more}"
