"""How the texts of a test set are read, and how systems are matched with its segments."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Documents, Input, Lines, Output
from fairseq_docmt.scoring.texts import alignment
from fairseq_docmt.scoring.texts.layout import Layout, Mismatch, layout_of, named


class Reading(NamedTuple):
    """How the texts of a test set are read.

    Attributes:
        docids: file with the document of each line, for texts without blank lines.
        align: code of the target language, to align the documents of systems whose segments do
            not match.
        align_all: whether all documents are aligned.
        missing: ``skip`` to leave out the segments that a system lacks, for all systems; ``empty``
            to take them for empty translations; None to refuse them.
        strip_wrappers: whether what language models write around translations is removed.
        by: field of the records of a reference or source, or attribute of its documents, by which
            scores are grouped.
        whole_documents: whether systems whose segments do not match are kept as whole documents.
        role: which text of the files of systems is meant, see
            :func:`~fairseq_docmt.readers.read_input`.
        plain: whether all files are plain text.
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
    """Return the layout of the test set and its references.

    Args:
        references: references; without any, the T- lines of the systems are the reference.
        source: source text, or None.
        ids: document of each line, or None.
        systems: texts of the systems.
        notes: list to which a note of documents without a reference is added.

    Raises:
        UserError: see :func:`read_translations`.
    """
    if references:
        first = _without_empty(references[0], notes)
        if ids is None and _has_the_ends(source, first):
            first = source
        layout = layout_of(first, ids)
        return layout, [layout.filled(each) for each in references]
    if source is None and ids is None:
        raise UserError(
            "nothing says where documents end and whether sentences are missing; give --reference, "
            "or --source (or --docids) for the T- lines of fairseq-generate"
        )
    layout = layout_of(source, ids)
    return layout, [_own_references(systems)]


def _has_the_ends(source: Optional[Input], reference: Input) -> bool:
    """Return whether the source says by blank lines where documents end, and the reference not."""
    if not (isinstance(source, Lines) and isinstance(reference, Lines)):
        return False
    lines = [line for line in source.lines if line]
    return "" not in reference.lines and 0 < len(lines) == len(reference.lines) < len(source.lines)


def _without_empty(text: Input, notes: List[str]) -> Input:
    """Return the first reference without empty documents, whose segments are unknown."""
    if not isinstance(text, Documents):
        return text
    empty = [document.id for document in text.documents if not document.segments]
    if len(empty) == len(text.documents):
        raise UserError(f"{text.path} has no text; its documents are empty")
    if empty:
        notes.append(f"left out, without a reference: {len(empty)} documents ({named(empty)})")
    return text._replace(documents=[d for d in text.documents if d.segments])


def _own_references(inputs: Dict[str, Input]) -> Output:
    """Return the references (T- lines) of outputs of ``fairseq-generate``."""
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
    """A system matched with the test set.

    Attributes:
        segments: (segments,), None if only the documents match.
        documents: (documents,) if only they match.
        aligned: number of documents that were aligned.
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
    """Match a system with the test set, if need be by alignment.

    Raises:
        UserError: its segments do not match, and nothing says what to do.
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
    elif isinstance(text, Output):
        text = Lines(text.path, layout.with_ends(layout.sentences(text)))
    notes += layout.notes(name, text) if isinstance(text, Documents) else []
    documents = layout.segments_by_document(text)
    if reading.align is None:
        notes.append(f"{name}: whole documents, segments do not match {layout.path}")
        return Matched(None, [" ".join(each) for each in documents])
    segments, aligned = [], 0
    for parts, (a, b) in zip(documents, layout.index.spans):
        if reading.align_all or len(parts) != b - a:
            aligned += 1
            parts = alignment.align_document(reference[a:b], " ".join(parts), reading.align)
        segments += parts
    return Matched(segments, aligned=aligned)
