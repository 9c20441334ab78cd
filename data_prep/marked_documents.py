"""Documents that begin with a line of their own, to documents with blank lines between them.

    python data_prep/marked_documents.py concatenated_en2de_dev_en.txt \\
        concatenated_en2de_dev_de.txt --out corpus/valid.en corpus/valid.de

This is how Maruf et al. (2019) ship TED talks, News Commentary and Europarl: ``<d>`` begins a
document.
"""

import argparse
from typing import Iterator

from check_documents import CorpusError
from documents import Document, paired_lines, reader_parser, run_reader


def read_documents(source: str, target: str, mark: str) -> Iterator[Document]:
    """Documents of two files.

    Args:
        source, target: paths.
        mark: the line that begins a document.

    Raises:
        CorpusError: the sides differ in lines or in marks.
    """
    document: Document = []
    for number, pair in enumerate(paired_lines(source, target), start=1):
        begins = [line.strip() == mark for line in pair]
        if not any(begins):
            document.append(pair)
        elif all(begins):
            yield document
            document = []
        else:
            raise CorpusError(
                f"{(source, target)[begins.index(True)]}: line {number} is {mark}, but not on the "
                "other side; documents must begin on both"
            )
    yield document


def parse_args(arguments=None) -> argparse.Namespace:
    """Read the command line."""
    parser = reader_parser(__doc__)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--mark", default="<d>", help="line that begins a document")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_documents(args.source, args.target, args.mark), parse_args())
