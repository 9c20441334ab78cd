"""Translations of documents by several systems, with references and source.

Texts have one sentence per line and a blank line between documents.  The first reference defines
which lines are sentences.  All other texts have blank lines at the same places or none at all; a
blank line at the place of a sentence is an empty translation.  Systems may also be outputs of
``fairseq-generate``.
"""

import argparse
import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from fairseq_docmt.analysis.bleu_by_position import Output, places, read_output
from fairseq_docmt.data.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring._files import read_lines, read_text


class Translations(NamedTuple):
    """Sentences of a test set, all lists in the same order.

    Attributes:
        index: document and line of each sentence.
        systems: name of each system -> its (sentences,).
        references: one or more lists of (sentences,).
        source: (sentences,), or None.
    """

    index: DocumentIndex
    systems: Dict[str, List[str]]
    references: List[List[str]]
    source: Optional[List[str]] = None

    def joined(self, sentences: Sequence[str]) -> List[str]:
        """Join the sentences of each document to one line."""
        starts = self.index.starts.tolist()
        return [" ".join(sentences[a:b]) for a, b in zip(starts[:-1], starts[1:])]


def add_arguments(parser: argparse.ArgumentParser, source_required: bool = False) -> None:
    """Add the options that :func:`from_arguments` reads."""
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="NAME=FILE",
        help="translation: text with blank lines between documents, or output of fairseq-generate",
    )
    parser.add_argument(
        "--reference",
        action="append",
        metavar="FILE",
        help="reference with blank lines between documents; may be repeated; default: T- lines of "
        "fairseq-generate",
    )
    parser.add_argument("--source", metavar="FILE", required=source_required, help="source text")


def from_arguments(args: argparse.Namespace) -> Translations:
    """Read the translations named on the command line.

    Raises:
        UserError: as in :func:`read_translations`; or a system has no name, or a name is used
            twice.
    """
    systems: Dict[str, str] = {}
    for argument in args.systems:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise UserError(f"{argument}: give systems as NAME=FILE")
        if name in systems:
            raise UserError(f"two systems are named {name}; give each its own name")
        systems[name] = path
    return read_translations(systems, args.reference, args.source)


def read_translations(
    systems: Dict[str, str],
    references: Optional[Sequence[str]] = None,
    source: Optional[str] = None,
) -> Translations:
    """Read the texts of a test set.

    Args:
        systems: name -> file.
        references: files; if None, all systems must be outputs of ``fairseq-generate``.
        source: file.

    Raises:
        UserError: a file is missing, empty or not UTF-8, or its lines do not match the reference.
    """
    outputs = {name: read_output(path) for name, path in systems.items() if _is_output(path)}
    if references:
        first = read_lines(references[0])
        index = DocumentIndex.from_sizes([2 if line else 1 for line in first])
        texts = [_sentences(read_lines(path), index, path, references[0]) for path in references]
        named_after = references[0]
    else:
        index, texts = _of_outputs(systems, outputs)
        named_after = f"the T- lines of {next(iter(systems.values()))}"
    found = {}
    for name, path in systems.items():
        if name in outputs:
            found[name] = _by_number(outputs[name].hypotheses, index, path, named_after)
        else:
            found[name] = _sentences(read_lines(path), index, path, named_after)
    wanted = _sentences(read_lines(source), index, source, named_after) if source else None
    return Translations(index, found, texts, wanted)


def _is_output(path: str) -> bool:
    return re.search(r"^[DHT]-\d+\t", read_text(path), flags=re.M) is not None


def _of_outputs(systems: Dict[str, str], outputs: Dict[str, Output]):
    """Return index and references from the T- lines of outputs."""
    for name, path in systems.items():
        if name not in outputs:
            raise UserError(f"{path} is text without references; give them by --reference")
    (first, wanted), *others = [(name, output.references) for name, output in outputs.items()]
    for name, found in others:
        if found != wanted:
            raise UserError(
                f"{name} and {first} have different references (T- lines); give the reference by "
                "--reference"
            )
    rows, place = sorted(wanted), places(wanted)
    starts = [number for number, row in enumerate(rows) if place[row] == 0]
    index = DocumentIndex(rows, [*starts, len(rows)])
    return index, [[wanted[row] for row in rows]]


def _by_number(lines: Dict[int, str], index: DocumentIndex, path: str, named_after: str):
    """Return the sentences of an output, whose line numbers may or may not count blank lines."""
    for rows in (index.line_ids.tolist(), range(index.num_sentences)):
        if lines.keys() == set(rows):
            return [lines[row] for row in rows]
    missing = sorted(set(index.line_ids.tolist()) ^ lines.keys())[0]
    raise UserError(
        f"{path} and {named_after} differ: line {missing + 1} is a sentence in only one of them"
    )


def _sentences(lines: List[str], index: DocumentIndex, path: str, named_after: str) -> List[str]:
    """Select the lines that are sentences according to the index."""
    rows = index.line_ids.tolist()
    wanted = rows[-1] + 1 if rows else 0
    while len(lines) > wanted and not lines[-1]:
        lines = lines[:-1]
    if len(lines) == index.num_sentences:
        return lines
    if len(lines) != wanted:
        raise UserError(
            f"{path} has {len(lines)} lines, but {named_after} has {wanted} "
            f"({index.num_sentences} without blank lines)"
        )
    ends = set(range(wanted)) - set(rows)
    for row in sorted(ends):
        if lines[row]:
            raise UserError(
                f"{path}: line {row + 1} has text where a document ends in {named_after}; "
                "blank lines must be the same in both"
            )
    return [lines[row] for row in rows]
