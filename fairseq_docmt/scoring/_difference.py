"""Where a translation differs from others."""

import re
from difflib import SequenceMatcher
from itertools import groupby
from typing import List, NamedTuple, Optional

# Words, single signs, and the characters of scripts that leave no space between words.
_CHARACTERS = "\u3040-\u30ff\u3400-\u9fff"
_TOKEN = re.compile(rf"\s+|[{_CHARACTERS}]|[^\W{_CHARACTERS}]+|[^\w\s]")


class Run(NamedTuple):
    """A stretch of text.

    Attributes:
        off: it is not in the reference.
        changed: it is not in the other translation.
    """

    text: str
    off: bool
    changed: bool


def runs(text: str, reference: str, other: Optional[str] = None) -> List[Run]:
    """A text in stretches that differ from a reference, and from another translation.

    Args:
        text: translation; the stretches together give it back.
        reference: what it should be.
        other: translation to compare with, None for no comparison.
    """
    tokens = _TOKEN.findall(text)
    off = _missing(tokens, reference)
    changed = [False] * len(tokens) if other is None else _missing(tokens, other)
    for i, token in enumerate(tokens):
        if token.isspace() and 0 < i < len(tokens) - 1:
            # A space belongs to a stretch that goes on behind it.
            off[i] = off[i - 1] and off[i + 1]
            changed[i] = changed[i - 1] and changed[i + 1]
    return [
        Run("".join(token for token, *_ in group), *flags)
        for flags, group in groupby(zip(tokens, off, changed), key=lambda row: row[1:])
    ]


def _missing(tokens: List[str], text: str) -> List[bool]:
    """Which tokens are in no match with a text; spaces are."""
    places = [i for i, token in enumerate(tokens) if not token.isspace()]
    words = [tokens[i] for i in places]
    wanted = [token for token in _TOKEN.findall(text) if not token.isspace()]
    missing = [not token.isspace() for token in tokens]
    for block in SequenceMatcher(None, words, wanted, autojunk=False).get_matching_blocks():
        for i in places[block.a : block.a + block.size]:
            missing[i] = False
    return missing
