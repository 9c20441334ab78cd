"""Candidate translations of each sentence of a test set: n-best lists, or outputs of systems."""

import argparse
import math
import os
from collections import defaultdict
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import (
    Output,
    OutputLine,
    output_lines,
    read_docids,
    read_input,
    record_files,
    records,
    with_selection,
)
from fairseq_docmt.readers import add_argument as add_format_argument
from fairseq_docmt.readers.files import read_text, refuse_long, write_text
from fairseq_docmt.scoring.corpus.metrics import choose_tokenizer
from fairseq_docmt.scoring.texts import convert, translations
from fairseq_docmt.scoring.texts.checks import unrelated_note
from fairseq_docmt.scoring.texts.layout import Layout, Mismatch, documents_of, layout_of
from fairseq_docmt.translate.formats import HYPOTHESIS

#: Fields with the translations of a segment, as `fairseq-docmt translate --nbest` writes them.
LIST_FIELDS = ("nbest", "candidates", "hypotheses", "translations")
_PLACE = "place of the record"


class Candidates(NamedTuple):
    """Candidate translations of the sentences of a test set.

    Attributes:
        layout: documents and sentences of the test set.
        texts: for each sentence, its candidates.
        scores: for each sentence, the model's scores of its candidates, from the H- lines of
            fairseq-generate or the field ``score`` in JSON; None if unknown.
        source: source text of each sentence; None if unknown.
        log_probabilities: for each sentence, the natural log-probabilities of its candidates, from
            the P- lines of fairseq-generate; None if unknown.
        notes: notes for the user on how the texts were read.
        language: target language; None if unknown.
        places: for each sentence, the place of its candidates in a file, for messages; empty if
            they come from several files.
    """

    layout: Layout
    texts: List[List[str]]
    scores: Optional[List[List[float]]]
    source: Optional[List[str]]
    log_probabilities: Optional[List[List[float]]] = None
    notes: Sequence[str] = ()
    language: Optional[str] = None
    places: Sequence[str] = ()

    def chosen(self, choice: Sequence[int]) -> List[str]:
        """Return the chosen translation of each sentence.

        Args:
            choice: (sentences,) index of the chosen candidate of each sentence.
        """
        return [texts[number] for texts, number in zip(self.texts, choice)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for candidates and output, shared by ``mbr`` and ``rerank``."""
    parser.add_argument(
        "candidates",
        nargs="+",
        metavar="FILE",
        help="output of fairseq-generate --nbest, JSON with a list of translations for each "
        "segment, or two or more NAME=FILE",
    )
    add_format_argument(parser)
    parser.add_argument("--source", metavar="FILE", help="source: says where documents end")
    parser.add_argument(
        "--docids", metavar="FILE", help="document of each line, for texts without blank lines"
    )
    parser.add_argument("--to", choices=convert.FORMATS, default="text", help="default: text")
    parser.add_argument("--out", metavar="FILE", required=True, type=_file, help="file to write")


def _file(path: str) -> str:
    if path == "-":
        raise argparse.ArgumentTypeError("give a file; standard output has the messages")
    return path


def from_arguments(args: argparse.Namespace) -> Candidates:
    """Read the candidates from the files named on the command line.

    They come from one file with n-best lists, or from two or more files with one translation of
    each sentence.

    Raises:
        UserError: there is only one translation of each sentence, nothing says where documents end,
            or a text does not match the source.
    """
    if not (args.source or args.docids):
        raise UserError("candidates need --source or --docids, which say where documents end")
    plain = args.input_format == "text"
    if len(args.candidates) == 1:
        name, equals, path = args.candidates[0].partition("=")
        if equals and not os.path.exists(args.candidates[0]) and os.path.exists(path):
            raise UserError(f"{name} is alone; give two or more translations as NAME=FILE")
        return read_nbest(args.candidates[0], args.source, args.docids, plain)
    if args.source is None:
        raise UserError(
            "candidates of several systems need --source, which says where documents end"
        )
    layout, source = _test_set(args.source, args.docids, plain)
    systems, texts, notes = [], [], []
    for name, path in translations.named_files(args.candidates).items():
        text = read_input(path, "system", name, plain)
        texts.append(text)
        try:
            systems.append(layout.sentences(text))
        except Mismatch as mismatch:
            raise UserError(
                f"{mismatch}; align it before with `convert --reference FILE --align LANGUAGE`"
            ) from None
        notes += layout.notes(name, text)
    rows = [list(row) for row in zip(*systems)]
    language = translations.language_of(texts)
    return Candidates(layout, rows, None, source, notes=notes, language=language)


def tokenizer_for(
    args: argparse.Namespace, candidates: Candidates, lines: Sequence[str]
) -> Optional[str]:
    """Choose the tokenizer of BLEU, and print a note if the choice needs an explanation.

    Args:
        args: options of the command line, of which ``tokenize`` is read.
        candidates: candidates of all sentences; their language may determine the tokenizer.
        lines: target text, to check whether it is written without spaces.

    Returns:
        Name of sacreBLEU's tokenizer; None for the default, 13a.
    """
    tokenizer, note = choose_tokenizer(args.tokenize, candidates.language, lines)
    if note:
        print(note)
    return tokenizer


def _test_set(
    source: Optional[str], docids: Optional[str], plain: bool
) -> Tuple[Layout, Optional[List[str]]]:
    """Return the documents and segments of the test set, and the sentences of its source.

    Args:
        source: file of the source.  If it is None, the document ids alone define the documents, and
            None is returned for the sentences.
        docids: file with a document id for each line; None if blank lines separate documents.
        plain: whether to read the source as plain text, whatever its content looks like.
    """
    text = read_input(source, "source", plain=plain) if source else None
    layout = layout_of(text, read_docids(docids) if docids else None)
    return layout, layout.sentences(text) if text else None


def read_nbest(
    path: str, source: Optional[str], docids: Optional[str] = None, plain: bool = False
) -> Candidates:
    """Read n-best lists from the output of ``fairseq-generate --nbest``, or from JSON.

    From the output of fairseq-generate, detokenized translations (D- lines) are read.  If there are
    none, H- lines are read.

    Args:
        path: file, or ``FILE#FIELD`` to name the JSON field with the list of translations.
        source: file of the source, which defines the documents; None to use the document ids alone.
        docids: file with a document id for each line; None if blank lines separate documents.
        plain: whether to read the file as output of fairseq-generate and the source as plain
            text, whatever their content looks like.

    Raises:
        UserError: the file has no n-best lists, or lacks sentences or lines of a candidate.
    """
    path, chosen = with_selection(path)
    output = read_text(path)
    given = record_files.json_of(output, path) if output.strip() and not plain else None
    if given is not None:
        return _read_lists([*given], path, chosen, *_test_set(source, docids, plain))
    lines: Dict[str, Dict[int, List[str]]] = {"D": defaultdict(list), "H": defaultdict(list)}
    scores: Dict[int, List[float]] = defaultdict(list)
    log_probabilities: Dict[int, List[float]] = defaultdict(list)
    for line in output_lines(output, path):
        if line.kind in lines:
            lines[line.kind][line.number].append(line.text)
        if line.kind == "H":
            scores[line.number].append(line.score)
        if line.kind == "P":
            log_probabilities[line.number].append(_sum_of(line))
    found = lines["D"] or lines["H"]
    _refuse_single(path, found.values(), "run fairseq-generate")
    layout, source_sentences = _test_set(source, docids, plain)
    refuse_long(path, (text for texts in found.values() for text in texts))
    joined = {row: "".join(texts) for row, texts in found.items()}
    rows = layout.numbers_of(Output(path, joined, {}))

    def complete(values: Dict[int, List[float]]) -> Optional[List[List[float]]]:
        return [values[row] for row in rows] if values else None

    return Candidates(
        layout,
        [found[row] for row in rows],
        complete(scores),
        source_sentences,
        complete(log_probabilities),
        places=[f"{path}: H-{row}" for row in rows],
    )


def _sum_of(line: OutputLine) -> float:
    """Return the natural log-probability of a hypothesis: the sum over the tokens of a P- line."""
    try:
        values = [float(value) for value in line.text.split()]
    except ValueError:
        values = []
    if not values:
        raise UserError(
            f"{line.where}: P-{line.number} needs the log-probabilities of tokens, not "
            f"{line.text[:40]!r}; give the output as fairseq-generate writes it"
        )
    return sum(values) * math.log(2)  # fairseq-generate prints logarithms to base 2


def _refuse_single(path: str, lists: Iterable[list], program: str) -> None:
    """Raise a UserError if no sentence has several candidates."""
    if max(map(len, lists), default=0) < 2:
        raise UserError(
            f"{path} has no n-best lists; {program} with --nbest 2 or more, or give several "
            "translations as NAME=FILE"
        )


def _read_lists(
    given: List[Tuple[str, dict]],
    path: str,
    field: Optional[str],
    layout: Layout,
    source: Optional[List[str]],
) -> Candidates:
    """Return the candidates in JSON records, each of which lists the translations of one segment.

    Args:
        given: for each record, its location in the file (for messages) and its fields.  The list of
            translations holds strings, or objects with ``text`` and optionally ``score``.
        path: the file, for messages.
        field: field with the list; None for the first of ``LIST_FIELDS`` that the record has.
        layout: documents and segments of the test set.
        source: (segments,) source; None if unknown.

    Raises:
        UserError: a record has no list, or a segment of the test set is missing.
    """
    names = [field] if field else LIST_FIELDS
    has_lists = any(isinstance(record.get(name), list) for _, record in given for name in names)
    lists: List[List[str]] = []
    scores: List[Optional[List[float]]] = []
    numbered, origins = [], []
    for where, record in given:
        first = len(lists)
        for texts, values in _lists_of(record, where, names, has_lists):
            lists.append(texts)
            scores.append(values)
        origins += [where] * (len(lists) - first)
        # The numbers of lists stand in for texts, to match records with segments.
        numbers = "\n".join(map(str, range(first, len(lists))))
        numbered.append((where, {**record, _PLACE: numbers}))
    _refuse_single(path, lists, "make it")
    wanted = records.Wanted("system", fields={"text": _PLACE})
    text = records.read(numbered, path, wanted)
    places = [[*map(int, segment.split())] for segment in layout.sentences(text)]
    chosen = [scores[own[0]] for own in places]
    texts = [
        lists[own[0]] if len(own) == 1 else [" ".join(lists[place][0] for place in own)]
        for own in places
    ]
    refuse_long(path, (each for own in texts for each in own))
    return Candidates(
        layout,
        texts,
        None if None in chosen else chosen,
        source,
        notes=layout.notes(path, text),
        places=[origins[own[0]] for own in places],
    )


def _lists_of(
    record: dict, where: str, names: Sequence[str], has_lists: bool
) -> List[Tuple[List[str], Optional[List[float]]]]:
    """Return the lists of candidates in a record, each with its scores, or None if it has none.

    Args:
        record: fields of the record.
        where: its location, for error messages.
        names: fields that may hold a list.
        has_lists: whether any record of the file has a list.

    Raises:
        UserError: the record has no list, or an entry of its list has no text.
    """
    found = next((record[name] for name in names if isinstance(record.get(name), list)), None)
    alone = record.get(HYPOTHESIS)
    if found:
        entries = [entry if isinstance(entry, dict) else {"text": entry} for entry in found]
        texts = [entry.get("text") for entry in entries]
        if not all(isinstance(each, str) for each in texts):
            raise UserError(f"{where}: a translation of the list is no text")
        values = [_number(entry.get("score")) for entry in entries]
        return [([" ".join(each.split()) for each in texts], None if None in values else values)]
    if has_lists and isinstance(alone, str) and record.keys().isdisjoint(names):
        # `translate --nbest` writes no list if there is one translation, or one for each line.
        lines = [line for line in map(str.strip, alone.split("\n")) if line] or [""]
        return [([line], [0.0]) for line in lines]  # of one candidate, the score decides nothing
    raise UserError(
        f"{where} has no list of translations ({', '.join(names)}); name its field as FILE#FIELD"
    )


def _number(score) -> Optional[float]:
    """Return the score of a candidate in JSON; None if it is no number."""
    if isinstance(score, bool) or not isinstance(score, (int, float)):
        return None
    return float(str(score))  # infinite for an int that no float can hold


def write(args: argparse.Namespace, candidates: Candidates, choice: Sequence[int]) -> None:
    """Write the chosen translations to ``--out``, and print notes and a summary.

    Args:
        args: options of the command line, of which ``out`` (the file) and ``to`` (its format) are
            read.
        candidates: candidates of all sentences.
        choice: (sentences,) index of the chosen candidate of each sentence.

    Raises:
        UserError: the file cannot be written, or its format cannot hold a translation, such as an
            empty one in plain text.  The translations are then written as JSON lines.
    """
    found = candidates.chosen(choice)
    layout = candidates.layout
    documents = documents_of(layout.index, layout.ids, found, layout.segment_numbers)
    try:
        text = convert.FORMATS[args.to](documents, args.out, "system")
    except UserError as error:
        kept = f"{args.out}.jsonl"
        write_text(kept, convert.json_lines(documents))
        reason = str(error).partition(";")[0]
        raise UserError(f"{reason}; the translations are in {kept}, as with --to jsonl") from None
    write_text(args.out, text)
    firsts = [texts[0] for texts in candidates.texts]
    unrelated = unrelated_note("source and translations", candidates.source or (), firsts)
    for note in filter(None, [*candidates.notes, unrelated]):
        print(note)
    other = sum(number != 0 for number in choice)
    print(f"wrote {len(found)} sentences to {args.out}; {other} are not the first candidate")
