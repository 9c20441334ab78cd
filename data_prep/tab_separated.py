r"""Convert a table of sentence pairs with blank rows between documents to a corpus of documents.

    python data_prep/tab_separated.py news-commentary-v14.de-en.tsv.gz \
        --out corpus/train.de corpus/train.en

WMT distributes News Commentary in this form: each row has a sentence, a tab and its translation.
The first column becomes the first file of --out.
"""

import argparse
from typing import Iterator

from check_documents import CorpusError
from documents import Document, lines_of, reader_parser, run_reader


def read_documents(path: str) -> Iterator[Document]:
    """Yield the documents of a table of sentence pairs.

    Args:
        path: file in which each row has two cells, separated by a tab; a blank row ends a document.

    Raises:
        CorpusError: a row does not have two cells.
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
                f"{path}: line {number} has {len(cells) - 1} tabs; expected a sentence, one tab "
                "and its translation, or a blank line between documents"
            )
    yield document


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: the file to read, and the options that all readers share."""
    parser = reader_parser(__doc__)
    parser.add_argument("file", help="text, which may be compressed by gzip (*.gz)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_documents(args.file), parse_args())
