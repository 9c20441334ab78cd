"""Documents and segments of a test set, and functions that match other texts with them."""

from itertools import groupby
from typing import List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Document, Documents, Input, Lines, Output

#: Maximum number of segments or documents that a note names.
SHOWN = 5
#: Words in notes on translations that a system lacks.
TAKEN_FOR_EMPTY = "taken for empty"
#: Error for a text or scores whose segments are only known by their order.
NOT_BY_ORDER = (
    "{path} has no segment numbers, and {test_set} does not list its segments document by document "
    "and by number, so their order is unclear; give records with doc_id and segment"
)


class Mismatch(UserError):
    """Error that is raised if the segments of a text do not match the segments of the test set.

    The documents of the text may still match, so that alignment can help.
    """


class Gaps(NamedTuple):
    """Segments of a test set that cannot be scored because of one of its texts.

    Attributes:
        missing: (segments,) bool, True if the text lacks the segment.
        bad: (segments,) bool, True if the text marks the segment as bad.
    """

    missing: np.ndarray
    bad: np.ndarray


class Layout(NamedTuple):
    """Documents and segments of a test set, with which other texts are matched.

    Attributes:
        path: file that defines the documents and segments, for messages.
        index: document boundaries, and line of each segment.
        ids: (documents,) names of the documents; None if the text has none.
        numbers: for each document, the names of its segments, or None if they have none; None for
            plain text.
        by_docids: whether the documents come from a file with the document id of each line
            (``--docids``), so that no blank lines separate them.
        reordered: whether the file has the segments in another order, so that texts without ids
            cannot be matched line by line.
    """

    path: str
    index: DocumentIndex
    ids: Optional[List[str]] = None
    numbers: Optional[List[Optional[List[str]]]] = None
    by_docids: bool = False
    reordered: bool = False

    def sentences(self, text: Input) -> List[str]:
        """Return the segments of another text, in the order of the test set.

        Raises:
            Mismatch: the segments of the text do not match the test set, but alignment may help.
            UserError: the text lacks documents or segments of the test set, or cannot be matched
                by order (:meth:`refuse_by_order`).
        """
        if isinstance(text, Output):
            return [text.hypotheses[number] for number in self.numbers_of(text)]
        if isinstance(text, Lines):
            return self._by_line(text)
        found = []
        for place, document in enumerate(self._documents(text)):
            found += self._segments(text.path, place, document)
        return found

    def refuse_by_order(self, path: str) -> None:
        """Raise an error if the test set was reordered; texts can then not be matched by order.

        Args:
            path: file of the text to match, for the message.

        Raises:
            UserError: the test set is not in the order of the file that defines it.
        """
        if self.reordered:
            raise UserError(NOT_BY_ORDER.format(path=path, test_set=self.path))

    @property
    def segment_numbers(self) -> Optional[List[str]]:
        """(segments,) number or name of each segment in its document, as strings from the file.

        None unless all segments have one.
        """
        if not self.numbers or None in self.numbers:
            return None
        return [number for numbers in self.numbers for number in numbers]

    def filled(self, text: Input) -> Input:
        """Return a text with an empty segment in place of each segment that is missing from it.

        Missing documents are found by their ids, and missing segments by their names in the
        document.  In an output of ``fairseq-generate``, missing sentences are found by their
        numbers.  If the text or the test set has no ids, names or numbers, nothing is added.
        Documents that are not in the test set are kept, at the end.

        Raises:
            UserError: the numbers of an output do not show which sentences are missing.
        """
        if isinstance(text, Output):
            return self._output_filled(text)
        if not isinstance(text, Documents) or self.ids is None:
            return text
        found = {document.id: document for document in text.documents}
        sizes, numbers = np.diff(self.index.starts), self.numbers or [None] * len(self.ids)
        filled = [
            _filled(found.get(name), name, int(size), wanted)
            for name, size, wanted in zip(self.ids, sizes, numbers)
        ]
        known = set(self.ids)
        others = [document for name, document in found.items() if name not in known]
        return text._replace(documents=[*filled, *others])

    def _output_filled(self, text: Output) -> Output:
        """Return an output with empty translations of the sentences that it lacks.

        Raises:
            UserError: other sentences are missing if its numbers count blank lines than if not.
        """
        counting = (self.index.line_ids.tolist(), range(self.index.num_sentences))
        fitting = [rows for rows in counting if text.hypotheses.keys() <= set(rows)]
        lacking = [[row not in text.hypotheses for row in rows] for rows in fitting]
        if len(fitting) > 1 and lacking[0] != lacking[1]:
            raise UserError(
                f"{text.path}: which sentences are missing depends on whether its numbers (H-0, "
                "H-1, ...) count the blank lines between documents; translate all of them"
            )
        if not fitting:
            return text
        lacks = tuple(row for row in fitting[0] if row not in text.hypotheses)
        filled = {**text.hypotheses, **dict.fromkeys(lacks, "")}
        return text._replace(hypotheses=filled, missing=lacks)

    def with_gaps(self, text: Input, gone: np.ndarray) -> Input:
        """Return a system's text with empty segments where it lacks what is left out anyway.

        They are added to documents of the text whose segments have names.

        Args:
            text: the system's translations.
            gone: (segments,) bool, True for segments that a reference or the source lacks.
        """
        if not isinstance(text, Documents) or not self.ids or not self.numbers:
            return text
        places = zip(self.ids, self.numbers, self.index.spans)
        names = {
            name: [number for number, is_gone in zip(numbers or (), gone[a:b]) if is_gone]
            for name, numbers, (a, b) in places
        }
        documents = [
            _filled(document, document.id, len(document.segments), names.get(document.id, []))
            if document.segments
            else document
            for document in text.documents
        ]
        return text._replace(documents=documents)

    def gaps_of_side(self, text: Input) -> Gaps:
        """Return the gaps of a reference or source, which lacks a segment without text too.

        Args:
            text: the reference or source, completed by :meth:`filled`.
        """
        gaps = self.gaps(text)
        return gaps._replace(
            missing=gaps.missing | np.array([not line for line in self.sentences(text)])
        )

    def gaps(self, text: Input) -> Gaps:
        """Return which segments of the test set are missing from a text or marked as bad in it.

        In a document whose segments do not match the test set, none is known to be missing or bad.

        Args:
            text: a text with all documents of the test set.  An incomplete text must first be
                completed by :meth:`filled`, which remembers the segments that it adds.
        """
        size = self.index.num_sentences
        missing, bad = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        if isinstance(text, Output) and text.missing:
            missing |= np.isin(self.numbers_of(text), text.missing)
        if isinstance(text, Documents):
            for place, document in enumerate(self._documents(text)):
                wanted = self.numbers[place] if self.numbers else None
                begin, end = self.index.spans[place]
                if len(document.segments) != end - begin:
                    continue
                order = {number: at for at, number in enumerate(wanted or ())}
                for mask, marked in ((missing, document.missing), (bad, document.bad)):
                    for at in marked:
                        at = order[document.numbers[at]] if order and document.numbers else at
                        mask[int(begin) + at] = True
        return Gaps(missing, bad)

    def segments_by_document(self, text: Input) -> List[List[str]]:
        """Return the segments of each document of a text, though they may not match the test set.

        Only the documents have to match the test set; the numbers of their segments may differ.  In
        plain text, each block between blank lines is a document.  If there are not as many blocks
        as documents in the test set, each line is a document.

        Raises:
            UserError: the documents of the text do not match the test set, or an output of
                ``fairseq-generate`` lacks segments.
        """
        if isinstance(text, Output):
            segments = self.sentences(text)
            return [segments[a:b] for a, b in self.index.spans]
        if isinstance(text, Documents):
            names = self.numbers or [None] * self.index.num_documents
            return [*map(_in_order, self._documents(text), names)]
        blocks = [[*lines] for filled, lines in groupby(text.lines, key=bool) if filled]
        lines = [[line] for line in text.lines if line]
        for documents in (blocks, lines):
            if len(documents) == self.index.num_documents:
                return documents
        raise UserError(
            f"{text.path} has {len(blocks)} documents (blocks between blank lines) and "
            f"{len(lines)} lines, but {self.path} has {self.index.num_documents} documents; "
            "separate them with blank lines, or use JSON lines with doc_id"
        )

    def notes(self, name: str, text: Input) -> List[str]:
        """Return notes for the user on how a text was matched with the test set.

        They report documents that are not in the test set, blank lines that were taken for empty
        translations, and documents or segments that were matched by order because they have no ids.

        Args:
            name: name of the system, or path of a reference or source.
            text: the text.
        """
        if isinstance(text, Lines):
            lines = self._lines(text)
            taken = self._without_ends(text) and not self._may_be_ends(lines)
            blank = lines.count("") if taken else 0
            return [f"{name}: {blank} blank lines {TAKEN_FOR_EMPTY} translations"] * (blank > 0)
        if not isinstance(text, Documents):
            return []
        if self.ids is None:
            return [f"{name}: documents in the order of the file, as {self.path} has no ids"]
        known = set(self.ids)
        extra = [d.id for d in text.documents if d.segments and d.id not in known]
        what = f"{len(extra)} documents that are not in {self.path} ({named(extra)})"
        notes = [f"{name}: left out, {what}"] * bool(extra)
        numbered = self.numbers is not None and None not in self.numbers
        if numbered and any(d.numbers is None and len(d.segments) > 1 for d in text.documents):
            notes.append(f"{name}: segments in the order of the file, as they have no numbers")
        return notes

    def _documents(self, text: Documents) -> List[Document]:
        """Return the documents of another text in the order of the test set.

        If the test set has no document ids, the documents are matched by their order.

        Raises:
            UserError: the text lacks a document or, if documents are matched by their order, has
                another number of documents.
        """
        if self.ids is None:
            if len(text.documents) != self.index.num_documents:
                raise UserError(
                    f"{text.path} has {len(text.documents)} documents, but {self.path} has "
                    f"{self.index.num_documents}; give the files of one test set"
                )
            return text.documents
        found = {document.id: document for document in text.documents}
        for name in self.ids:
            if name not in found:
                raise UserError(
                    f"{text.path} lacks the document {name} of {self.path}; translate all of it"
                )
        return [found[name] for name in self.ids]

    def _segments(self, path: str, place: int, document: Document) -> List[str]:
        size = int(self.index.starts[place + 1] - self.index.starts[place])
        wanted = self.numbers[place] if self.numbers else None
        other = "its reference or source" if path == self.path else self.path
        if wanted is not None and document.numbers is not None:
            segments = dict(zip(document.numbers, document.segments))
            for number in wanted:
                if number not in segments:
                    if wanted == [str(n + 1) for n in range(size)] and "0" in segments:
                        raise UserError(
                            f"{path}: the segments of document {document.id} are counted from 0, "
                            f"in {other} from 1; count both alike"
                        )
                    if len(segments) == size and segments.keys().isdisjoint(wanted):
                        raise UserError(
                            f"{path}: the first segment of document {document.id} is called "
                            f"{[*segments][0]}, in {other} {wanted[0]}; number both alike"
                        )
                    raise UserError(
                        f"{path}: document {document.id} lacks segment {number} of {other}; "
                        "translate all of it"
                    )
            for number in segments:
                if number not in wanted:
                    raise UserError(
                        f"{path}: document {document.id} has a segment {number}, which {other} "
                        "lacks; give texts of the same segments"
                    )
            return [segments[number] for number in wanted]
        segments = _segments_of(document, size)
        if len(segments) != size:
            raise Mismatch(
                f"{path}: document {document.id} has {len(segments)} segments, but {size} in "
                f"{other}"
            )
        if size > 1:
            self.refuse_by_order(path)
        return segments

    def numbers_of(self, text: Output) -> List[int]:
        """Return the number of each segment in an output of ``fairseq-generate`` (12 for H-12).

        Some outputs count the blank lines between documents, and some do not; both are accepted.
        Segments are in the order of the test set.

        Raises:
            UserError: the output lacks segments, or has segments that the test set lacks, or the
                test set was reordered.
        """
        self.refuse_by_order(text.path)
        wanted = set(self.index.line_ids.tolist())
        blank = text.hypotheses.keys() - wanted
        if not any(text.hypotheses.get(row) for row in blank):
            # fairseq-interactive writes an empty translation for each blank line.
            found = {row: line for row, line in text.hypotheses.items() if row not in blank}
            text = text._replace(hypotheses=found)
        for rows in (self.index.line_ids.tolist(), range(self.index.num_sentences)):
            if text.hypotheses.keys() == set(rows):
                return [*rows]
        if self.by_docids and len(text.hypotheses) == len(wanted):  # numbers count blank lines
            return sorted(text.hypotheses)
        missing, extra = wanted - text.hypotheses.keys(), text.hypotheses.keys() - wanted
        if missing and not extra:
            raise UserError(
                f"{text.path} lacks {len(missing)} of {len(wanted)} sentences of {self.path}, the "
                f"first in line {min(missing) + 1}; translate all of it"
            )
        raise UserError(
            f"{text.path} and {self.path} differ: line {min(missing | extra) + 1} is a sentence in "
            "only one of them; give the files of one test set"
        )

    def _by_line(self, text: Lines) -> List[str]:
        """Return the segments of plain text, matched by blank lines or by line numbers.

        Raises:
            Mismatch: the lines do not match the test set.
            UserError: the test set was reordered.
        """
        self.refuse_by_order(text.path)
        lines, rows = self._lines(text), self.index.line_ids.tolist()
        blocks = [[*block] for filled, block in groupby(lines, key=bool) if filled]
        if not self.by_docids and [*map(len, blocks)] == np.diff(self.index.starts).tolist():
            return [line for block in blocks for line in block]  # any number of blank lines between
        wanted = self._num_lines()
        if self._without_ends(text):
            if self._may_be_ends(lines):
                raise Mismatch(
                    f"{text.path}: line {lines.index('') + 1} is blank, which may be an empty "
                    "translation or the end of a document, as there are only as many lines as "
                    f"sentences in {self.path}; translate all of it and keep its blank lines, or "
                    "give --docids"
                )
            return lines
        if len(lines) != wanted:
            raise Mismatch(
                f"{text.path} has {len(lines)} lines, but {self.path} has {wanted} "
                f"({self.index.num_sentences} without blank lines)"
            )
        ends = set(range(wanted)) - set(rows)
        for row in sorted(ends):
            if lines[row]:
                raise Mismatch(
                    f"{text.path}: line {row + 1} has text where a document ends in {self.path}; "
                    "blank lines must be the same in both, or give --docids"
                )
        return [lines[row] for row in rows]

    def _num_lines(self) -> int:
        """Return the number of lines of the test set, including blank lines between documents."""
        return int(self.index.line_ids[-1]) + 1 if self.index.num_sentences else 0

    def _lines(self, text: Lines) -> List[str]:
        """Return the lines of a text, without final blank lines that the test set does not have."""
        lines = text.lines
        while len(lines) > self._num_lines() and not lines[-1]:
            lines = lines[:-1]
        return lines

    def _without_ends(self, text: Lines) -> bool:
        """Return whether a text has a line per segment, but no blank lines between documents.

        The result is False if the test set has no blank lines between documents either, because it
        is a single document or has document ids for its lines.
        """
        size = self.index.num_sentences
        return len(self._lines(text)) == size and size < self._num_lines()

    def _may_be_ends(self, lines: List[str]) -> bool:
        """Return whether the blank lines of a text may be ends of documents.

        With its blank lines, the text has as many lines as the test set has sentences.  So its
        blank lines are probably empty translations, but they may also be ends of documents if the
        text lacks sentences.  This is possible if there are as many blocks between blank lines as
        there are documents, or if no block is longer than the longest document.  If there are no
        blank lines, the result is False.
        """
        blocks = [len(list(group)) for filled, group in groupby(lines, key=bool) if filled]
        longest = np.diff(self.index.starts).max()
        fits = len(blocks) == self.index.num_documents or max(blocks, default=0) <= longest
        return "" in lines and fits


def layout_of(text: Optional[Input], docids: Optional[Sequence[str]] = None) -> Layout:
    """Return the documents and segments of a test set, as a text or document ids define them.

    Args:
        text: reference or source; None to use the document ids alone.
        docids: document id of each line of plain text; None if blank lines separate documents.

    Raises:
        UserError: a document of the text is empty, or the numbers of lines and document ids differ.
    """
    if isinstance(text, Documents):
        index = DocumentIndex.from_lengths([len(d.segments) for d in text.documents])
        ids = [document.id for document in text.documents]
        if 0 in (lengths := [len(d.segments) for d in text.documents]):
            raise UserError(f"{text.path}: document {ids[lengths.index(0)]} is empty; leave it out")
        numbers = [document.numbers for document in text.documents]
        return Layout(text.path, index, ids, numbers, reordered=text.reordered)
    if docids is None:
        return Layout(
            text.path, DocumentIndex.from_sizes([2 if line else 1 for line in text.lines])
        )
    if text is not None:
        _check_docids(text, docids)
    names, sizes = _groups(docids)
    starts = np.cumsum([0, *sizes])
    path = "--docids" if text is None else text.path
    return Layout(path, DocumentIndex(np.arange(len(docids)), starts), names, by_docids=True)


def by_docids(text: Input, docids: Sequence[str]) -> Input:
    """Divide plain text into documents by the document id of each line.

    Texts in other formats are returned unchanged.

    Raises:
        UserError: the numbers of lines and document ids differ.
    """
    if not isinstance(text, Lines):
        return text
    _check_docids(text, docids)
    names, sizes = _groups(docids)
    starts = np.cumsum([0, *sizes])
    documents = [Document(name, text.lines[a:b]) for name, a, b in zip(names, starts, starts[1:])]
    return Documents(text.path, documents)


def _check_docids(text: Lines, docids: Sequence[str]) -> None:
    if len(docids) != len(text.lines):
        raise UserError(
            f"{text.path} has {len(text.lines)} lines ({text.lines.count('')} blank), but --docids "
            f"has {len(docids)}; it needs one for each line, blank ones too"
        )


def _groups(docids: Sequence[str]) -> Tuple[List[str], List[int]]:
    """Return the names and the line counts of documents, given the document id of each line."""
    groups = [(name, len(list(lines))) for name, lines in groupby(docids)]
    return [name for name, _ in groups], [size for _, size in groups]


def _filled(
    document: Optional[Document], name: str, size: int, wanted: Optional[List[str]]
) -> Document:
    """Return a document with an empty segment for each segment that it lacks.

    If the segments have no names, a document without text lacks all of them, unless it has an empty
    one for each, and any other document is returned unchanged.

    Args:
        document: a document; None if it is missing.
        name: id of the document.
        size: number of its segments in the test set.
        wanted: names of its segments in the test set; None if they have none.
    """
    document = document or Document(name, [], [])
    if wanted is None or document.numbers is None:
        segments = _segments_of(document, size)
        lacks_all = not any(segments) and len(segments) != size
        return Document(name, [""] * size, wanted, tuple(range(size))) if lacks_all else document
    lacks = [number for number in wanted if number not in document.numbers]
    first = len(document.segments)
    return document._replace(
        segments=document.segments + [""] * len(lacks),
        numbers=document.numbers + lacks,
        missing=document.missing + tuple(range(first, first + len(lacks))),
        groups=document.groups and document.groups + ("",) * len(lacks),
    )


def _in_order(document: Document, wanted: Optional[List[str]]) -> List[str]:
    """Return the segments of a document, in the order of the test set if they have its names."""
    if wanted and document.numbers and {*document.numbers} == {*wanted}:
        segments = dict(zip(document.numbers, document.segments))
        return [segments[number] for number in wanted]
    return document.segments


def _segments_of(document: Document, size: int) -> List[str]:
    """Return the segments of a document; that of a record without text is one empty segment.

    Args:
        document: a document.
        size: number of its segments in the test set.
    """
    return document.segments or [""] * (size == 1 and document.numbers is None)


def named(names: Sequence[str]) -> str:
    """Join names into one string; only the first five are named, the others are counted."""
    more = len(names) - SHOWN
    return "; ".join(names[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def documents_of(
    index: DocumentIndex,
    ids: Optional[Sequence[str]],
    segments: Sequence[str],
    numbers: Optional[Sequence[str]] = None,
) -> List[Document]:
    """Divide the segments of a test set into documents.

    Args:
        index: document boundaries.
        ids: (documents,) names of the documents; None to name them by their numbers, from 1.
        segments: (segments,) text of all documents.
        numbers: (segments,) names of the segments in their documents; None if they have none.
    """
    names = ids or [str(number) for number in range(1, index.num_documents + 1)]
    return [
        Document(name, list(segments[a:b]), None if numbers is None else list(numbers[a:b]))
        for name, (a, b) in zip(names, index.spans)
    ]
