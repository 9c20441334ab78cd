"""Candidate translations of each sentence of a test set: n-best lists, or outputs of systems."""

import argparse
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import (
    Output,
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

_POSITIONAL = re.compile(r"^P-(\d+)\t([^\t\n]+)$", flags=re.M)
_HYPOTHESIS = re.compile(r"^([DH])-(\d+)\t([^\t\n]*)\t([^\t\n]*)$", flags=re.M)

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
    """

    layout: Layout
    texts: List[List[str]]
    scores: Optional[List[List[float]]]
    source: Optional[List[str]]
    log_probabilities: Optional[List[List[float]]] = None
    notes: Sequence[str] = ()
    language: Optional[str] = None

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
    parser.add_argument("--out", metavar="FILE", required=True, help="file to write")


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
        if equals and not Path(args.candidates[0]).exists() and Path(path).exists():
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
        UserError: the file has no n-best lists or lacks sentences.
    """
    path, chosen = with_selection(path)
    output = read_text(path)
    given = record_files.json_of(output, path) if output.strip() and not plain else None
    if given is not None:
        return _read_lists([*given], path, chosen, *_test_set(source, docids, plain))
    lines: Dict[str, Dict[int, List[str]]] = {"D": defaultdict(list), "H": defaultdict(list)}
    scores: Dict[int, List[float]] = defaultdict(list)
    for kind, number, score, text in _HYPOTHESIS.findall(output):
        lines[kind][int(number)].append(text)
        if kind == "H":
            try:
                scores[int(number)].append(float(score))
            except ValueError:
                raise UserError(f"{path}: H-{number} has no score but {score!r}") from None
    log_probabilities: Dict[int, List[float]] = defaultdict(list)
    for number, tokens in _POSITIONAL.findall(output):
        # fairseq-generate prints logarithms to base 2.
        log_probabilities[int(number)].append(sum(map(float, tokens.split())) * math.log(2))
    found = lines["D"] or lines["H"]
    if not found or max(map(len, found.values())) < 2:
        raise UserError(
            f"{path} has no n-best lists; run fairseq-generate with --nbest 2 or more, or give "
            "several translations as NAME=FILE"
        )
    layout, source_sentences = _test_set(source, docids, plain)
    refuse_long(path, (text for texts in found.values() for text in texts))
    joined = {row: "".join(texts) for row, texts in found.items()}
    rows = layout.numbers_of(Output(path, joined, {}))

    def complete(values: Dict[int, List[float]]) -> Optional[List[List[float]]]:
        known = all(len(values[row]) == len(found[row]) for row in rows)
        return [values[row] for row in rows] if known else None

    return Candidates(
        layout,
        [found[row] for row in rows],
        complete(scores),
        source_sentences,
        complete(log_probabilities),
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
    lists, scores = [], []
    for where, record in given:
        names = [field] if field else LIST_FIELDS
        found = next((record[name] for name in names if isinstance(record.get(name), list)), None)
        if not found:
            raise UserError(
                f"{where} has no list of translations ({', '.join(names)}); name its field as "
                "FILE#FIELD"
            )
        entries = [entry if isinstance(entry, dict) else {"text": entry} for entry in found]
        texts = [entry.get("text") for entry in entries]
        if not all(isinstance(each, str) for each in texts):
            raise UserError(f"{where}: a translation of the list is no text")
        lists.append([" ".join(each.split()) for each in texts])
        values = [entry.get("score") for entry in entries]
        scores.append(values if all(isinstance(v, (int, float)) for v in values) else None)
    # The numbers of records stand in for texts, to match records with segments.
    numbered = ((where, {**record, _PLACE: str(n)}) for n, (where, record) in enumerate(given))
    wanted = records.Wanted("system", fields={"text": _PLACE})
    places = [int(place) for place in layout.sentences(records.read(numbered, path, wanted))]
    lists = [lists[place] for place in places]
    scores = [scores[place] for place in places]
    refuse_long(path, (each for texts in lists for each in texts))
    return Candidates(layout, lists, None if None in scores else scores, source)


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
