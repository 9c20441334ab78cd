r"""Convert text with a marker line before each document to a corpus of documents.

    python data_prep/marked_documents.py concatenated_en2de_dev_en.txt \
        concatenated_en2de_dev_de.txt --out corpus/valid.en corpus/valid.de

Maruf et al. (2019) distribute TED talks, News Commentary and Europarl in this form, with the line
``<d>`` before each document.
"""

import argparse
from typing import Iterator

from check_documents import CorpusError
from documents import Document, paired_lines, reader_parser, run_reader


def read_documents(source: str, target: str, mark: str) -> Iterator[Document]:
    """Yield the documents of two parallel files in which a marker line begins each document.

    Args:
        source, target: paths.
        mark: the marker line, such as ``<d>``.

    Raises:
        CorpusError: the marker is blank; the sides differ in their number of lines or in the places
            of their markers; or a file has no marker, or text before the first one.
    """
    mark = mark.strip()
    if not mark:
        raise CorpusError("--mark is blank; give the line that begins a document")
    document: Document = []
    marked = False
    for number, pair in enumerate(paired_lines(source, target), start=1):
        begins = [line.strip() == mark for line in pair]
        if not any(begins):
            document.append(pair)
        elif all(begins):
            if not marked and any(side.strip() for pair in document for side in pair):
                raise CorpusError(
                    f"{source}: text stands before the first {mark}, which is line {number}; begin "
                    "the first document with it"
                )
            yield document
            document, marked = [], True
        else:
            raise CorpusError(
                f"{(source, target)[begins.index(True)]}: line {number} is {mark}, but not on the "
                "other side; documents must begin at the same lines"
            )
    if not marked:
        raise CorpusError(
            f"{source} has no line {mark}, which begins a document; give the line that does with "
            "--mark"
        )
    yield document


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: two texts, the marker line and options that all readers share."""
    parser = reader_parser(__doc__)
    parser.add_argument("source", help="source text")
    parser.add_argument("target", help="target text")
    parser.add_argument("--mark", default="<d>", help="line that begins a document; default: <d>")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_documents(args.source, args.target, args.mark), parse_args())
