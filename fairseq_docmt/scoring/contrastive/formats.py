"""Readers of published contrastive test sets.

* Consistency sets of Voita et al. (2019), English-Russian: ``deixis_test.json`` and others.
* ContraPro of Müller et al. (2018), English-German pronouns: ``contrapro.json``.  The file contains
  no context.  The context is taken from the OpenSubtitles documents that ContraPro's scripts
  extract.
* The set of Lopes et al. (2020), English-French pronouns: ``testset-en-fr.json``.  The format is
  that of ContraPro, except that lines are counted from 0 and documents are named without a suffix.
  The references are tokenized, so the untokenized references are taken from the documents as well.
* The sets of Bawden et al. (2018), English-French: ``anaphora.json``, ``lexical-choice.json``.
"""

import os
import re
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import read_text, whole_number
from fairseq_docmt.readers.record_files import parsed_json
from fairseq_docmt.scoring.contrastive.items import Item, checked_item, field, read_json_lines

#: Separator between the sentences of a text of Voita et al.
VOITA_SEPARATOR = re.compile(r"(?<!\S)_eos(?!\S)")

#: Larger distances of antecedents are grouped as ``>3``, as in the script of ContraPro.
LARGEST_DISTANCE = 3


def read_set(
    path: str, context: Optional[int] = None, documents: Optional[str] = None, after: int = 0
) -> List[Item]:
    """Read the items of a contrastive test set in any of the supported formats.

    Args:
        path: JSON file as published, or a file with the extension ``.jsonl`` in the format of
            :mod:`fairseq_docmt.scoring.contrastive.items`.
        context: maximum number of context sentences before the current one.  None keeps all context
            of the set; ContraPro and the set of Lopes et al. (2020) need a number.
        documents: folder with the documents from which the context of ContraPro and of the set of
            Lopes et al. (2020) is taken.
        after: maximum number of context sentences after the current one.

    Raises:
        UserError: the file does not exist, has no items, has an unknown format or lacks a key; a
            number of context sentences is negative; or ``context`` or ``documents`` is None, but
            the set has no context of its own.
    """
    file = Path(path)
    if not file.is_file():
        raise UserError(f"test set {path} not found")
    if context is not None and context < 0:
        raise UserError(f"--context must be 0 or more sentences, not {context}")
    if after < 0:
        raise UserError(f"--context-after must be 0 or more sentences, not {after}")
    items = _read(file, context, documents, after)
    if not items:
        raise UserError(f"{path} has no items; check the download")
    return [item.with_context(context, after) for item in items]


def _read(file: Path, context, documents, after: int) -> List[Item]:
    if file.suffix == ".jsonl":
        return read_json_lines(file)
    try:
        entries = parsed_json(read_text(str(file)), str(file))
    except UserError as error:
        raise UserError(f"{error}; JSON lines must be in a file that ends in .jsonl") from None
    first = next(iter(entries), None) if isinstance(entries, (list, dict)) else None
    if isinstance(entries, list) and isinstance(first, dict):
        if "dst" in first:
            return voita(str(file), file.stem, entries)
        if "errors" in first and "ante trg segment" in first:
            return lopes(str(file), entries, context, documents, after)
        if "errors" in first:
            return contrapro(str(file), entries, context, documents, after)
    elif isinstance(entries, dict) and isinstance(entries.get(first), dict):
        if "examples" in entries[first] or "trg" in entries[first]:
            return bawden(str(file), entries)
    raise UserError(
        f"{file} is not in a known format: Voita et al. (a list of entries with dst), ContraPro "
        "and Lopes et al. (with errors), Bawden et al. (with trg or examples); convert it to "
        "JSON lines"
    )


# ---- Voita et al. ------------------------------------------------------------------------------


def voita(name: str, stem: str, entries: list) -> List[Item]:
    """Return the items of a consistency set of Voita et al. (2019).

    Args:
        name: name of the file in error messages.
        stem: name of the file without its extension, such as ``deixis_test``.  It becomes the label
            ``phenomenon``, without a final ``_dev`` or ``_test``.
        entries: content of the JSON file.
    """
    phenomenon = re.sub("_(dev|test)$", "", stem)
    items = []
    for number, entry in enumerate(entries, start=1):
        where = f"{name}: item {number}"
        source, targets = field(where, entry, "src"), field(where, entry, "dst")
        if not isinstance(targets, list):
            raise UserError(f'{where}: "dst" must be a list of texts')
        distance = field(where, entry, "ctx_dist")
        items.append(
            checked_item(
                where,
                _voita_sentences(where, source),
                [_voita_sentences(where, target) for target in targets],
                field(where, entry, "true_ind"),
                {"phenomenon": phenomenon, "distance": distance},
            )
        )
    return items


def _voita_sentences(where: str, text) -> List[str]:
    sentences = VOITA_SEPARATOR.split(text) if isinstance(text, str) else []
    if len(sentences) < 2:
        raise UserError(f"{where} has no context: no _eos between sentences in {str(text)[:40]!r}")
    return [re.sub("^ | $", "", sentence) for sentence in sentences]


# ---- ContraPro ---------------------------------------------------------------------------------


def contrapro(
    name: str, entries: list, context: Optional[int], documents, after: int = 0
) -> List[Item]:
    """Return the items of ContraPro (Müller et al., 2018), with the reference as first candidate.

    The items get the labels by which ContraPro's script reports results: the pair of pronouns, the
    distance of the antecedent in sentences, and whether the antecedent is in the same segment.

    ContraPro's scripts extract only the context before a segment.  The context after it is taken
    from the same documents, as in Herold and Ney (2023, appendix A.2).

    Args:
        name: name of the file in error messages.
        entries: content of the JSON file.
        context: number of context sentences before the current one; must not be None.
        documents: folder with the OpenSubtitles documents; may be None if both ``context`` and
            ``after`` are 0.
        after: number of context sentences after the current one.

    Raises:
        UserError: ``context`` or ``documents`` is missing, or the documents do not match the items.
    """
    if context is None or (context + after > 0 and documents is None):
        raise UserError(
            f"{name} does not include context; give --context with the number of previous "
            "sentences and --documents with the folder to take them from, or --context 0"
        )
    library = _Documents(documents) if context + after > 0 else None
    items = []
    for number, entry in enumerate(entries, start=1):
        where = f"{name}: item {number}"
        errors = _errors(where, entry)
        current = field(where, entry, "src segment")
        targets = [field(where, entry, "ref segment")]
        targets += [field(where, error, "contrastive") for error in errors]
        before: List[Tuple[str, str]] = []
        following: List[Tuple[str, str]] = []
        if library is not None:
            place = (field(where, entry, "document id"), field(where, entry, "segment id"))
            before, found, following = library.around(where, *place, context, after)
            if _letters(found[0]) != _letters(current):
                raise UserError(
                    f"{where}: line {place[1]} of {place[0]} is {found[0][:40]!r}, not the source "
                    f"of the item; {documents} must hold the documents that the set was made from"
                )
        documents_of = [[*before, (current, target), *following] for target in targets]
        source = [pair[0] for pair in documents_of[0]]
        candidates = [[pair[1] for pair in document] for document in documents_of]
        labels = _contrapro_labels(where, entry)
        items.append(checked_item(where, source, candidates, 0, labels, len(following)))
    return items


def _errors(where: str, entry: dict) -> list:
    """Return the list ``errors`` of a ContraPro item: its contrastive (wrong) translations.

    Raises:
        UserError: the item has no list ``errors``.
    """
    errors = field(where, entry, "errors")
    if not isinstance(errors, list):
        raise UserError(f'{where}: "errors" must be a list')
    return errors


def _letters(text) -> str:
    return "".join(str(text).split())


def lopes(
    name: str, entries: list, context: Optional[int], documents, after: int = 0
) -> List[Item]:
    """Return the items of Lopes et al. (2020), with the reference as first candidate.

    Source, reference and context are read from the documents, as in the scripts of the set.

    Args:
        name: name of the file in error messages.
        entries: content of the JSON file.
        context: number of context sentences before the current one; must not be None.
        documents: folder with the OpenSubtitles documents; must not be None.
        after: number of context sentences after the current one.

    Raises:
        UserError: ``context`` or ``documents`` is missing, or the documents do not match the items.
    """
    if context is None or documents is None:
        raise UserError(
            f"{name} has tokenized references and no context; give --context with the number of "
            "previous sentences and --documents with the folder that the set was made from"
        )
    library = _Documents(documents)
    items = []
    for number, entry in enumerate(entries, start=1):
        where = f"{name}: item {number}"
        errors = _errors(where, entry)
        document, line = field(where, entry, "document id"), field(where, entry, "segment id")
        if not isinstance(line, int):
            raise UserError(f'{where}: "segment id" must be a number, not {line!r}')
        file = f"{str(document).partition('.')[0]}.fr"
        before, current, following = library.around(where, file, line + 1, context, after)
        wanted = field(where, entry, "src segment"), field(where, entry, "ref segment")
        if not any(_letters(a) == _letters(b) for a, b in zip(current, wanted)):
            raise UserError(
                f"{where}: line {line + 1} of {file} is {current[0][:40]!r}, not the source of "
                f"the item; {documents} must hold the documents that the set was made from"
            )
        targets = [current[1], *(field(where, error, "contrastive") for error in errors)]
        source = [pair[0] for pair in (*before, current, *following)]
        sides = [pair[1] for pair in before], [pair[1] for pair in following]
        candidates = [[*sides[0], target, *sides[1]] for target in targets]
        labels = _contrapro_labels(where, entry)
        items.append(checked_item(where, source, candidates, 0, labels, len(following)))
    return items


def takes_documents(path: str, items: List[Item]) -> bool:
    """Return whether a set is in a format that takes its context from ``--documents``.

    Args:
        path: file of the set.
        items: its items.
    """
    # JSON lines, which have the context, keep the labels of ContraPro.
    return not path.endswith(".jsonl") and "intrasegmental" in items[0].labels


def _contrapro_labels(where: str, entry: dict) -> dict:
    distance = field(where, entry, "ante distance")
    if not isinstance(distance, int):
        raise UserError(f'{where}: "ante distance" must be a number, not {distance!r}')
    pronouns = [str(field(where, entry, f"{side} pronoun")).lower() for side in ("src", "ref")]
    return {
        "phenomenon": "pronoun",
        "distance": f">{LARGEST_DISTANCE}" if distance > LARGEST_DISTANCE else distance,
        "pronoun": ":".join(pronouns),
        "intrasegmental": field(where, entry, "intrasegmental"),
    }


class _Documents:
    """OpenSubtitles documents, from which the context of test items is read.

    Each document is a pair of line-aligned files, such as ``YEAR/NAME.en`` and ``YEAR/NAME.de``, in
    a sub-folder of the given folder.  It is looked up by the name of its target file.  The source
    file is the only other file in the sub-folder with the same name and another suffix.

    Args:
        folder: folder that contains the sub-folders.

    Raises:
        UserError: the folder does not exist.
    """

    def __init__(self, folder: str):
        if not os.path.isdir(folder):
            raise UserError(f"--documents {folder} not found; give the folder of the documents")
        self.folder = folder
        self.files: Dict[str, Path] = {p.name: p for p in sorted(Path(folder).glob("*/*"))}
        self.read: Dict[str, List[Tuple[str, str]]] = {}

    def around(
        self, where: str, name, line, before: int, after: int
    ) -> Tuple[List[Tuple[str, str]], Tuple[str, str], List[Tuple[str, str]]]:
        """Return the sentence pairs before a line, the pair on that line, and the pairs after it.

        Args:
            where: name of the item in error messages.
            name: name of the target file, such as ``NAME.de``.
            line: line number, from 1.
            before: number of lines to read before the line.
            after: number of lines to read after the line.

        Returns:
            A list of pairs, a pair, and a list of pairs.  Each pair is a source and a target
            sentence.  The lists leave out pairs in which the source or the target is empty.

        Raises:
            UserError: the folder lacks the document or the line, or the document is not a pair of
                files with the same number of lines.
        """
        pairs = self._pairs(where, str(name))
        number = whole_number(str(line))
        if number is None or not 1 <= number <= len(pairs):
            raise UserError(
                f"{where}: {name} has no line {line}; --documents must be from the test set"
            )
        lines = slice(max(number - 1 - before, 0), number - 1), slice(number, number + after)
        context = [[pair for pair in pairs[part] if all(pair)] for part in lines]
        return context[0], pairs[number - 1], context[1]

    def _pairs(self, where: str, name: str) -> List[Tuple[str, str]]:
        if name not in self.read:
            if name not in self.files:
                raise UserError(
                    f"{where}: document {name} is not in {self.folder}; --documents must be those "
                    "of the test set"
                )
            target = self.files[name]
            others = [p for p in target.parent.glob(f"{target.stem}.*") if p != target]
            if len(others) != 1:
                raise UserError(
                    f"{target} must have exactly one source file beside it, not {len(others)}"
                )
            sides = [
                [line.strip() for line in read_text(str(side)).split("\n")]
                for side in (others[0], target)
            ]
            if len(sides[0]) != len(sides[1]):
                raise UserError(
                    f"{others[0]} and {target} have different numbers of lines; extract the "
                    "documents again"
                )
            self.read[name] = list(zip(*sides))
        return self.read[name]


# ---- Bawden et al. -----------------------------------------------------------------------------


def bawden(name: str, entries: dict) -> List[Item]:
    """Return the items of a test set by Bawden et al. (2018): anaphora or lexical choice.

    Each item has one previous sentence as context.

    Args:
        name: name of the file in error messages.
        entries: content of the JSON file.
    """
    items = []
    for block, entry in entries.items():
        where = f"{name}: example {block}"
        if isinstance(entry, dict) and "examples" in entry:
            for example in _list(where, entry, "examples"):
                labels = {"phenomenon": entry.get("type", "lexical choice")}
                pair = field(where, example, "trg")
                items.append(_bawden_item(where, example, pair, "correct", labels))
            continue
        for pair in _list(where, entry, "trg"):
            kind = "semi-correct" if "semi-correct" in pair else "correct"
            labels = {"phenomenon": "anaphora", "translation of the context": kind}
            if "type" in pair:
                labels["pronoun"] = pair["type"]
            items.append(_bawden_item(where, entry, pair, kind, labels))
    return items


def _list(where: str, entry, name: str) -> List[dict]:
    """Return ``entry[name]`` after checking that it is a list of dictionaries.

    Args:
        where: name of the entry in error messages.
        entry: any value read from JSON.
        name: key.

    Raises:
        UserError: the entry has no such key, or its value is not a list of dictionaries.
    """
    values = field(where, entry, name)
    if not isinstance(values, list):
        raise UserError(f'{where}: "{name}" must be a list, not {str(values)[:40]!r}')
    for value in values:
        if not isinstance(value, dict):
            raise UserError(f'{where}: "{name}" must have dictionaries, not {str(value)[:40]!r}')
    return values


def _bawden_item(where: str, example: dict, pair: dict, right: str, labels: dict) -> Item:
    candidates = [field(where, pair, right), field(where, pair, "incorrect")]
    source = field(where, example, "src")
    return checked_item(where, source, candidates, 0, {**labels, "distance": 1})
