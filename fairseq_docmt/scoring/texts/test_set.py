"""A test set: translations of documents by several systems, with references and source."""

from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Input
from fairseq_docmt.scoring.texts import alignment
from fairseq_docmt.scoring.texts.layout import TAKEN_FOR_EMPTY, Gaps, Layout, named
from fairseq_docmt.scoring.texts.matching import Reading


class Translations(NamedTuple):
    """A test set: translations by several systems, references and source, segment by segment.

    Attributes:
        index: document boundaries, and line of each segment.
        systems: system -> (segments,) translations.
        references: one or more references, each (segments,).
        source: (segments,) source; None if unknown.
        whole: system -> (documents,) translations of whole documents.  Empty if the segments of
            every system match the test set; otherwise it has all systems, also those that do not
            match and are not in ``systems``.
        ids: (documents,) names of the documents; None if the test set has none.
        numbers: (segments,) names of the segments in their documents; None if a segment has none.
        kept: bool array with an element for each segment in the files, which is False if the
            segment is left out of the evaluation; None if all are evaluated.
        whole_position: (segments,) position of each segment in its document, from 0, where segments
            left out of the evaluation are counted too; None if all are evaluated.
        groups: (segments,) group of each segment, by which scores are reported; None for no groups.
        notes: notes for the user on how the texts were matched and what looks wrong.
        aligned: system -> report on its alignment, for systems that were aligned with the
            reference.
        language: code of the target language; None if it cannot be told from the files.
        reordered: whether the file that defines the segments has them in another order.
        procedure: processing steps that changed the texts, such as ``missing:skip``, to be given in
            signatures.
    """

    index: DocumentIndex
    systems: Dict[str, List[str]]
    references: List[List[str]]
    source: Optional[List[str]] = None
    whole: Dict[str, List[str]] = {}
    ids: Optional[List[str]] = None
    numbers: Optional[List[str]] = None
    kept: Optional[np.ndarray] = None
    whole_position: Optional[np.ndarray] = None
    groups: Optional[List[str]] = None
    notes: Sequence[str] = ()
    aligned: Dict[str, alignment.Report] = {}
    language: Optional[str] = None
    reordered: bool = False
    procedure: Sequence[str] = ()

    @property
    def signature(self) -> str:
        """Size of the test set and steps that changed its texts, e.g. ``docs:9|sents:99|...``."""
        counts = [f"docs:{self.index.num_documents}", f"sents:{self.index.num_sentences}"]
        return "|".join([*counts, *self.procedure])

    @property
    def position(self) -> np.ndarray:
        """(segments,) position of each segment in its document, from 0.

        Segments left out of the evaluation are counted too.
        """
        return self.index.position if self.whole_position is None else self.whole_position

    @property
    def context_notes(self) -> List[str]:
        """Notes for measures that read earlier segments as context: those that are left out."""
        if np.array_equal(self.position, self.index.position):
            return []
        return ["segments that are left out are missing from the context of later ones, too"]

    @property
    def names(self) -> List[str]:
        """Names of all systems; the first system is the baseline."""
        return [*(self.whole or self.systems)]

    def joined(self, sentences: Sequence[str]) -> List[str]:
        """Return one line for each document of a text, by joining the document's segments."""
        return [" ".join(sentences[a:b]) for a, b in self.index.spans]

    def documents(self, name: str) -> List[str]:
        """Return a system's translation of each document, as one line."""
        return self.whole[name] if name in self.whole else self.joined(self.systems[name])

    def place(self, segment: int) -> str:
        """Return a segment's document and its number there, e.g. ``talk7, 12``.

        The number is that of the file; if there is none, segments are counted from 1.
        """
        number = self.numbers[segment] if self.numbers else self.position[segment] + 1
        return f"{self.name_of(int(self.index.document[segment]))}, {number}"

    def name_of(self, document: int) -> str:
        """Return the name of the document with this index or, if it has none, its number from 1."""
        return self.ids[document] if self.ids else str(document + 1)


def without_gaps(
    texts: Translations,
    layout: Layout,
    of_sides: Gaps,
    systems: Dict[str, Input],
    reading: Reading,
) -> Translations:
    """Leave out the segments that a text lacks or marks as bad, and return the smaller test set.

    An empty translation of a system is scored.  Notes on the segments that are left out are
    appended to ``texts.notes``.

    Args:
        texts: test set with all segments.
        layout: its documents and segments.
        of_sides: segments that any reference or the source lacks or marks as bad.
        systems: texts of all systems.
        reading: settings; ``missing`` says whether segments that a system lacks are left out.

    Raises:
        UserError: no segment is left.
    """
    missing, bad = of_sides.missing, of_sides.bad.copy()
    lacking, notes = missing.copy(), []
    for name, text in systems.items():
        gaps = layout.gaps(text)
        bad |= gaps.bad
        if reading.missing == "skip":
            notes += _gap_notes(texts, gaps.missing & ~lacking, f"which {name} lacks")
            lacking |= gaps.missing
        elif count := int((gaps.missing & ~missing).sum()):
            texts.notes.append(f"{name}: {count} missing segments {TAKEN_FOR_EMPTY}")
    notes += _gap_notes(texts, missing, "without a reference or source")
    notes += _gap_notes(texts, bad & ~lacking, "marked as bad (is_bad_source)")
    dropped = lacking | bad
    if not notes:
        return texts
    if texts.whole:  # their documents cannot be cut
        dropped, cut = _whole_documents(texts.index, dropped), dropped
        rest = _whole_documents(texts.index, dropped & ~cut)
        notes += _gap_notes(texts, rest, "with these segments, as documents are scored as a whole")
    if dropped.all():
        raise UserError(f"{layout.path}: nothing is left to score; {'; '.join(notes)}")
    texts.notes.extend(notes)
    index = layout.index.without(dropped)

    def kept(sentences: List[str]) -> List[str]:
        return [text for text, gone in zip(sentences, dropped) if not gone]

    return texts._replace(
        index=index,
        systems={name: kept(sentences) for name, sentences in texts.systems.items()},
        references=[kept(sentences) for sentences in texts.references],
        source=texts.source and kept(texts.source),
        whole={name: [rows[n] for n in index.numbers] for name, rows in texts.whole.items()},
        ids=[texts.name_of(number) for number in index.numbers],
        numbers=texts.numbers and kept(texts.numbers),
        kept=~dropped,
        whole_position=layout.index.position[~dropped],
        groups=texts.groups and kept(texts.groups),
    )


def _whole_documents(index: DocumentIndex, segments: np.ndarray) -> np.ndarray:
    """Return which segments are in a document with one of the given segments: (segments,) bool."""
    return np.isin(index.document, np.unique(index.document[segments]))


def _gap_notes(texts: Translations, gone: np.ndarray, why: str) -> List[str]:
    """Return a list with one note that names the left-out segments; empty if there are none.

    Args:
        texts: test set with all segments.
        gone: (segments,) bool, True for the left-out segments.
        why: reason that the note gives, such as ``marked as bad``.
    """
    if not gone.any():
        return []
    whole = [n for n, (a, b) in enumerate(texts.index.spans) if gone[a:b].all()]
    single = np.flatnonzero(gone & ~np.isin(texts.index.document, whole)).tolist()
    parts = []
    if whole:
        parts.append(f"{len(whole)} documents ({named([texts.name_of(n) for n in whole])})")
    if single:
        parts.append(f"{len(single)} segments ({named([texts.place(n) for n in single])})")
    return [f"left out, {why}: {' and '.join(parts)}"]
