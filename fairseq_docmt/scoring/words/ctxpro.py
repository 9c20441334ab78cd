r"""Measure accuracy on words whose translation needs context, from translations alone.

    fairseq-docmt ctxpro gender.opensubtitles.en-de.test.json \
        one=one.txt two=two.txt

A translation is correct if the tested sentence contains the expected word.  Sets are read as
published:

  ctxpro   Wicks and Post (2023): gender, formality, auxiliary, inflection, animacy (.json);
           the tested sentence is the last one of a translation
  genpro   ContraPro (Müller et al., 2018) and the set of Lopes et al. (2020), used for generated
           translations (.json), and the tables that the scripts of Post and Junczys-Dowmunt (2023)
           make (.tsv)

Words are compared as in the scripts of each set.  A system has one translation for each item: of
the sentence alone, or of its context and the sentence.  The tested sentence is the part after the
last --separator, or the last sentence that the package sentence-splitter finds (--last-sentence;
this is the default for ctxpro, with the language in the name of the set).
"""

import argparse
import json
import re
import string
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional

import numpy as np
from sacremoses import MosesTokenizer

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Documents, Lines, Output, read_input
from fairseq_docmt.readers.files import lines_of, numbers_first, read_text, write_text
from fairseq_docmt.readers.record_files import parsed_json
from fairseq_docmt.scoring import _intervals, _tables
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.contrastive.items import field
from fairseq_docmt.scoring.texts import translations

LABELS = ("phenomenon", "distance")
#: Text between the sentences of a translation, in the sets of genpro.
SEPARATOR = "<eos>"


class Target(NamedTuple):
    """An item of a test set: a word that the translation of a sentence should contain.

    Attributes:
        expected: the expected word or words.
        labels: properties by which results are grouped, such as ``{"distance": "2"}``.
        place: index of the tested sentence among the sentences of the translation; -1 for the last.
    """

    expected: str
    labels: Dict[str, str]
    place: int = -1


class TargetSet(NamedTuple):
    """A test set of words that translations should contain.

    Attributes:
        kind: ``ctxpro`` or ``genpro``, which decides how words are compared.
        items: the words, and in which sentence each is expected.
    """

    kind: str
    items: List[Target]


# ---- test sets ---------------------------------------------------------------------------------


def read_targets(path: str) -> TargetSet:
    """Return the items of a ctxpro or genpro test set, read from any of its formats.

    Raises:
        UserError: the file is missing or in an unknown format, or an item is malformed.
    """
    text = read_text(path)
    if path.endswith(".tsv"):
        return TargetSet("genpro", _table(text, path))
    entries = parsed_json(text, path)
    first = entries[0] if isinstance(entries, list) and entries else None
    for key, kind, read in (("expected", "ctxpro", _ctxpro), ("errors", "genpro", _contrapro)):
        if isinstance(first, dict) and key in first:
            named = (f"{path}: item {number}" for number in range(1, len(entries) + 1))
            return TargetSet(kind, [read(*each) for each in zip(named, entries)])
    raise UserError(
        f"{path} is not in a known format: ctxpro (a list of entries with expected), ContraPro "
        "(with errors) or a table of genpro (.tsv)"
    )


def _ctxpro(where: str, entry) -> Target:
    labels = {"phenomenon": str(field(where, entry, "rule"))}
    if entry.get("ante distance") is not None:
        labels["distance"] = str(entry["ante distance"])
    return _target(where, field(where, entry, "expected"), labels)


def _contrapro(where: str, entry) -> Target:
    pronoun = field(where, entry, "ref pronoun")
    distance = str(field(where, entry, "ante distance"))
    return _target(where, pronoun, {"phenomenon": str(pronoun).lower(), "distance": distance})


def _target(where: str, expected, labels: Dict[str, str], place: int = -1) -> Target:
    if not isinstance(expected, str) or not expected.strip():
        raise UserError(f"{where}: the expected word must be text, not {expected!r}")
    return Target(expected, labels, place)


def _table(text: str, path: str) -> List[Target]:
    """Read the items of a table made by the scripts of Post and Junczys-Dowmunt (2023).

    The columns, separated by tabs, are: index of the tested sentence (the last sentence is tested
    if this column is missing), distance of the antecedent, kind of the item (must be ``correct``),
    expected pronoun, source and target.

    Args:
        text: content of the file.
        path: the file, for messages.

    Raises:
        UserError: a row is malformed, or the table is empty.
    """
    items = []
    for number, line in enumerate(lines_of(text), start=1):
        where, columns = f"{path}: line {number}", line.split("\t")
        if len(columns) not in (5, 6):
            raise UserError(f"{where} has {len(columns)} columns; genpro has 5 or 6")
        place = columns[0] if len(columns) == 6 else "-1"
        distance, kind, pronoun = columns[len(columns) - 5 : len(columns) - 2]
        if kind != "correct":
            raise UserError(f"{where} is not a correct item; make the table with --correct-only")
        if not re.fullmatch(r"-?\d{1,18}", place) or not distance.isdecimal():
            raise UserError(f"{where}: index and distance must be numbers")
        labels = {"phenomenon": pronoun.lower(), "distance": distance}
        items.append(_target(where, pronoun, labels, int(place)))
    if not items:
        raise UserError(f"{path} has no items")
    return items


# ---- judgement ---------------------------------------------------------------------------------


def has_word(kind: str) -> Callable[[str, str], bool]:
    """Return a function that tells whether a sentence contains an expected word.

    Args:
        kind: how words are found, as in the scripts of the set.  For ``ctxpro``, ASCII punctuation
            is removed, and the word must stand between spaces.  For ``genpro``, the word must be a
            token of the Moses tokenizer for German.

    Returns:
        Function of the sentence and the word, which ignores case.
    """
    if kind == "genpro":
        tokenizer = MosesTokenizer(lang="de")
        # Abbreviations depend on case, so the text is lower-cased after tokenisation.
        return lambda text, word: (
            word.lower() in (tokenizer.tokenize(text, return_str=True).lower().split())
        )
    punctuation = str.maketrans("", "", string.punctuation)
    return lambda text, word: f" {word.lower()} " in f" {text.lower().translate(punctuation)} "


def last_sentences(language: str) -> Callable[[str], str]:
    """Return a function that finds the last sentence of a text, as in the code of ctxpro.

    Args:
        language: code of the language of the text.

    Raises:
        UserError: the package sentence_splitter is missing or does not know the language.
    """
    try:
        from sentence_splitter import SentenceSplitter, SentenceSplitterException
    except ImportError:
        raise UserError(
            "--last-sentence needs the package sentence-splitter; install it with `pip install "
            "sentence-splitter`"
        ) from None
    try:
        splitter = SentenceSplitter(language=language)
    except SentenceSplitterException:
        raise UserError(f"--last-sentence: sentence-splitter has no language {language}") from None
    return lambda text: (splitter.split(text) or [text])[-1]


def judge(
    targets: TargetSet,
    lines: List[str],
    separator: str = SEPARATOR,
    last: Optional[Callable[[str], str]] = None,
) -> List[bool]:
    """Return, for each item, whether its translation contains the expected word.

    Args:
        targets: test set.
        lines: (items,) translations, including the translated context if there is one.
        separator: text between the sentences of a translation.
        last: function that finds the tested sentence in a translation; None to split translations
            at ``separator`` instead.

    Raises:
        UserError: the sentences found by the separator are empty in all translations.
    """
    right = has_word(targets.kind)
    texts = []
    for item, line in zip(targets.items, lines):
        sentences = line.split(separator)
        if last is not None:
            text = last(line)
        elif -len(sentences) <= item.place < len(sentences):
            text = sentences[item.place].strip()
        else:  # fewer sentences than the source
            text = ""
        texts.append(text)
    if last is None and not any(texts):
        raise UserError(
            f"split at {separator!r}, no translation has text in the sentence to test; give the "
            "text between sentences as --separator"
        )
    return [right(text, item.expected) for item, text in zip(targets.items, texts)]


# ---- command -----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt ctxpro``."""
    parser.add_argument(
        "set", metavar="SET", help="test set as published: .json, or .tsv of genpro"
    )
    parser.add_argument("systems", nargs="+", metavar="NAME=FILE", help="one line for each item")
    parser.add_argument(
        "--separator",
        metavar="TEXT",
        help=f"between sentences of a translation; default for genpro: {SEPARATOR}",
    )
    parser.add_argument(
        "--last-sentence",
        metavar="LANGUAGE",
        help="test the last sentence of each translation, found by the package sentence-splitter",
    )
    parser.add_argument("--items", metavar="FILE", help="write the verdict of each item, .jsonl")
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt ctxpro``: judge the translations, and print or write the accuracies."""
    targets = read_targets(args.set)
    language = language_of(args, targets.kind)
    last = last_sentences(language) if language else None
    separator = args.separator or SEPARATOR
    between = None if language else separator
    verdicts = {
        name: judge(
            targets, read_system(path, args.set, len(targets.items), between, name), separator, last
        )
        for name, path in translations.named_files(args.systems).items()
    }
    figures = {name: accuracy(targets, right) for name, right in verdicts.items()}
    sentence = f"last:{language}" if language else f"separator:{separator}"
    signature = f"set:{Path(args.set).stem}|items:{len(targets.items)}|{targets.kind}|{sentence}"
    if args.items:
        write_text(args.items, "".join(_item_lines(targets, verdicts)))
    signature = f"{signature}|{_intervals.PROCEDURE}"
    counts = {
        name: (np.array(right, dtype=int), np.ones(len(right), dtype=int))
        for name, right in verdicts.items()
    }
    intervals = _intervals.compare({"all": counts})
    tables = [_table_of(figures), _intervals.table_of(intervals, "accuracy", "items")]
    results = {"signature": signature, "systems": figures}
    results["intervals"] = _intervals.as_json(intervals)["all"]
    _tables.show(args, tables, [signature], results)


def language_of(args: argparse.Namespace, kind: str) -> Optional[str]:
    """Choose the language for splitting translations into sentences.

    It is given by ``--last-sentence`` or, for ctxpro without ``--separator``, by the name of the
    set.

    Args:
        args: options of the command line.
        kind: kind of the test set, ``ctxpro`` or ``genpro``.

    Returns:
        Code of the language; None to split translations at a separator instead.

    Raises:
        UserError: the separator is empty or given together with a language, or the language of a
            ctxpro set is neither given nor in its name.
    """
    if args.separator is not None and not args.separator:
        raise UserError("--separator is empty; give the text between sentences, such as <eos>")
    if args.separator and args.last_sentence:
        raise UserError("give --separator or --last-sentence, not both: each finds the sentence")
    if args.last_sentence or args.separator or kind != "ctxpro":
        return args.last_sentence
    pairs = re.findall(r"(?=\b[a-z]{2}-([a-z]{2})\b)", Path(args.set).name)
    if not pairs:
        raise UserError(
            f"{args.set}: ctxpro counts words in the last sentence, and the name of the file shows "
            "no language; give --last-sentence LANGUAGE, or --separator TEXT"
        )
    return pairs[-1]


def read_system(
    path: str, set_name: str, items: int, between: Optional[str], name: Optional[str] = None
) -> List[str]:
    """Read one system's translation of each item of a test set.

    Documents whose ids count from 0 or 1 are put into the order of these numbers, as are the
    translations in an output of ``fairseq-generate``.

    Args:
        path: file of the system.
        set_name: file of the test set, for messages.
        items: number of items.
        between: text to put between the segments of a document that translates one item; None to
            return its last segment alone.
        name: name of the system, to find its text in files with several systems.

    Raises:
        UserError: the number of translations is not the number of items.
    """
    text = read_input(path, "system", name)
    if isinstance(text, Documents):
        in_order = sorted(text.documents, key=lambda document: numbers_first(document.id))
        ids = [document.id for document in in_order]
        counted = [[str(first + n) for n in range(len(ids))] for first in (0, 1)]
        each = in_order if ids in counted else text.documents
        documents = [
            "".join(document.segments[-1:]) if between is None else between.join(document.segments)
            for document in each
        ]
        segments = [segment for document in each for segment in document.segments]
        text = Lines(path, documents if len(documents) == items else segments)
    is_output = isinstance(text, Output)
    # The numbers of an output count the blank lines between documents of one item.
    lines = [line for _, line in sorted(text.hypotheses.items())] if is_output else text.lines
    if len(lines) != items:
        count = f"{len(lines)} {'translations' if is_output else 'lines'}"
        raise UserError(
            f"{path} has {count}, but {set_name} has {items} items; it needs one for each"
        )
    return lines


def accuracy(targets: TargetSet, right: List[bool]) -> dict:
    """Compute the accuracy over all items and for each value of each label.

    Args:
        targets: test set.
        right: (items,) whether the translation of each item is correct.

    Returns:
        Dictionary for JSON.  ``all`` holds the number of items, the number of correct translations
        and the accuracy.  ``by label`` holds these three figures for each value of each label
        (label -> value -> figures).
    """
    groups: Dict[str, Dict[str, List[bool]]] = {label: {} for label in LABELS}
    for item, verdict in zip(targets.items, right):
        for label, value in item.labels.items():
            groups[label].setdefault(value, []).append(verdict)
    return {
        "all": _counts(right),
        "by label": {
            label: {value: _counts(values[value]) for value in sorted(values, key=numbers_first)}
            for label, values in groups.items()
            if values
        },
    }


def _counts(right: List[bool]) -> dict:
    return {"items": len(right), "correct": sum(right), "accuracy": sum(right) / len(right)}


def _table_of(figures: Dict[str, dict]) -> Table:
    first = next(iter(figures.values()))
    parts = [("all", lambda figure: figure["all"])]
    for label, values in first["by label"].items():
        for value in values:
            parts.append((f"{label} {value}", lambda f, a=label, b=value: f["by label"][a][b]))
    rows = [
        [
            name,
            str(part(first)["items"]),
            *(f"{100 * part(figure)['accuracy']:.1f}" for figure in figures.values()),
        ]
        for name, part in parts
    ]
    return Table("Accuracy, %", ["part", "items", *figures], rows)


def _item_lines(targets: TargetSet, verdicts: Dict[str, List[bool]]):
    for number, item in enumerate(targets.items):
        right = {name: found[number] for name, found in verdicts.items()}
        entry = {"item": number + 1, "expected": item.expected, "labels": item.labels}
        yield json.dumps({**entry, "correct": right}, ensure_ascii=False) + "\n"
