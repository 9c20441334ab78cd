"""Tags of sentences, such as the phenomena that they contain, as JSON lines.

Each line has the fields ``doc_id`` (or the number of the document, from 1), ``segment`` (from 1)
and ``tags``, a list of names.  The report filters sentences by them.
"""

import argparse
import json
from typing import List, Sequence

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import lines_of, read_text, write_text
from fairseq_docmt.scoring.texts.translations import Translations


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option with the file for :func:`write`."""
    parser.add_argument(
        "--tags", metavar="FILE", help="write which sentences are counted, for --tags of `report`"
    )


def write(path: str, texts: Translations, tags: Sequence[Sequence[str]]) -> None:
    """Write the tags of all sentences that have some.

    Args:
        path: file to write.
        texts: test set.
        tags: (sentences,) names.

    Raises:
        UserError: the file cannot be written.
    """
    places = zip(texts.index.document.tolist(), texts.index.position.tolist(), tags)
    records = (
        {"doc_id": texts.name_of(document), "segment": position + 1, "tags": list(names)}
        for document, position, names in places
        if names
    )
    write_text(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


def read(paths: Sequence[str], texts: Translations) -> List[List[str]]:
    """Read the tags of the sentences of a test set from all files: (sentences,) lists of names.

    Raises:
        UserError: a line is not in the format, or names a sentence that the test set lacks.
    """
    starts = texts.index.starts.tolist()
    documents = {texts.name_of(number): number for number in range(texts.index.num_documents)}
    found: List[List[str]] = [[] for _ in range(texts.index.num_sentences)]
    for path in paths:
        for number, line in enumerate(lines_of(read_text(path)), start=1):
            if not line:
                continue
            where = f"{path}: line {number}"
            try:
                record = json.loads(line)
                name, place, names = str(record["doc_id"]), record["segment"], record["tags"]
                valid = isinstance(place, int) and isinstance(names, list)
                valid = valid and all(isinstance(tag, str) for tag in names)
            except (ValueError, KeyError, TypeError):
                valid = False
            if not valid:
                raise UserError(
                    f'{where} must have "doc_id", "segment" (a number) and "tags", a list of names'
                )
            document = documents.get(name)
            size = 0 if document is None else starts[document + 1] - starts[document]
            if not 1 <= place <= size:
                raise UserError(f"{where}: the test set has no segment {place} of document {name}")
            found[starts[document] + place - 1] += names
    return found
