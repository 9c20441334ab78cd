"""Special symbols of the models, which must not occur as words of a text."""

from typing import Iterable, Optional

SENTENCE_SEPARATOR = "<sep>"
BEGIN_OF_DOCUMENT = "<bod>"
DOCUMENT_SYMBOLS = (SENTENCE_SEPARATOR, BEGIN_OF_DOCUMENT)

#: symbols of every dictionary of a document task; words of its text are others
RESERVED = frozenset(("<s>", "<pad>", "</s>", *DOCUMENT_SYMBOLS))


def first_reserved(words: Iterable[str]) -> Optional[str]:
    """Return the first word that is a special symbol of the models; None if there is none."""
    return next((word for word in words if word in RESERVED), None)


def complaint(place: str, word: str) -> str:
    """Return the error message for a text that contains a special symbol as a word.

    Args:
        place: where the word is, such as ``line 3``; the message begins with it.
        word: the special symbol.
    """
    return f"{place} has the word {word}, which is reserved for a symbol of the model"
