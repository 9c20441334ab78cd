"""Functions that read and check checkpoint files before fairseq loads them."""

import argparse
import ast
import contextlib
import dataclasses
import os
import pickle
import pickletools
import re
import zipfile
from typing import Any, Dict, Iterator, NamedTuple, Optional, Set, Tuple

import torch
from fairseq import registry, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf, open_dict
from torch import Tensor

from fairseq_docmt.errors import UserError

#: task and model in checkpoints of version 0.1 -> today's task
RENAMED_TASKS = {("full_document_translation", "memnet_rnn"): "document_rows_translation"}
#: model -> option in checkpoints of version 0.1 -> today's option
RENAMED_OPTIONS = {
    "cache_rnn": {"fusion": "context_integration"},
    "context_rnn": {"forget_context": "no_context"},
    "han_transformer": {"forget_context": "no_context"},
    "memnet_rnn": {"memory": "context_side", "memory_to": "context_integration"},
    "memory_transformer": {"memory_side": "context_side", "forget_memory": "no_context"},
    "multi_encoder_transformer": {"forget_context": "no_context"},
}


#: endings of the names of model options that have no effect outside of training
DROPOUTS = ("dropout", "layerdrop")


class CheckpointFile(NamedTuple):
    """Content of a checkpoint.

    Where possible, the tensors are memory-mapped from the file instead of being read at once.

    Attributes:
        path: path of the file.
        settings: options of training, as group (``task``, ``model``, …) -> option -> value.
        task_state: what the task's ``state_dict`` returned.
        weights: parameters of the model.
        updates: number of updates at which training would resume; 0 without optimizer state.
        hours: duration of training in hours.
    """

    path: str
    settings: Dict[str, Dict[str, Any]]
    task_state: Dict[str, Any]
    weights: Dict[str, Tensor]
    updates: int = 0
    hours: float = 0.0

    @property
    def task(self) -> str:
        """Name of the model's training task; the current name if the task has been renamed."""
        stored = self._setting("task")
        return RENAMED_TASKS.get((stored, self._setting("model")), stored)

    @property
    def arch(self) -> str:
        """Name of the model architecture (``--arch``)."""
        return self.settings.get("model", {}).get("arch") or self._setting("model")

    @property
    def model_options(self) -> Dict[str, Any]:
        """Options of the model itself, without its maximum positions.

        fairseq's older models also store all options of the task, the optimizer and others under
        ``model``, and its older tasks those of the model under ``task``.
        """
        stored = self.settings.get("model", {})
        if self.arch in ARCH_MODEL_REGISTRY:
            parser = argparse.ArgumentParser(allow_abbrev=False)
            ARCH_MODEL_REGISTRY[self.arch].add_args(parser)
            own = set(vars(parser.parse_args([]))) - {
                "max_source_positions",
                "max_target_positions",
            }
            return {name: value for name, value in stored.items() if name in own}
        others = {name for group, of in self.settings.items() if group != "model" for name in of}
        others |= {*registry.REGISTRIES, "task", "arch", "_name"}
        return {name: value for name, value in stored.items() if name not in others}

    def limit_positions(self, cfg) -> None:
        """Lower a task's maximum positions to those used in training, if they are higher.

        Args:
            cfg: options of the task, changed in place.
        """
        for option in ("max_source_positions", "max_target_positions"):
            trained = self.settings["task"].get(option)
            if trained is not None:
                setattr(cfg, option, min(getattr(cfg, option), trained))

    def refuse_diverged(self, fix: str = "use an earlier checkpoint") -> None:
        """Raise a UserError if parameters are NaN or infinite.

        Args:
            fix: what to do, for the message.
        """
        weights = filter(torch.is_tensor, self.weights.values())
        if any(not value.isfinite().all() for value in weights):
            raise UserError(
                f"{self.path} has parameters that are NaN or infinite, so its training has "
                f"diverged; {fix}"
            )

    def _setting(self, group: str) -> str:
        return self.settings.get(group, {}).get("_name") or f"an unknown {group}"


def read_checkpoint(path: str) -> CheckpointFile:
    """Read a fairseq checkpoint.

    Raises:
        UserError: the file cannot be loaded (see :func:`load_state`) or is not a checkpoint.
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


def read_translation_model(path: str) -> CheckpointFile:
    """Read the checkpoint of a translation model of this package or of fairseq.

    Raises:
        UserError: the file cannot be read (see :func:`read_checkpoint`), or the model in it is not
            a translation model.
    """
    file = read_checkpoint(path)
    if "source_lang" not in file.settings.get("task", {}):
        raise UserError(
            f"{path} was trained with --task {file.task}; give a model of a translation task"
        )
    return file


def read_language_model(path: str) -> CheckpointFile:
    """Read the checkpoint of a fairseq language model.

    Raises:
        UserError: the file cannot be read (see :func:`read_checkpoint`), or the model in it is not
            a language model.
    """
    file = read_checkpoint(path)
    if file.task != "language_modeling":
        raise UserError(
            f"{path} was trained with --task {file.task}; give a language model "
            "(--task language_modeling)"
        )
    return file


def read_words(path: str, file: CheckpointFile, fix: str) -> Dictionary:
    """Read the dictionary of a language model.

    A checkpoint stores the number of words, but not the words.

    Args:
        path: ``dict.txt``.
        file: checkpoint of the language model.
        fix: what to do if the dictionary is not that of its training, for messages.

    Raises:
        UserError: the dictionary is damaged, or has another number of words than the model.
    """
    try:
        words = Dictionary.load(path)
    except Exception as error:  # fairseq raises it itself if the file is not UTF-8
        reason = str(error).split(" when ")[0].split("\n")[0]
        raise UserError(f"{path} is damaged ({reason}); {fix}") from None
    weight = file.weights.get("decoder.embed_tokens.weight")
    if weight is not None and len(weight) != len(words):
        raise UserError(
            f"{path} makes {len(words)} symbols, but language model {file.path} was trained with "
            f"{len(weight)}; {fix}"
        )
    return words


def load_state(path: str) -> Any:
    """Return the content of a file saved by ``torch.save``, without running code from it.

    It is also safe for fairseq to build a model from the content.  Options that could execute
    arbitrary code are refused, in this file and in other checkpoints that fairseq would load with
    it.

    Raises:
        UserError: the file is missing or damaged, or contains objects or options that could execute
            arbitrary code.
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
    """Check the options in a checkpoint, and find the other files that fairseq may read with it.

    Args:
        path: path of the checkpoint.
        state: its content.

    Returns:
        Paths of the checkpoints that the options name, and of the first shard if there is one.

    Raises:
        UserError: an option could execute arbitrary code.
    """
    shard = f"{path[:-3]}-shard0.pt"  # which fairseq prefers
    others = {shard} if os.path.exists(shard) else set()
    if isinstance(state, dict):
        for settings in (state.get("args"), state.get("cfg")):
            check_options(settings, f"checkpoint {path}")
            others.update(other_checkpoints(settings))
    return others


EMPTY_PATH = "the path of a checkpoint is empty; give a file, or leave out the : beside it"


def _loaded(path: str) -> Any:
    if not path:
        raise UserError(EMPTY_PATH)
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
    except Exception:  # a damaged file can make the unpickler raise anything
        raise _damaged(path) from None


def _check_sums(path: str) -> None:
    """Check the contents of a zip archive against its checksums; accept archives without them.

    Raises:
        BadZipFile: a file in the archive does not match its checksum.
    """
    with zipfile.ZipFile(path) as archive:
        has_sums = any(content.CRC for content in archive.infolist())
        bad = archive.testzip() if has_sums else None
    if bad is not None:
        raise zipfile.BadZipFile(bad)


def _is_pickle(path: str) -> bool:
    """Return whether a file that torch failed to load is an intact pickle.

    If it is, torch has refused it because of an object in it, and not because it is damaged.
    """
    with open(path, "rb") as file:
        try:
            return sum(1 for _ in pickletools.genops(file)) > 0
        except Exception:  # as above
            return False


def _damaged(path: str) -> UserError:
    return UserError(
        f"checkpoint {path} is damaged or not a checkpoint; copy it again, use an earlier one or "
        "train again"
    )


def _by_group(settings) -> Dict[str, Dict[str, Any]]:
    """Return the options of a checkpoint as group (``task``, ``model``, …) -> option -> value.

    Checkpoints of old fairseq versions have a single namespace for all options; in this case both
    ``task`` and ``model`` contain all of them.  Otherwise, model options that earlier versions of
    this package called differently get their current names.
    """
    if isinstance(settings, argparse.Namespace):
        options = vars(settings)
        names = {"task": options.get("task"), "model": options.get("arch")}
        return {group: {**options, "_name": name} for group, name in names.items()}
    groups = {name: settings[name] for name in settings}
    as_dict = {
        name: vars(group) if isinstance(group, argparse.Namespace) else group
        for name, group in groups.items()
    }
    by_group = {name: dict(group) for name, group in as_dict.items() if hasattr(group, "keys")}
    if "model" in by_group:
        rename_options(by_group["model"])
    return by_group


def rename_options(cfg) -> None:
    """Rename the options of a model from an older version to their current names, in place.

    Args:
        cfg: options, as a dictionary, configuration or namespace.
    """
    options = vars(cfg) if isinstance(cfg, argparse.Namespace) else cfg
    with open_dict(cfg) if OmegaConf.is_config(cfg) else contextlib.nullcontext():
        for stored, name in RENAMED_OPTIONS.get(options.get("_name"), {}).items():
            if stored in options:
                options[name] = options.pop(stored)


def misfit(message: str) -> str:
    """Describe how a checkpoint does not fit a model, given the error message of torch.

    Returns:
        A phrase that names the first parameter that differs; if torch's message names none, the
        first line of that message.
    """
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


# ---- options that may run programs ---------------------------------------------------------------
#
# fairseq evaluates some options as Python (``decoder_attention`` of an ``lstm``,
# ``adaptive_softmax_cutoff`` of a ``transformer``, ``conv_feature_layers``, …), and which they are
# depends on the architecture.  So no option may hold a text that would call something, except the
# names of files and the like, which fairseq never evaluates.

#: Python that computes something with more than constants, names and operators
RUNS = (ast.Call, ast.Subscript, ast.JoinedStr, ast.NamedExpr, ast.Lambda)
RUNS += (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
RUNS += (ast.Await, ast.Yield, ast.YieldFrom)
#: how a checkpoint begins: a zip archive, or a pickle of an old torch
BEGINNINGS = (b"PK", b"\x80")


def check_options(settings: Any, place: str) -> None:
    """Check that no option stored in a checkpoint could execute arbitrary code.

    Args:
        settings: options, with or without groups, as a dictionary, namespace or configuration.
        place: name of the checkpoint, with which the message begins.

    Raises:
        UserError: an option could execute arbitrary code; the message names it.
    """
    texts = None
    for name, value in _options(settings):
        if not _is_suspect(value):
            continue
        texts = _names_of_texts() if texts is None else texts
        bad = _runs_resolver(value) if _is_text(name, texts) else _is_unsafe(value, texts)
        if bad:
            raise UserError(
                f"{place} has the option {name} = {value!r:.60}, which may run a program when "
                "fairseq reads it; do not use this checkpoint"
            )


def other_checkpoints(settings: Any) -> Iterator[str]:
    """Yield the values of options that are paths of other checkpoints.

    A file counts as a checkpoint if it begins like a zip archive or a pickle.  Options that are
    declared as strings (see :func:`_names_of_texts`) are skipped.
    """
    common = _names_of_texts()
    for name, value in _options(settings):
        if name not in common and isinstance(value, str) and _begins_like_checkpoint(value):
            yield value


def _options(settings: Any, name: str = "") -> Iterator[Tuple[str, Any]]:
    """Yield the name and value of each option, including options in groups.

    If the value of an option is a list, each element is yielded separately under the same name.

    Args:
        settings: all options, a group of options, or the value of one option.
        name: name of the option, if ``settings`` is its value.
    """
    if OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings, resolve=False)
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _options(value, str(key))
    elif isinstance(settings, (list, tuple)):
        for value in settings:
            yield from _options(value, name)
    else:
        yield name, settings


def _is_suspect(value: Any) -> bool:
    if isinstance(value, str):
        return "${" in value or _runs(value)
    return isinstance(value, (bytes, bytearray))  # Python evaluates them too


def _is_unsafe(value: Any, texts: Set[str]) -> bool:
    """Return whether a suspect option value could execute code when fairseq evaluates it.

    A plain reference to another option, such as ``${model.dropout}``, is safe, except if that
    option holds text: text is not checked for Python code.  All other suspect values are unsafe.

    Args:
        value: the suspect value: bytes, or text that contains ``${`` or Python code that may run a
            program.
        texts: names of options that hold text, see :func:`_names_of_texts`.
    """
    if not isinstance(value, str) or "${" not in value:
        return True
    reference = re.fullmatch(r"\$\{([\w.]+)\}", value)
    return reference is None or any(_is_text(part, texts) for part in reference[1].split("."))


def _runs_resolver(value: Any) -> bool:
    """Return whether a value calls an OmegaConf resolver, such as ``${oc.env:HOME}``."""
    return isinstance(value, str) and re.search(r"\$\{.*:", value, re.DOTALL) is not None


def _runs(text: str) -> bool:
    """Return whether a text, evaluated as Python, may do more than combine constants and names."""
    try:
        tree = ast.parse(text.lstrip(" \t"), mode="eval")
    except (SyntaxError, ValueError):
        return False  # Python refuses to evaluate it
    except (RecursionError, MemoryError):
        return True
    return any(isinstance(node, RUNS) for node in ast.walk(tree))


def _is_text(name: str, texts: Set[str]) -> bool:
    return name in texts or name.endswith(("_path", "_dir", "_file"))


def _names_of_texts() -> Set[str]:
    """Return the names of the options whose values are plain text, such as file names.

    These are the options of fairseq and this package that are declared as ``str`` or
    ``Optional[str]``.  fairseq does not evaluate them as Python, except for the ``pipeline_``
    options, which hold lists written as text and are therefore not returned.
    """
    classes = [*tasks.TASK_DATACLASS_REGISTRY.values()]
    classes += [field.type for field in dataclasses.fields(FairseqConfig)]
    for kind in ("tokenizer", "bpe"):
        classes += registry.REGISTRIES[kind]["dataclass_registry"].values()
    return {
        field.name
        for one in classes
        if dataclasses.is_dataclass(one)
        for field in dataclasses.fields(one)
        if field.type in (str, Optional[str]) and not field.name.startswith("pipeline_")
    }


def _begins_like_checkpoint(path: str) -> bool:
    if "\0" in path or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(2).startswith(BEGINNINGS)
