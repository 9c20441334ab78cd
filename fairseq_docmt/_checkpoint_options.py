"""Check of the options that a checkpoint stores, before fairseq builds anything from them.

fairseq evaluates some options as Python (``decoder_attention`` of an ``lstm``,
``adaptive_softmax_cutoff`` of a ``transformer``, ``conv_feature_layers``, …), and which they are
depends on the architecture.  So no option may hold a text that would call something, except the
names of files and the like, which fairseq never evaluates.
"""

import argparse
import ast
import dataclasses
import os
import re
from typing import Any, Iterator, Optional, Set, Tuple

from fairseq import registry, tasks
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_docmt.errors import UserError

#: Python that computes something with more than constants, names and operators
RUNS = (ast.Call, ast.Subscript, ast.JoinedStr, ast.NamedExpr, ast.Lambda)
RUNS += (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
RUNS += (ast.Await, ast.Yield, ast.YieldFrom)
#: how a checkpoint begins: a zip archive, or a pickle of an old torch
BEGINNINGS = (b"PK", b"\x80")


def check_options(settings: Any, place: str) -> None:
    """Check that no option of a checkpoint can run a program.

    Args:
        settings: options, as a dictionary, namespace or configuration, also of groups of options.
        place: the checkpoint, for the message.

    Raises:
        UserError: naming an option that can.
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
    """Yield the files that options of a model name, and that may be checkpoints themselves."""
    common = _names_of_texts()
    for name, value in _options(settings):
        if name not in common and isinstance(value, str) and _begins_like_checkpoint(value):
            yield value


def _options(settings: Any, name: str = "") -> Iterator[Tuple[str, Any]]:
    """Yield the names and values of all options; those of a list have its name."""
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
    """Return whether a suspect value can run something, itself or by referring to a text."""
    if not isinstance(value, str) or "${" not in value:
        return True
    reference = re.fullmatch(r"\$\{([\w.]+)\}", value)
    return reference is None or any(_is_text(part, texts) for part in reference[1].split("."))


def _runs_resolver(value: Any) -> bool:
    """Return whether a text has a resolver of omegaconf, such as ``${oc.env:HOME}``."""
    return isinstance(value, str) and re.search(r"\$\{.*:", value, re.DOTALL) is not None


def _runs(text: str) -> bool:
    """Return whether evaluating a text as Python runs more than constants and operators."""
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
    """Return the names of options that are texts by their type, in fairseq and here.

    fairseq evaluates none of them; ``pipeline_balance`` and the like are lists in truth.
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
