"""Texts of a test set as read from files, before they are matched with each other."""

from typing import Dict, List, NamedTuple, Optional, Tuple, Union


class Lines(NamedTuple):
    """Plain text: one sentence per line; a blank line ends a document."""

    path: str
    lines: List[str]


class Output(NamedTuple):
    """Output of ``fairseq-generate``.

    Attributes:
        path: path of the file.
        hypotheses, references: text of each line, by line number (counted from 0).
        missing: numbers of the lines that lack a translation; their ``hypotheses`` are "".
    """

    path: str
    hypotheses: Dict[int, str]
    references: Dict[int, str]
    missing: Tuple[int, ...] = ()


class Document(NamedTuple):
    """A document with an id, as read from a file.

    Attributes:
        id: name of the document.
        segments: sentences, paragraphs or the whole text.
        numbers: number or name that each segment has in the file; None if the segments have none.
        missing: indices of the segments that the file has no text for; they are "" in ``segments``.
        bad: indices of the segments that the file marks as bad (``is_bad_source``).
        groups: group to which each segment belongs in grouped scores, such as its domain; empty if
            scores are not grouped.
        reordered: whether the file has the segments in another order, or has segments of other
            documents among them.
    """

    id: str
    segments: List[str]
    numbers: Optional[List[str]] = None
    missing: Tuple[int, ...] = ()
    bad: Tuple[int, ...] = ()
    groups: Tuple[str, ...] = ()
    reordered: bool = False


class Documents(NamedTuple):
    """Documents of a file in a format that has document ids.

    Attributes:
        path: path of the file.
        documents: the documents, in the order of the file.
        language: code of the language; None if the file does not state it.
    """

    path: str
    documents: List[Document]
    language: Optional[str] = None

    @property
    def reordered(self) -> bool:
        """Whether the file reorders a document's segments or mixes them with other documents."""
        return any(document.reordered for document in self.documents)


Input = Union[Lines, Output, Documents]
