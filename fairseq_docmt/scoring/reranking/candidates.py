"""Several translations of each sentence of a test set: n-best lists, or outputs of systems."""

import argparse
import math
import re
from collections import defaultdict
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Output, read_docids, read_input
from fairseq_docmt.readers import add_argument as add_format_argument
from fairseq_docmt.readers.files import read_text, refuse_long, write_text
from fairseq_docmt.scoring.texts import convert, translations
from fairseq_docmt.scoring.texts.layout import Layout, Mismatch, documents_of, layout_of

_POSITIONAL = re.compile(r"^P-(\d+)\t([^\t\n]+)$", flags=re.M)
_HYPOTHESIS = re.compile(r"^([DH])-(\d+)\t([^\t\n]*)\t([^\t\n]*)$", flags=re.M)


class Candidates(NamedTuple):
    """Candidate translations of the sentences of a test set.

    Attributes:
        layout: document of each sentence.
        texts: for each sentence, its candidates.
        scores: for each sentence, the scores of the model, or None.
        source: (sentences,) source, None if unknown.
        log_probabilities: for each sentence, natural log-probabilities of its candidates by the
            model (P- lines), or None.
        notes: how the texts were read.
    """

    layout: Layout
    texts: List[List[str]]
    scores: Optional[List[List[float]]]
    source: Optional[List[str]]
    log_probabilities: Optional[List[List[float]]] = None
    notes: Sequence[str] = ()

    def chosen(self, choice: Sequence[int]) -> List[str]:
        """Return the (sentences,) of a choice, the index of a candidate for each sentence."""
        return [texts[number] for texts, number in zip(self.texts, choice)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`from_arguments` and :func:`write` read."""
    parser.add_argument(
        "candidates",
        nargs="+",
        metavar="FILE",
        help="one output of fairseq-generate --nbest, or two or more translations as NAME=FILE",
    )
    add_format_argument(parser)
    parser.add_argument("--source", metavar="FILE", help="source: says where documents end")
    parser.add_argument(
        "--docids", metavar="FILE", help="document of each line, without blank lines"
    )
    parser.add_argument("--to", choices=convert.FORMATS, default="text", help="default: text")
    parser.add_argument("--out", metavar="FILE", required=True, help="file to write")


def from_arguments(args: argparse.Namespace) -> Candidates:
    """Read the candidates named on the command line.

    Raises:
        UserError: there are no alternatives, nothing says where documents end, or a text does not
            match the source.
    """
    if not (args.source or args.docids):
        raise UserError("candidates need --source or --docids, which say where documents end")
    plain = args.input_format == "text"
    if len(args.candidates) == 1:
        return read_nbest(args.candidates[0], args.source, args.docids, plain)
    if args.source is None:
        raise UserError(
            "candidates of several systems need --source, which says where documents end"
        )
    layout, source = _test_set(args.source, args.docids, plain)
    systems, notes = [], []
    for name, path in translations.named_files(args.candidates).items():
        text = read_input(path, "system", name, plain)
        try:
            systems.append(layout.sentences(text))
        except Mismatch as mismatch:
            raise UserError(
                f"{mismatch}; align it before with `convert --reference FILE --align LANGUAGE`"
            ) from None
        notes += layout.notes(name, text)
    return Candidates(layout, [list(row) for row in zip(*systems)], None, source, notes=notes)


def _test_set(
    source: Optional[str], docids: Optional[str], plain: bool
) -> Tuple[Layout, Optional[List[str]]]:
    """Read the source, if there is one, which defines the segments; each file is read once."""
    text = read_input(source, "source", plain=plain) if source else None
    layout = layout_of(text, read_docids(docids) if docids else None)
    return layout, layout.sentences(text) if text else None


def read_nbest(
    path: str, source: Optional[str], docids: Optional[str] = None, plain: bool = False
) -> Candidates:
    """Read an output of ``fairseq-generate --nbest``, with detokenized (D-) lines if it has some.

    Raises:
        UserError: the file has no n-best lists or lacks sentences.
    """
    lines: Dict[str, Dict[int, List[str]]] = {"D": defaultdict(list), "H": defaultdict(list)}
    scores: Dict[int, List[float]] = defaultdict(list)
    output = read_text(path)
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


def write(args: argparse.Namespace, candidates: Candidates, choice: Sequence[int]) -> None:
    """Write the chosen translations to ``--out``, and print notes.

    Raises:
        UserError: the file cannot be written, or plain text cannot hold an empty translation.
    """
    found = candidates.chosen(choice)
    layout = candidates.layout
    documents = documents_of(layout.index, layout.ids, found, layout.segment_numbers)
    write_text(args.out, convert.FORMATS[args.to](documents, args.out, "system"))
    for note in candidates.notes:
        print(note)
    other = sum(number != 0 for number in choice)
    print(f"wrote {len(found)} sentences to {args.out}; {other} are not the first candidate")
