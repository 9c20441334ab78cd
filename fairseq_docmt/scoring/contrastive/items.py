"""Contrastive test items and their format as JSON lines.

Each line is one item::

    {"source": ["It is late.", "Will you go?"],
     "candidates": [["Es ist spät.", "Gehst du?"], ["Es ist spät.", "Gehen Sie?"]],
     "correct": 0,
     "labels": {"phenomenon": "formality", "distance": 1}}

``source`` is a list of sentences: optional context and the current sentence.  The current sentence
is the last one, unless ``"after": 2`` gives the number of context sentences that follow it.  Every
candidate translates the source sentence by sentence.  ``correct`` is the index of the correct
candidate, from 0.  ``labels`` are optional; if there are any, accuracy is also reported for each
value of each label.
"""

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import lines_of, read_text
from fairseq_docmt.readers.record_files import parsed_json


class Item(NamedTuple):
    """A source document and candidate translations, one of which is correct.

    Attributes:
        source: sentences of the previous context, the current sentence, and following context.
        candidates: translations, each with as many sentences as the source.
        correct: index of the correct candidate, from 0.
        labels: properties by which results are grouped, e.g. ``{"phenomenon": "deixis", "distance":
            "2"}``.
        after: number of context sentences that follow the current one.
    """

    source: List[str]
    candidates: List[List[str]]
    correct: int
    labels: Dict[str, str]
    after: int = 0

    def with_context(self, before: Optional[int], after: int = 0) -> "Item":
        """Return a copy of the item that keeps only the context nearest to the current sentence.

        Args:
            before: maximum number of context sentences before the current one; None keeps all.
            after: maximum number of context sentences after the current one.
        """
        current = len(self.source) - 1 - self.after
        first = 0 if before is None else max(current - before, 0)
        keep = slice(first, current + 1 + after)
        return self._replace(
            source=self.source[keep],
            candidates=[c[keep] for c in self.candidates],
            after=min(self.after, after),
        )


def checked_item(
    where: str, source, candidates, correct, labels: Dict[str, Any], after: int = 0
) -> Item:
    """Build an item from values read from a file, after checking that they are valid.

    Args:
        where: name of the item in error messages, e.g. ``set.json: item 3``.
        source, candidates, correct, labels, after: attributes of :class:`Item`.  The values of
            labels may be of any type and are converted to text.

    Raises:
        UserError: a value has the wrong type or is out of range, a sentence is empty, or the
            source and a candidate differ in their number of sentences.
    """
    for name, sentences in [("source", source), *_named(where, candidates)]:
        if not _is_text(sentences):
            raise UserError(f"{where}: the {name} must be a list of sentences, none of them empty")
        if len(sentences) != len(source):
            raise UserError(
                f"{where}: the {name} has {len(sentences)} sentences, the source has {len(source)}"
            )
    if not _is_number(correct) or not 0 <= correct < len(candidates):
        raise UserError(
            f"{where}: the correct candidate must be a number from 0 to {len(candidates) - 1}, "
            f"not {correct!r}"
        )
    if not isinstance(labels, dict):
        raise UserError(f"{where}: labels must be a dictionary, not {labels!r}")
    if not _is_number(after) or not 0 <= after < len(source):
        raise UserError(
            f"{where}: the number of sentences after the current one must be from 0 to "
            f"{len(source) - 1}, not {after!r}"
        )
    named = {str(name): _label(value) for name, value in labels.items()}
    return Item([*source], [[*c] for c in candidates], correct, named, after)


def field(where: str, entry, name: str):
    """Return ``entry[name]`` of a dictionary read from a file, with a clear error if it is missing.

    Args:
        where: name of the entry in error messages, e.g. ``set.json: item 3``.
        entry: any value read from JSON.
        name: key.

    Raises:
        UserError: the entry is not a dictionary, or has no such key.
    """
    if not isinstance(entry, dict):
        raise UserError(f"{where} must be a dictionary, not {str(entry)[:40]!r}")
    if name not in entry:
        raise UserError(f'{where} has no "{name}"')
    return entry[name]


def _named(where: str, candidates):
    if not isinstance(candidates, list) or len(candidates) < 2:
        raise UserError(f"{where} must have a list of two or more candidates")
    return [(f"candidate {number}", c) for number, c in enumerate(candidates)]


def _is_text(sentences) -> bool:
    return (
        isinstance(sentences, list)
        and len(sentences) > 0
        and all(isinstance(s, str) and s.strip() for s in sentences)
    )


def _is_number(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _label(value) -> str:
    """Return the value of a label as text: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_json_lines(path: Path) -> List[Item]:
    """Read contrastive items from a file with one JSON object per line, skipping blank lines.

    Raises:
        UserError: the file is not UTF-8, or a line is not an item; the message names the line.
    """
    items = []
    for number, line in enumerate(lines_of(read_text(str(path))), start=1):
        if line:
            where = f"{path}: line {number}"
            entry = parsed_json(line, str(path), number)
            parts = [field(where, entry, name) for name in ("source", "candidates", "correct")]
            rest = entry.get("labels", {}), entry.get("after", 0)
            items.append(checked_item(where, *parts, *rest))
    return items


def json_lines(items: List[Item]) -> Iterator[str]:
    """Yield each contrastive item as a line of JSON that :func:`read_json_lines` can read."""
    for item in items:
        yield json.dumps(item._asdict(), ensure_ascii=False)
