"""Texts of a test set as they stand in a file, before they are matched with each other."""

from typing import Dict, List, NamedTuple, Optional, Tuple, Union


class Lines(NamedTuple):
    """Plain text: one sentence per line; a blank line ends a document."""

    path: str
    lines: List[str]


class Output(NamedTuple):
    """Output of ``fairseq-generate``.

    Attributes:
        path: file.
        hypotheses, references: texts by line number, from 0.
        missing: line numbers without a translation, which are empty in ``hypotheses``.
    """

    path: str
    hypotheses: Dict[int, str]
    references: Dict[int, str]
    missing: Tuple[int, ...] = ()


class Document(NamedTuple):
    """A document with its id.

    Attributes:
        id: name of the document.
        segments: sentences, paragraphs or the whole text.
        numbers: names of the segments in the file; None if the file has none.
        missing: places of the segments without this text, which are empty in ``segments``.
        bad: places of the segments that the file marks as bad (``is_bad_source``).
        groups: value of a field for each segment, such as its domain; empty if none is wanted.
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
        path: file.
        documents: its documents.
        language: code of the language, if the file says it.
    """

    path: str
    documents: List[Document]
    language: Optional[str] = None


Input = Union[Lines, Output, Documents]
