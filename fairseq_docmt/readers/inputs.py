"""Texts of a test set as read from files, before source, reference and systems are matched."""

from typing import Dict, List, NamedTuple, Optional, Tuple, Union


class Lines(NamedTuple):
    """Plain text: one sentence per line; a blank line ends a document."""

    path: str
    lines: List[str]


class Output(NamedTuple):
    """Output of ``fairseq-generate``.

    Attributes:
        path: path of the file.
        hypotheses, references: texts by line number, from 0.
        missing: line numbers without a translation, which are empty in ``hypotheses``.
    """

    path: str
    hypotheses: Dict[int, str]
    references: Dict[int, str]
    missing: Tuple[int, ...] = ()


class Document(NamedTuple):
    """Document with an id, as read from a file.

    Attributes:
        id: name of the document.
        segments: sentences, paragraphs or the whole text.
        numbers: number or name of each segment in the file; None if the file has none.
        missing: indices of the segments that the file has no text for; they are empty in
            ``segments``.
        bad: indices of the segments that the file marks as bad (``is_bad_source``).
        groups: group of each segment for grouped scores, such as its domain; empty without groups.
    """

    id: str
    segments: List[str]
    numbers: Optional[List[str]] = None
    missing: Tuple[int, ...] = ()
    bad: Tuple[int, ...] = ()
    groups: Tuple[str, ...] = ()


class Documents(NamedTuple):
    """Text in a format with document ids.

    Attributes:
        path: path of the file.
        documents: its documents.
        language: code of the language; None if the file does not state it.
    """

    path: str
    documents: List[Document]
    language: Optional[str] = None


Input = Union[Lines, Output, Documents]
