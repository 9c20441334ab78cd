"""Contrastive test items, and a plain JSON-lines format for them.

One item is one line of JSON::

    {"source": ["It is late.", "Will you go?"],
     "candidates": [["Es ist spät.", "Gehst du?"], ["Es ist spät.", "Gehen Sie?"]],
     "correct": 0,
     "labels": {"phenomenon": "formality", "distance": 1}}

``source`` is a document: sentences of context, which may be none, and the current one, which is the
last unless ``"after": 2`` says how many sentences of context follow it.  Every
candidate translates it sentence by sentence; ``correct`` is the number, from 0, of the right one.
Accuracy is also given for each value of each label; there may be any number of labels, or none.
"""

import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from fairseq_docmt.errors import UserError


class Item(NamedTuple):
    """A source document and translations of it, one of which is right.

    Attributes:
        source: sentences, the current one and its context.
        candidates: translations, each with as many sentences as the source.
        correct: number of the right candidate.
        labels: what the item belongs to, as ``{"phenomenon": "deixis", "distance": "2"}``.
        after: sentences behind the current one.
    """

    source: List[str]
    candidates: List[List[str]]
    correct: int
    labels: Dict[str, str]
    after: int = 0

    def with_context(self, before: Optional[int], after: int = 0) -> "Item":
        """The item with no more sentences of context than these; ``before`` None for all."""
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
    """An item of values that were read from a file.

    Args:
        where: how messages call the item, as ``set.json: item 3``.
        source, candidates, correct, labels, after: see :class:`Item`; values of labels may be of
            any type.

    Raises:
        UserError: they make no item.
    """
    for name, sentences in [("source", source), *_named(where, candidates)]:
        if not _is_text(sentences):
            raise UserError(f"{where}: the {name} must be a list of sentences, none of them empty")
        if len(sentences) != len(source):
            raise UserError(
                f"{where}: the {name} has {len(sentences)} sentences, but the source {len(source)}"
            )
    if not _is_number(correct) or not 0 <= correct < len(candidates):
        raise UserError(
            f"{where}: the right candidate must be a number from 0 to {len(candidates) - 1}, "
            f"not {correct!r}"
        )
    if not isinstance(labels, dict):
        raise UserError(f"{where}: labels must be a dictionary, not {labels!r}")
    if not _is_number(after) or not 0 <= after < len(source):
        raise UserError(
            f"{where}: the sentences after the current one must be a number from 0 to "
            f"{len(source) - 1}, not {after!r}"
        )
    named = {str(name): _label(value) for name, value in labels.items()}
    return Item([*source], [[*c] for c in candidates], correct, named, after)


def field(where: str, entry, name: str):
    """Value of a key of an entry that was read from a file.

    Raises:
        UserError: there is no such key.
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
    """Labels as JSON writes them, words without their quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_json_lines(path: Path) -> List[Item]:
    """Items of a file in the format of this module; empty lines are passed over.

    Raises:
        UserError: a line is none; it is named.
    """
    items = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if line.strip():
            where = f"{path}: line {number}"
            try:
                entry = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{where} is no JSON ({error.msg})") from None
            parts = [field(where, entry, name) for name in ("source", "candidates", "correct")]
            rest = entry.get("labels", {}), entry.get("after", 0)
            items.append(checked_item(where, *parts, *rest))
    return items


def json_lines(items: List[Item]) -> Iterator[str]:
    """Lines of the format of this module."""
    for item in items:
        yield json.dumps(item._asdict(), ensure_ascii=False)
