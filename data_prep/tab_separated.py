"""Two columns with blank rows between documents, as WMT ships News Commentary, to documents.

    python data_prep/tab_separated.py news-commentary-v14.de-en.tsv.gz \\
        --out corpus/train.de corpus/train.en

The first column becomes the first file.
"""

import argparse
from typing import Iterator

from check_documents import CorpusError
from documents import Document, lines_of, reader_parser, run_reader


def read_documents(path: str) -> Iterator[Document]:
    """Documents of a file.

    Args:
        path: rows of two cells with a tab between them; a row is blank if both are.

    Raises:
        CorpusError: a row has another number of cells.
    """
    document: Document = []
    for number, row in enumerate(lines_of(path), start=1):
        cells = row.split("\t")
        if not row.strip():
            yield document
            document = []
        elif len(cells) == 2:
            document.append((cells[0], cells[1]))
        else:
            raise CorpusError(
                f"{path}: line {number} has {len(cells) - 1} tabs; a sentence, one tab and its "
                "translation are expected, or a blank line between documents"
            )
    yield document


def parse_args(arguments=None) -> argparse.Namespace:
    """Read the command line."""
    parser = reader_parser(__doc__)
    parser.add_argument("file", help="text, or text packed by gzip (*.gz)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_documents(args.file), parse_args())
