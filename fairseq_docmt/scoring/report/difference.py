"""Word-level differences between a translation, its reference and another translation."""

import re
from difflib import SequenceMatcher
from itertools import groupby
from typing import List, NamedTuple, Optional

# White space, words, punctuation marks, and single characters of scripts written without spaces.
_CHARACTERS = "\u3040-\u30ff\u3400-\u9fff"
_TOKEN = re.compile(rf"\s+|[{_CHARACTERS}]|[^\W{_CHARACTERS}]+|[^\w\s]")


#: Maximum number of words that are aligned, which takes minutes for more.  In longer texts, a word
#: is marked only if it occurs nowhere in the other text.
MOST_WORDS = 5000


class Run(NamedTuple):
    """A stretch of a translation in which all words carry the same marks.

    Attributes:
        text: the words and spaces of the stretch.
        off: whether the words are missing from the reference.
        changed: whether the words are missing from the other translation.
    """

    text: str
    off: bool
    changed: bool


def runs(text: str, reference: str, other: Optional[str] = None) -> List[Run]:
    """Split a translation into stretches of words with the same marks.

    A word is marked ``off`` if it is not in the reference, and ``changed`` if it is not in the
    other translation.

    Args:
        text: translation to split.
        reference: reference translation.
        other: translation by another system; None for no comparison.

    Returns:
        The stretches in order; their texts joined are exactly ``text``.
    """
    tokens = _TOKEN.findall(text)
    off = _missing(tokens, reference)
    changed = [False] * len(tokens) if other is None else _missing(tokens, other)
    for i, token in enumerate(tokens):
        if token.isspace() and 0 < i < len(tokens) - 1:
            # A space is marked only if the words on both sides of it are marked.
            off[i] = off[i - 1] and off[i + 1]
            changed[i] = changed[i - 1] and changed[i + 1]
    return [
        Run("".join(token for token, *_ in group), *flags)
        for flags, group in groupby(zip(tokens, off, changed), key=lambda row: row[1:])
    ]


def _missing(tokens: List[str], text: str) -> List[bool]:
    """Return, for each token, whether another text has no match for it.

    Words are matched in order.  In a translation of more than ``MOST_WORDS`` words, each word that
    occurs anywhere in the other text has a match.  White space is never missing.

    Args:
        tokens: tokens of a translation, including white space.
        text: the other text.
    """
    places = [i for i, token in enumerate(tokens) if not token.isspace()]
    words = [tokens[i] for i in places]
    wanted = [token for token in _TOKEN.findall(text) if not token.isspace()]
    missing = [not token.isspace() for token in tokens]
    if len(words) > MOST_WORDS:
        known = set(wanted)
        for i, word in zip(places, words):
            missing[i] = word not in known
        return missing
    for block in SequenceMatcher(None, words, wanted, autojunk=False).get_matching_blocks():
        for i in places[block.a : block.a + block.size]:
            missing[i] = False
    return missing
