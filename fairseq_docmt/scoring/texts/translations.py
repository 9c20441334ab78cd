"""Translations of documents by several systems, with references and source.

The first reference, or without references the source, defines documents and segments.  All other
texts must have the same segments, or are aligned with them (``--align``).
"""

import argparse
import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_docmt.bleu import ENTITY, SUBWORD, sign_in
from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Documents, Input, Lines, Output, read_docids, read_input
from fairseq_docmt.readers import add_argument as add_format_argument
from fairseq_docmt.scoring.texts import alignment
from fairseq_docmt.scoring.texts.layout import SHOWN, Layout, Mismatch, by_docids, layout_of, named

#: languages that tokenizer 13a of BLEU does not cut into words
NOT_BY_SPACES = ("zh", "ja", "ko", "th", "lo", "km", "my")
#: segments in a row that have to fit their neighbours better before lines are said to be shifted
IN_A_ROW = 3
#: Punctuation mark that may follow a word, and one that a space separates from its word.
_MARK, _APART = re.compile(r"[.,]"), re.compile(r"\w [.,](?= |$)")


class Translations(NamedTuple):
    """Segments of a test set, all lists in the same order.

    Attributes:
        index: document and line of each segment.
        systems: name of each system -> its (segments,).
        references: one or more lists of (segments,).
        source: (segments,), or None.
        whole: (documents,) of all systems, if segments of some do not match; ``systems`` lacks
            those.
        ids: (documents,) names of the documents, None if the test set has none.
        numbers: (segments,) names of the segments in their documents, None if some have none.
        notes: what was done to make the texts match.
        aligned: report of each aligned system.
        language: code of the target language, if a file says it by its content or its ending.
    """

    index: DocumentIndex
    systems: Dict[str, List[str]]
    references: List[List[str]]
    source: Optional[List[str]] = None
    whole: Dict[str, List[str]] = {}
    ids: Optional[List[str]] = None
    numbers: Optional[List[str]] = None
    notes: Sequence[str] = ()
    aligned: Dict[str, alignment.Report] = {}
    language: Optional[str] = None

    @property
    def names(self) -> List[str]:
        """Names of all systems; the first one is the baseline."""
        return [*(self.whole or self.systems)]

    def joined(self, sentences: Sequence[str]) -> List[str]:
        """Join the sentences of each document to one line."""
        return [" ".join(sentences[a:b]) for a, b in self.index.spans]

    def documents(self, name: str) -> List[str]:
        """Return the (documents,) of a system, each as one line."""
        return self.whole[name] if name in self.whole else self.joined(self.systems[name])

    def place(self, segment: int) -> str:
        """Return document and number, from 1, of a segment."""
        document = int(self.index.document[segment])
        return f"{self.name_of(document)}, {segment - int(self.index.starts[document]) + 1}"

    def name_of(self, document: int) -> str:
        """Return the id of a document, or its number from 1."""
        return self.ids[document] if self.ids else str(document + 1)


def add_arguments(parser: argparse.ArgumentParser, source_required: bool = False) -> None:
    """Add the options that :func:`from_arguments` reads."""
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="NAME=FILE",
        help="translation: output of fairseq-generate, text with blank lines between documents, "
        "JSON lines, table or WMT XML; FILE#TEXT chooses one of several texts in a file",
    )
    parser.add_argument(
        "--reference",
        action="append",
        metavar="FILE",
        help="reference; may be repeated; default: T- lines of fairseq-generate, which need "
        "--source or --docids",
    )
    parser.add_argument("--source", metavar="FILE", required=source_required, help="source text")
    add_layout_arguments(parser)


def add_layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how texts are read and divided."""
    add_format_argument(parser)
    parser.add_argument(
        "--docids",
        metavar="FILE",
        help="document of each line, for texts without blank lines; the last column counts",
    )
    parser.add_argument(
        "--align",
        metavar="LANGUAGE",
        help="code of the target language, e.g. de: align translations whose segments do not "
        "match with those of the reference, within documents (needs mweralign)",
    )


def from_arguments(args: argparse.Namespace, whole_documents: bool = False) -> Translations:
    """Read the translations named on the command line.

    Raises:
        UserError: as in :func:`read_translations`; or a system has no name, or a name is used
            twice.
    """
    return read_translations(
        named_files(args.systems),
        args.reference,
        args.source,
        args.docids,
        args.align,
        whole_documents,
        plain=args.input_format == "text",
    )


def named_files(arguments: Sequence[str]) -> Dict[str, str]:
    """Return the files of arguments ``NAME=FILE``.

    Raises:
        UserError: an argument has no name, or a name is used twice.
    """
    files: Dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise UserError(f"{argument}: give systems as NAME=FILE")
        if name in files:
            raise UserError(f"two systems are named {name}; give each its own name")
        files[name] = path
    return files


def read_translations(
    systems: Dict[str, str],
    references: Optional[Sequence[str]] = None,
    source: Optional[str] = None,
    docids: Optional[str] = None,
    align: Optional[str] = None,
    whole_documents: bool = False,
    role: str = "system",
    plain: bool = False,
) -> Translations:
    """Read the texts of a test set.

    Args:
        systems: name -> file.
        references: files; if None, all systems must be outputs of ``fairseq-generate``, and the
            source or docids say which lines are sentences.
        source: file.
        docids: file with the document of each line, for texts without blank lines.
        align: code of the target language, to align systems whose segments do not match.
        whole_documents: keep systems whose segments do not match as whole documents.
        role: which text of the files of ``systems`` is meant, see
            :func:`~fairseq_docmt.readers.read_input`.
        plain: read all files as plain text.

    Raises:
        UserError: a file is missing, empty, not UTF-8 or not in its format, or its documents or
            segments do not match the reference.
    """
    inputs = {name: read_input(path, role, name, plain) for name, path in systems.items()}
    ids = read_docids(docids) if docids else None
    wanted = read_input(source, "source", plain=plain) if source else None
    notes: List[str] = []
    given = [read_input(path, "reference", plain=plain) for path in references or ()]
    if ids and isinstance((given or [wanted])[0], Documents):
        # The documents of plain text are found by their ids.
        if not any(isinstance(text, Lines) for text in [*given, wanted, *inputs.values()]):
            raise UserError(
                "--docids is for plain text, and all texts name documents; leave it out"
            )
        given = [by_docids(text, ids) for text in given]
        inputs = {name: by_docids(text, ids) for name, text in inputs.items()}
        wanted, ids = wanted and by_docids(wanted, ids), None
    layout, others = _layout_and_references(given, wanted, ids, inputs, notes)
    wanted = wanted and layout.filled(wanted)
    texts = [layout.sentences(text) for text in others]
    found: Dict[str, List[str]] = {}
    whole: Dict[str, List[str]] = {}
    to_report: List[str] = []
    for name, text in inputs.items():
        try:
            found[name] = layout.sentences(text)
        except Mismatch as mismatch:
            if align is None and not whole_documents:
                raise UserError(
                    f"{mismatch}; align them with --align LANGUAGE, or use `metrics` with "
                    "--metrics d-bleu,d-chrf"
                ) from None
            documents = layout.whole_documents(text)
            if align is None:
                whole[name] = documents
                notes.append(f"{name}: whole documents, segments do not match {layout.path}")
                continue
            found[name] = _aligned(layout, texts[0], documents, align)
            to_report.append(name)
        notes += layout.notes(name, text)
    sentences = layout.sentences(wanted) if wanted else None
    numbers = layout.segment_numbers
    result = Translations(layout.index, found, texts, sentences, whole, layout.ids, numbers, notes)
    matching = [text for name, text in inputs.items() if name not in (*whole, *to_report)]
    result = _without_gaps(result, layout, [*others, *filter(None, [wanted])], matching)
    found, texts, whole = result.systems, result.references, result.whole
    language = _language_of([*others, *inputs.values()])
    reports = {name: alignment.report(texts[0], found[name], align) for name in to_report}
    result = result._replace(aligned=reports, language=language)
    notes += [_alignment_note(name, align, result) for name in reports]
    notes += _form_notes(found, texts)
    notes += [_shift_note(name, text, texts[0], result) for name, text in found.items()]
    notes[:] = filter(None, notes)
    if whole:
        return result._replace(
            whole={name: whole.get(name) or result.documents(name) for name in inputs}
        )
    return result


def _layout_and_references(
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
        layout = layout_of(_without_empty(references[0], notes), ids)
        return layout, [layout.filled(each) for each in references]
    if source is None and ids is None:
        raise UserError(
            "nothing says where documents end and whether sentences are missing; give --reference, "
            "or --source (or --docids) for the T- lines of fairseq-generate"
        )
    layout = layout_of(source, ids)
    return layout, [_own_references(systems)]


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


def _without_gaps(
    texts: Translations, layout: Layout, others: Sequence[Input], systems: Sequence[Input]
) -> Translations:
    """Leave out the segments that a reference or the source lacks, or that a text marks as bad.

    Args:
        texts: all segments.
        layout: documents and segments.
        others: references and source.
        systems: texts of the systems whose segments match.

    Raises:
        UserError: nothing is left.
    """
    missing = np.zeros(layout.index.num_sentences, dtype=bool)
    bad = missing.copy()
    for text in others:
        gaps = layout.gaps(text)
        missing |= gaps.missing
        bad |= gaps.bad
    for text in systems:
        bad |= layout.gaps(text).bad
    notes = [*_gap_notes(texts, missing, "without a reference or source")]
    notes += _gap_notes(texts, bad & ~missing, "marked as bad (is_bad_source)")
    dropped = missing | bad
    if not notes:
        return texts
    if texts.whole:  # their documents cannot be cut
        dropped = np.isin(layout.index.document, np.unique(layout.index.document[dropped]))
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
    )


def _gap_notes(texts: Translations, gone: np.ndarray, why: str) -> List[str]:
    """Return a note that counts and names segments that are left out, whole documents first."""
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


def _form_notes(systems: Dict[str, List[str]], references: List[List[str]]) -> List[str]:
    """Return notes of texts in a form that scores are not meant for, or in different forms."""
    texts = {**systems, "the reference": references[0]}
    cut = {name: sign_in(sentences, SUBWORD) for name, sentences in texts.items()}
    notes = [
        f"{name}: words are cut into subwords (such as {piece}); join them before scoring, as "
        "fairseq-generate does with the --bpe of training"
        for name, piece in cut.items()
        if piece and not all(cut.values())
    ]
    escaped = {name: sign_in(sentences, ENTITY) for name, sentences in texts.items()}
    names = [name for name, entity in escaped.items() if entity]
    if names:
        notes.append(
            f"{', '.join(names)}: characters are written as entities (such as "
            f"{escaped[names[0]]}), of which scores make words of their own; replace them on both "
            "sides, as a detokenizer does"
        )
    apart = {name: _share_apart(sentences) for name, sentences in texts.items()}
    form = "punctuation is separated by spaces, but not in {}; give both sides as detokenized text"
    wanted = apart.pop("the reference")
    tokens = [name for name, share in apart.items() if wanted < 0.1 and share > 0.5]
    text = [name for name, share in apart.items() if wanted > 0.5 and share < 0.1]
    notes += [f"{', '.join(tokens)}: {form.format('the reference')}"] * bool(tokens)
    notes += [f"the reference: {form.format(', '.join(text))}"] * bool(text)
    return notes


def _language_of(texts: Sequence[Input]) -> Optional[str]:
    """Return the language of translations and references by their content or file ending."""
    for text in texts:
        ending = text.path.rpartition(".")[2]
        found = getattr(text, "language", None) or (ending if ending in NOT_BY_SPACES else None)
        if found:
            return found
    return None


def _shift_note(
    name: str, system: List[str], reference: List[str], texts: Translations
) -> Optional[str]:
    """Return a note if several segments in a row fit the neighbours of their references better.

    One line too many and one too few, such as a merged and a split sentence, keep the number of
    lines, but what lies between belongs to other lines.
    """
    words = [[_words(text) for text in side] for side in (system, reference)]
    for first, end in texts.index.spans:
        for step in (1, -1):
            row = 0
            for i in range(max(first, first - step), min(end, end - step)):
                own, other = words[1][i], words[1][i + step]
                is_shifted = _overlap(words[0][i], other) > _overlap(words[0][i], own) + 0.2
                row = row + 1 if is_shifted else 0
                if row == IN_A_ROW:
                    return (
                        f"{name}: segments from {texts.place(i - row + 1)} on seem to be shifted "
                        "by one line against the reference; check its lines"
                    )
    return None


def _words(text: str) -> frozenset:
    """Return the words of a text, or the characters if it is written without spaces."""
    words = text.lower().split()
    return frozenset(words if len(text) < 10 * len(words) else text)


def _overlap(one: frozenset, other: frozenset) -> float:
    """Return the Dice coefficient of two sets."""
    return 2 * len(one & other) / max(len(one) + len(other), 1)


def _share_apart(sentences: Sequence[str]) -> float:
    """Return the share of the sentences with punctuation in which a space precedes it."""
    marked = [sentence for sentence in sentences if _MARK.search(sentence)]
    return sum(map(bool, map(_APART.search, marked))) / max(len(marked), 1)


def _aligned(layout: Layout, reference: List[str], documents: List[str], language: str):
    return [
        part
        for text, (a, b) in zip(documents, layout.index.spans)
        for part in alignment.align_document(reference[a:b], text, language)
    ]


def _alignment_note(name: str, language: str, texts: Translations) -> str:
    found = texts.aligned[name]
    counts = {kind: sum(s.kind == kind for s in found.suspects) for kind in ("over", "under")}
    text = (
        f"{name}: aligned by mweralign|language:{language}|segments:{found.segments}|"
        f"empty:{found.empty}|words left over:{found.left_over}|suspected over-translation:"
        f"{counts['over']}|suspected under-translation:{counts['under']}"
    )
    worst = sorted(found.suspects, key=lambda s: -abs(s.tokens - s.expected))[:SHOWN]
    shown = [f"{texts.place(s.segment)}: {s.tokens}/{s.expected:g}" for s in worst]
    return f"{text} (document, segment: tokens/expected: {'; '.join(shown)})" if shown else text
