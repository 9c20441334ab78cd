"""Matching of translations with the segments of a test set, and settings for reading the texts."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Documents, Input, Lines, Output
from fairseq_docmt.scoring.texts import alignment
from fairseq_docmt.scoring.texts.layout import Layout, Mismatch, layout_of, named


class Reading(NamedTuple):
    """Settings for reading the texts of a test set.

    Attributes:
        docids: file with a document id for each line, for texts without blank lines between
            documents.
        align: code of the target language, to align documents whose segments do not match the
            reference; None to refuse such documents.
        align_all: whether to align documents with the right number of segments as well.
        missing: what to do with segments that a system lacks.  ``skip`` leaves them out for all
            systems, ``empty`` treats them as empty translations, and None refuses the system.
        strip_wrappers: whether to remove what language models write around translations, such as
            "Here is the translation:".
        by: field in the records of the reference or source by whose values scores are grouped, such
            as ``domain``, or attribute of the documents in XML; None for no groups.
        whole_documents: whether systems whose segments do not match are scored as whole documents.
        role: text to read from the files of systems: ``source``, ``reference`` or ``system``.
        plain: whether to read all files as plain text, whatever their content looks like.
    """

    docids: Optional[str] = None
    align: Optional[str] = None
    align_all: bool = False
    missing: Optional[str] = None
    strip_wrappers: bool = False
    by: Optional[str] = None
    whole_documents: bool = False
    role: str = "system"
    plain: bool = False


DEFAULT_READING = Reading()


def layout_and_references(
    references: Sequence[Input],
    source: Optional[Input],
    ids: Optional[List[str]],
    systems: Dict[str, Input],
    notes: List[str],
) -> Tuple[Layout, List[Input]]:
    """Return the documents and segments of the test set, and its references.

    The documents and segments are defined by the first reference or, without references, by the
    source.  A document for which the first reference lacks segments has those of another reference
    or of the source, if this has all of them and more.  If only the source has blank lines between
    documents, it is used instead of the reference, and if only the source has ids, these become the
    ids of the test set.

    Args:
        references: reference texts; if empty, the T- lines of the systems are the reference.
        source: source text, or None.
        ids: document id of each line of plain text (``--docids``); None if blank lines separate
            documents.
        systems: texts of the systems.
        notes: list to which a note on documents without a reference is appended.

    Raises:
        UserError: nothing defines the documents; the first reference has no text; the T- lines are
            missing, differ or have unknown words; or the text that defines the segments does not
            match the document ids.
    """
    if references:
        first = _completed(_without_empty(references[0], notes), [*references[1:], source])
        if ids is None and _has_the_ends(source, first):
            first = source
        layout = _with_ids_of(source, layout_of(first, ids))
        return layout, [layout.filled(each) for each in references]
    if source is None and ids is None:
        raise UserError(
            "nothing says where documents end and whether sentences are missing; give --reference, "
            "or --source (or --docids) for the T- lines of fairseq-generate"
        )
    layout = layout_of(source, ids)
    return layout, [_own_references(systems)]


def _has_the_ends(source: Optional[Input], reference: Input) -> bool:
    """Return whether the source separates documents by blank lines, but the reference does not.

    The result is False unless both are plain text with the same number of sentences.
    """
    if not (isinstance(source, Lines) and isinstance(reference, Lines)):
        return False
    lines = [line for line in source.lines if line]
    return "" not in reference.lines and 0 < len(lines) == len(reference.lines) < len(source.lines)


def _with_ids_of(source: Optional[Input], layout: Layout) -> Layout:
    """Give a layout without ids the ids of the source, if this has the same segments."""
    if layout.ids is not None or not isinstance(source, Documents) or source.reordered:
        return layout
    of_source = layout_of(source)
    if of_source.index.starts.tolist() != layout.index.starts.tolist():
        return layout
    return layout._replace(path=source.path, ids=of_source.ids, numbers=of_source.numbers)


def _without_empty(text: Input, notes: List[str]) -> Input:
    """Drop the empty documents of the first reference, because they have nothing to score.

    A reference without document ids is returned unchanged.

    Args:
        text: the reference.
        notes: list to which a note on the empty documents is appended.

    Raises:
        UserError: all documents are empty.
    """
    if not isinstance(text, Documents):
        return text
    empty = [document.id for document in text.documents if not document.segments]
    if len(empty) == len(text.documents):
        raise UserError(f"{text.path} has no text; its documents are empty")
    if empty:
        notes.append(f"left out, without a reference: {len(empty)} documents ({named(empty)})")
    return text._replace(documents=[d for d in text.documents if d.segments])


def _completed(first: Input, others: Sequence[Optional[Input]]) -> Input:
    """Add the segments that the first reference lacks, so that its documents have all segments.

    The segments of a document are replaced with those of another text that has all of them and
    more.  Only their number and their names are used.

    Args:
        first: the first reference.
        others: other references and the source; None if there is no source.
    """
    if not isinstance(first, Documents):
        return first
    documents = {document.id: document for document in first.documents}
    for text in others:
        for other in text.documents if isinstance(text, Documents) else ():
            own = documents.get(other.id)
            if own and own.numbers and {*own.numbers} < {*(other.numbers or ())}:
                reordered = own.reordered or other.reordered
                documents[other.id] = other._replace(reordered=reordered)
    return first._replace(documents=[*documents.values()])


def _own_references(inputs: Dict[str, Input]) -> Output:
    """Return the references that outputs of ``fairseq-generate`` contain in their T- lines.

    Args:
        inputs: system -> text.

    Raises:
        UserError: a system has no T- lines, the T- lines of two systems differ, or they contain
            unknown words.
    """
    for text in inputs.values():
        if not isinstance(text, Output) or not text.references:
            raise UserError(f"{text.path} is text without references; give them by --reference")
    (first, wanted), *others = [(name, text.references) for name, text in inputs.items()]
    for name, text in others:
        if text != wanted:
            raise UserError(
                f"{name} and {first} have different references (T- lines); give the reference by "
                "--reference"
            )
    if any("<<unk>>" in line for line in wanted.values()):
        raise UserError(
            f"the T- lines of {inputs[first].path} have unknown words (<<unk>>); give the "
            "reference by --reference"
        )
    return Output(inputs[first].path, wanted, {})


class Matched(NamedTuple):
    """Translations of a system after matching them with the test set.

    Attributes:
        segments: (segments,) translations; None if only the documents match.
        documents: (documents,) translations if only the documents match, otherwise empty.
        aligned: number of documents that were divided into segments by aligning them with the
            reference.
    """

    segments: Optional[List[str]]
    documents: Sequence[str] = ()
    aligned: int = 0


def match_system(
    layout: Layout,
    name: str,
    text: Input,
    reference: List[str],
    reading: Reading,
    notes: List[str],
) -> Matched:
    """Match the translations of a system with the segments of the test set, and return them.

    If the settings ask for it, documents whose segments do not match are aligned with the
    reference, or all documents of the system are kept whole, without segments.

    Args:
        layout: documents and segments of the test set.
        name: name of the system.
        text: the system's translations, as read from its file.
        reference: (segments,) reference, with which documents are aligned.
        reading: settings, such as whether to align.
        notes: list to which notes on the system are appended.

    Raises:
        UserError: segments do not match, and neither alignment nor whole documents are requested.
    """
    if not reading.align_all:
        try:
            segments = layout.sentences(text)
            notes += layout.notes(name, text)
            return Matched(segments)
        except Mismatch as mismatch:
            if reading.align is None and not reading.whole_documents:
                raise UserError(
                    f"{mismatch}; align them with --align LANGUAGE, or use `metrics` with "
                    "--metrics d-bleu,d-chrf"
                ) from None
    notes += layout.notes(name, text) if isinstance(text, Documents) else []
    documents = layout.segments_by_document(text)
    if reading.align is None:
        notes.append(f"{name}: whole documents, segments do not match {layout.path}")
        return Matched(None, [" ".join(each) for each in documents])
    segments, aligned, missing = [], 0, layout.gaps(text).missing
    for parts, (a, b) in zip(documents, layout.index.spans):
        if reading.align_all or len(parts) != b - a:
            aligned += any(parts)
            there = np.flatnonzero(~missing[a:b])
            wanted, whole = [reference[a + place] for place in there], " ".join(parts)
            parts = [""] * (b - a)
            if wanted:  # no words of other segments are moved into a segment that is missing
                found = alignment.align_document(wanted, whole, reading.align)
                for place, part in zip(there, found):
                    parts[place] = part
        segments += parts
    return Matched(segments, aligned=aligned)
