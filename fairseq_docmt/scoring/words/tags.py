"""Tag files, which name the phenomena in each sentence so that the report can filter by them.

Each line is a JSON object with ``doc_id`` (the name of the document, or its number from 1),
``segment`` (the number of the sentence in the document, from 1) and ``tags``, a list of names.
"""

import argparse
import json
from typing import List, Sequence

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import lines_of, read_text, write_text
from fairseq_docmt.readers.record_files import parsed_json
from fairseq_docmt.scoring.texts.test_set import Translations


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--tags``, which names the tag file to write."""
    parser.add_argument(
        "--tags", metavar="FILE", help="write which sentences are counted, for --tags of `report`"
    )


def write(path: str, texts: Translations, tags: Sequence[Sequence[str]]) -> None:
    """Write a tag file with a line for each sentence that has tags.

    Args:
        path: file to write.
        texts: test set.
        tags: (sentences,) list of the tags of each sentence.

    Raises:
        UserError: the file cannot be written.
    """
    places = zip(texts.index.document.tolist(), texts.position.tolist(), tags)
    records = (
        {"doc_id": texts.name_of(document), "segment": position + 1, "tags": list(names)}
        for document, position, names in places
        if names
    )
    write_text(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))


def read(paths: Sequence[str], texts: Translations) -> List[List[str]]:
    """Read the tags of the sentences of a test set from one or more tag files.

    If sentences have been left out of the test set, lines for unknown sentences are ignored, and
    their number is added to ``texts.notes``.

    Args:
        paths: tag files.
        texts: test set.

    Returns:
        (sentences,) list of the tags of each sentence.

    Raises:
        UserError: a line is malformed, or is for an unknown sentence although no sentence has been
            left out.
    """
    places = zip(texts.index.document.tolist(), texts.position.tolist())
    sentences = {(texts.name_of(d), position + 1): i for i, (d, position) in enumerate(places)}
    left_out = 0
    found: List[List[str]] = [[] for _ in range(texts.index.num_sentences)]
    for path in paths:
        for number, line in enumerate(lines_of(read_text(path)), start=1):
            if not line:
                continue
            where = f"{path}: line {number}"
            record = parsed_json(line, path, number)
            try:
                name, place, names = str(record["doc_id"]), record["segment"], record["tags"]
                valid = isinstance(place, int) and isinstance(names, list)
                valid = valid and all(isinstance(tag, str) for tag in names)
            except (ValueError, KeyError, TypeError):
                valid = False
            if not valid:
                raise UserError(
                    f'{where} must have "doc_id", "segment" (a number) and "tags", a list of names'
                )
            if (name, place) in sentences:
                found[sentences[name, place]] += names
            elif texts.kept is None:
                raise UserError(f"{where}: the test set has no segment {place} of document {name}")
            else:
                left_out += 1
    if left_out:
        texts.notes.append(f"--tags: {left_out} lines are of segments that are left out")
    return found
