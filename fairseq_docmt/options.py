r"""Show the options of tasks and architectures, which fairseq's --help leaves out.

fairseq-docmt options                                # all options that fairseq lacks
fairseq-docmt options --task sliding_window_translation --arch rfa_transformer
fairseq-docmt options --search warmup                # fairseq's too, by name or meaning
"""

import argparse
import textwrap
from argparse import Namespace
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional

from fairseq.criterions import CRITERION_DATACLASS_REGISTRY, CRITERION_REGISTRY
from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.utils import interpret_dc_type
from fairseq.models import ARCH_MODEL_INV_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig, TransformerModelBase
from fairseq.optim import OPTIMIZER_DATACLASS_REGISTRY, OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.tasks.translation import TranslationConfig

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.generation.decodings import SEARCHES
from fairseq_docmt.models.base import options_of, with_defaults
from fairseq_docmt.models.rnnsearch import RNNSearchConfig, RNNSearchModel
from fairseq_docmt.readers.files import write_text
from fairseq_docmt.tasks._config import DocumentTranslationConfig

FORMATS = ("text", "markdown")
WIDTH = 100
EVERY_TASK, DECODING = "all document tasks", "--decoding"
ABOUT_EVERY_TASK = (
    "What all document tasks have, besides the options of translation. A task or decoding that an "
    "option does not fit refuses it."
)
#: a model that has all options of fairseq's transformer, by their flags
OF_TRANSFORMER = "memory_transformer"


class Option(NamedTuple):
    """An option of the command line.

    Attributes:
        name: flag with a placeholder for its value, such as ``--window-size N``.
        default: value if the option is not given; "" if this is None, False or 0.
        meaning: help text.
    """

    name: str
    default: str
    meaning: str


class Section(NamedTuple):
    """A group of options that are shown under one heading, such as the options of a task.

    Attributes:
        title: heading, such as ``--task sliding_window_translation``.
        summary: description of the task, architecture, criterion or optimizer; may be "".
        options: the options of the group.
    """

    title: str
    summary: str
    options: List[Option]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options of ``fairseq-docmt options``."""
    parser.add_argument("--task", metavar="T", help="show the options of this task only")
    parser.add_argument("--arch", metavar="A", help="show the options of this architecture only")
    parser.add_argument(
        "--search", metavar="WORD", help="show the options with this word in their name or meaning"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument("--out", metavar="FILE", help="output file; default: standard output")


def main(args: Namespace) -> None:
    """Print the options of a task, an architecture or both, or those that match ``--search``.

    Raises:
        UserError: there is no such task or architecture, no option matches ``--search``, or the
            file of ``--out`` cannot be written.
    """
    sections = list(_chosen(args))
    if args.search is not None:
        if args.task is None and args.arch is None:
            sections += _sections_of_fairseq()
        sections = [section._replace(options=_with(section, args.search)) for section in sections]
        sections = [section for section in sections if section.options]
        if not sections:
            chosen = " and ".join(filter(None, (args.task, args.arch)))
            where = f" of {chosen}" if chosen else ""
            advice = "search without --task and --arch" if chosen else "try another word"
            raise UserError(f"no option{where} has {args.search} in its name or meaning; {advice}")
    shown = {"text": _as_text, "markdown": _as_markdown}[args.format]
    write_text(args.out or "-", "\n".join(shown(section) for section in sections))


def all_sections() -> List[Section]:
    """Return the options of all tasks, architectures, criteria and optimizers of this package.

    The first section has the options that all document tasks share; each further section belongs to
    one task, architecture, criterion or optimizer.
    """
    return list(_chosen(Namespace(task=None, arch=None)))


def _chosen(args: Namespace) -> Iterator[Section]:
    everything = args.task is None and args.arch is None
    if everything:
        common = _options(_beside(TranslationConfig, DocumentTranslationConfig))
        yield Section(EVERY_TASK, ABOUT_EVERY_TASK, common)
    if args.task is not None or everything:
        names = _ours(TASK_REGISTRY) if everything else [args.task]
        yield from (_of_task(name, alone=not everything) for name in names)
    if args.arch is not None or everything:
        names = _ours(MODEL_REGISTRY) if everything else [args.arch]
        yield from (_of_model(name) for name in names)
    if everything:
        for kind, registry, configs in (
            ("criterion", CRITERION_REGISTRY, CRITERION_DATACLASS_REGISTRY),
            ("optimizer", OPTIMIZER_REGISTRY, OPTIMIZER_DATACLASS_REGISTRY),
        ):
            for name in _ours(registry):
                options = _options(fields(configs[name]))
                yield Section(f"--{kind} {name}", _summary(registry[name]), options)


def _ours(registry: Dict[str, type]) -> List[str]:
    """Return the sorted names that this package has added to a fairseq registry.

    Args:
        registry: name -> class, such as all tasks.
    """
    return sorted(n for n, kind in registry.items() if kind.__module__.startswith("fairseq_docmt."))


def _of_task(name: str, alone: bool) -> Section:
    """Return the options that a task has and fairseq's translation task lacks.

    Args:
        name: name of the task.
        alone: True to include the options that all document tasks share; False to leave them out,
            because a section of their own shows them.

    Raises:
        UserError: this package has no such task.
    """
    ours = _ours(TASK_REGISTRY)
    if name not in ours:
        raise UserError(f"--task {name} is no document task; choose from {', '.join(ours)}")
    known = TranslationConfig if alone else DocumentTranslationConfig
    own = _options(_beside(known, TASK_DATACLASS_REGISTRY[name]))
    choices = "|".join(search.decoding for search in SEARCHES[name])
    own = [x._replace(name=f"{DECODING} {choices}") if DECODING in x.name else x for x in own]
    return Section(f"--task {name}", _summary(TASK_REGISTRY[name]), own)


def _beside(known: type, config: type) -> List[Field]:
    """Return the fields of the dataclass ``config`` that the dataclass ``known`` lacks."""
    names = {option.name for option in fields(known)}
    return [option for option in fields(config) if option.name not in names]


def _of_model(name: str) -> Section:
    variants = {arch: model for model in _ours(MODEL_REGISTRY) for arch in _variants(model)}
    if name not in variants:
        raise UserError(
            f"--arch {name} is no architecture of this package; choose from "
            f"{', '.join(sorted(variants))}"
        )
    model = variants[name]
    kind, others = MODEL_REGISTRY[model], [x for x in _variants(model) if x != name]
    known, base = set(), ""
    if issubclass(kind, TransformerModelBase):
        known, base = {flag for flag, *_ in options_of(TransformerConfig)}, "transformer"
    elif kind is not RNNSearchModel:
        known, base = {option.name for option in fields(RNNSearchConfig)}, "rnnsearch"
    own = [x for x in fields(MODEL_DATACLASS_REGISTRY[model]) if x.name not in known]
    defaults = with_defaults(Namespace(_name=name), kind.architecture)
    summary = _summary(kind)
    if base:
        summary += f" Besides, it has the options of {base}."
    if others:
        summary += f" With other sizes: {', '.join(others)}."
    return Section(f"--arch {name}", summary, _options(own, vars(defaults)))


def _variants(model: str) -> List[str]:
    return [model, *(arch for arch in ARCH_MODEL_INV_REGISTRY.get(model, []) if arch != model)]


def _sections_of_fairseq() -> Iterator[Section]:
    yield Section("--task translation", "", _options(fields(TranslationConfig)))
    known = {flag for flag, *_ in options_of(TransformerConfig)}
    own = [x for x in fields(MODEL_DATACLASS_REGISTRY[OF_TRANSFORMER]) if x.name in known]
    yield Section("--arch transformer", "", _options(own))
    for kind, configs in (
        ("criterion", CRITERION_DATACLASS_REGISTRY),
        ("optimizer", OPTIMIZER_DATACLASS_REGISTRY),
        ("lr-scheduler", LR_SCHEDULER_DATACLASS_REGISTRY),
    ):
        for name, config in sorted(configs.items()):
            if not config.__module__.startswith("fairseq_docmt."):
                yield Section(f"--{kind} {name}", "", _options(fields(config)))
    for group in fields(FairseqConfig):
        if is_dataclass(group.type):
            yield Section(f"every command, {group.name}", "", _options(fields(group.type)))


def _with(section: Section, word: str) -> List[Option]:
    found = word.lower().lstrip("-").replace("_", "-")
    return [
        option
        for option in section.options
        if found in option.name.lower() or word.lower() in option.meaning.lower()
    ]


def _summary(kind: type) -> str:
    """Return the first paragraph of the docstring of a class, in one line."""
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split())


def _options(own: Iterable[Field], defaults: Optional[Dict[str, Any]] = None) -> List[Option]:
    """Convert the fields of a dataclass to options, except for fields without a help text.

    Args:
        own: the fields.
        defaults: default values by field name, which take precedence over defaults of the fields.
    """
    defaults = defaults or {}
    return [
        Option(_named(x), _default(x, defaults.get(x.name)), " ".join(x.metadata["help"].split()))
        for x in own
        if x.metadata.get("help")
    ]


def _named(option: Field) -> str:
    kind = interpret_dc_type(option.type)
    if kind is bool or "bool" in str(kind):
        return flag(option.name)
    if hasattr(kind, "__members__"):
        return f"{flag(option.name)} {'|'.join(str(choice.value) for choice in kind)}"
    word = next((w for t, w in (("int", "N"), ("float", "X")) if t in str(kind)), "TEXT")
    return f"{flag(option.name)} {word}"


def _default(option: Field, completed) -> str:
    value = option.default if completed is None else completed
    if value is None or value is False or value == MISSING or str(value).startswith("${"):
        return ""
    return str(getattr(value, "value", value))


def _as_text(section: Section) -> str:
    lines = [section.title, *_wrapped(section.summary, 2)]
    for option in section.options:
        told = not option.default or "default" in option.meaning
        text = option.meaning if told else f"{option.meaning} (default: {option.default})"
        lines.append(f"  {option.name}")
        lines += _wrapped(text, 6)
    return "\n".join(lines) + "\n"


def _wrapped(text: str, indent: int) -> List[str]:
    space = " " * indent
    return textwrap.wrap(
        *(text, WIDTH), initial_indent=space, subsequent_indent=space, break_on_hyphens=False
    )


def _as_markdown(section: Section) -> str:
    lines = [f"## {section.title.lstrip('-')}", "", section.summary.replace("``", "`"), ""]
    if section.options:
        lines += ["| option | default | meaning |", "| --- | --- | --- |"]
    for row in section.options:
        name = row.name.replace("|", "\\|")
        meaning = row.meaning.replace("|", "\\|").replace("<", "\\<")
        lines.append(f"| `{name}` | {row.default} | {meaning} |")
    return "\n".join(lines) + "\n"
