"""Groups of sentences on one line, to documents: one sentence a line, a blank line between groups.

    python data_prep/sentence_groups.py train.src train.dst --out corpus/train.en corpus/train.ru

This is how Voita et al. (2019) ship OpenSubtitles: four sentences on a line, joined by ``_eos``.  A
group with an empty sentence on one side is left out whole.
"""

import argparse
from typing import Iterator

from check_documents import CorpusError
from documents import Document, paired_lines, reader_parser, run_reader


def read_groups(source: str, target: str, mark: str) -> Iterator[Document]:
    """Groups of two files, each a document.

    Args:
        source, target: paths.
        mark: what stands between sentences.

    Raises:
        CorpusError: the sides differ in groups or in the sentences of one.
    """
    for number, pair in enumerate(paired_lines(source, target), start=1):
        sides = [group.split(mark) for group in pair]
        if len(sides[0]) != len(sides[1]):
            raise CorpusError(
                f"{source}: line {number} has {len(sides[0])} sentences, but {len(sides[1])} in "
                f"{target}; remove the line on both sides"
            )
        yield list(zip(*sides))


def parse_args(arguments=None) -> argparse.Namespace:
    """Read the command line."""
    parser = reader_parser(__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--mark", default=" _eos ", help="what stands between sentences")
    parser.set_defaults(complete_documents=True)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_groups(args.source, args.target, args.mark), parse_args())
