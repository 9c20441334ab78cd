"""Convert groups of sentences on one line to documents.

    python data_prep/sentence_groups.py train.src train.dst --out corpus/train.en corpus/train.ru

Voita et al. (2019) distribute OpenSubtitles in this form: four sentences on a line, joined by
``_eos``.  Each group becomes a document with one sentence per line.  Groups in which a sentence is
empty on one side are left out.
"""

import argparse
import re
from typing import Iterator, Pattern

from check_documents import CorpusError
from documents import Document, paired_lines, reader_parser, run_reader
from sanity import warn


def read_groups(source: str, target: str, mark: str) -> Iterator[Document]:
    """Yield a document for each line of two parallel files, whose lines are groups of sentences.

    Args:
        source, target: paths.
        mark: separator between the sentences of a line.

    Raises:
        CorpusError: the separator is blank or does not occur in the files, or the two sides differ
            in their number of lines or in the number of sentences on a line.
    """
    separator, marked, warned = _separator(mark), False, False
    for number, pair in enumerate(paired_lines(source, target), start=1):
        sides = [separator.split(group) for group in pair]
        for path, sentences in zip((source, target), sides):
            if not warned and any(mark.strip() in sentence for sentence in sentences):
                warned = True
                warn(
                    f"{path}: line {number} has the mark {mark.strip()} within a word, where it is "
                    "read as text; put spaces around it if sentences end there"
                )
        if len(sides[0]) != len(sides[1]):
            raise CorpusError(
                f"{source}: line {number} has {len(sides[0])} sentences, but {len(sides[1])} in "
                f"{target}; remove the line on both sides"
            )
        marked = marked or len(sides[0]) > 1
        yield list(zip(*sides))
    if not marked:
        raise CorpusError(
            f"{source}: no line has the mark {mark.strip()}; give the separator between sentences "
            "with --mark"
        )


def _separator(mark: str) -> Pattern:
    """Return the pattern that finds the separator between sentences.

    A space at the start or end of ``mark`` is not part of the match.  It only requires that no word
    touches the separator there.  So separators are also found next to empty sentences, where they
    stand at the end of a line or share a space with the next separator.

    Raises:
        CorpusError: ``mark`` is blank.
    """
    word = mark.strip(" ")
    if not word:
        raise CorpusError("--mark is blank; give the separator between sentences")
    before = r"(?<!\S)" if mark.startswith(" ") else ""
    after = r"(?!\S)" if mark.endswith(" ") else ""
    return re.compile(before + re.escape(word) + after)


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: texts, separator and the options that all readers share."""
    parser = reader_parser(__doc__)
    parser.add_argument("source", help="source text")
    parser.add_argument("target", help="target text")
    parser.add_argument(
        "--mark", default=" _eos ", help="separator between sentences; default: _eos"
    )
    parser.set_defaults(complete_documents=True)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_groups(args.source, args.target, args.mark), parse_args())
