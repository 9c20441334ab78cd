"""Reading of translations of documents by several systems, with references and source.

The first reference defines the documents and segments of the test set; without references, the
source does.  Segments that the first reference lacks are known from another one or the source.  All
other texts must match them.  Only translations may differ, if they are aligned with the reference
(``--align``).
"""

import argparse
import re
from collections import Counter
from importlib.metadata import version
from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Documents, Input, Lines, Output, read_docids, read_input
from fairseq_docmt.readers import add_argument as add_format_argument
from fairseq_docmt.scoring.texts import alignment, checks, wrappers
from fairseq_docmt.scoring.texts.layout import (
    SHOWN,
    TAKEN_FOR_EMPTY,
    Gaps,
    Layout,
    Mismatch,
    by_docids,
)
from fairseq_docmt.scoring.texts.matching import (
    DEFAULT_READING,
    Reading,
    layout_and_references,
    match_system,
)
from fairseq_docmt.scoring.texts.test_set import Translations, without_gaps

#: Languages that tokenizer 13a of BLEU does not split into words.
NOT_BY_SPACES = ("zh", "ja", "ko", "th", "lo", "km", "my")
MISSING = ("skip", "empty")


def add_arguments(parser: argparse.ArgumentParser, source_required: bool = False) -> None:
    """Add the options for the texts of a test set, which :func:`from_arguments` reads."""
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="NAME=FILE",
        help="translation in a format of `convert`; FILE#TEXT for one of several",
    )
    parser.add_argument(
        "--reference",
        action="append",
        metavar="FILE",
        help="may be repeated; default: T- lines, with --source or --docids",
    )
    parser.add_argument("--source", metavar="FILE", required=source_required, help="source text")
    add_layout_arguments(parser)
    add_system_arguments(parser)


def add_layout_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for the format, documents and alignment of texts, such as ``--docids``."""
    add_format_argument(parser)
    parser.add_argument(
        "--docids",
        metavar="FILE",
        help="document of each line (last column), if no blank lines part them",
    )
    parser.add_argument(
        "--align",
        type=language_code,
        metavar="LANGUAGE",
        help="target language (de), to align what does not match the reference",
    )
    parser.add_argument(
        "--align-all",
        action="store_true",
        help="with --align: also documents with the right number of segments",
    )


def language_code(text: str) -> str:
    """Check that an option has the form of a code of a language; used as ``type`` for argparse.

    Raises:
        ArgumentTypeError: it has not.
    """
    if not re.fullmatch(r"[A-Za-z]{2,3}([-_]\w+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no code of a language, such as de or zh-TW")
    return text


def add_system_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--missing`` and ``--strip-wrappers``, options for the translations of systems."""
    parser.add_argument(
        "--missing",
        choices=MISSING,
        help="skip what a system lacks, or take it for empty; default: refuse it",
    )
    add_strip_wrappers(parser)


def add_strip_wrappers(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--strip-wrappers``."""
    parser.add_argument(
        "--strip-wrappers",
        action="store_true",
        help="remove what language models write around translations",
    )


def from_arguments(args: argparse.Namespace, whole_documents: bool = False) -> Translations:
    """Read the texts of the test set named on the command line.

    Args:
        args: options of :func:`add_arguments`.
        whole_documents: whether a system whose segments do not match the reference is kept as whole
            documents instead of being refused.

    Raises:
        UserError: a system has no name, a name is used twice, or a text cannot be read or matched.
    """
    reading = Reading(
        args.docids,
        args.align,
        args.align_all,
        args.missing,
        args.strip_wrappers,
        getattr(args, "by", None),
        whole_documents,
        plain=args.input_format == "text",
    )
    return read_translations(named_files(args.systems), args.reference, args.source, reading)


def named_files(arguments: Sequence[str]) -> Dict[str, str]:
    """Parse arguments of the form ``NAME=FILE`` into a dictionary from names to files.

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
    reading: Reading = DEFAULT_READING,
) -> Translations:
    """Read the texts of a test set, and match them with its segments.

    Args:
        systems: name -> file.
        references: reference files.  If None, all systems must be outputs of ``fairseq-generate``,
            whose T- lines are then the reference.  The source or document ids must then show where
            documents end.
        source: source file, or None.
        reading: settings for reading and matching.

    Returns:
        The test set: source, references and the translations of each system, segment by segment.

    Raises:
        UserError: a file is missing, empty, not UTF-8 or malformed, its documents or segments do
            not match the reference, or the settings contradict each other.
    """
    files = _read_files(systems, references, source, reading)
    notes: List[str] = []
    layout, others = layout_and_references(*files, notes)
    for text in (*files.references, files.source):
        notes += layout.notes(text.path, text) if isinstance(text, Documents) else []
    wanted, inputs = files.source and layout.filled(files.source), files.systems
    if reading.strip_wrappers:
        inputs = _stripped(inputs, files.references, notes)
    if reading.missing:
        inputs = {name: layout.filled(text) for name, text in inputs.items()}
    texts = [_side(layout, "--reference", text) for text in others]
    source_text = _side(layout, "--source", wanted) if wanted else None
    sides = [*others, *filter(None, [wanted])]
    gaps = Gaps(*(np.any(each, axis=0) for each in zip(*map(layout.gaps_of_side, sides))))
    inputs = {name: layout.with_gaps(text, gaps.missing) for name, text in inputs.items()}
    matched = {
        name: match_system(layout, name, text, texts[0], reading, notes)
        for name, text in inputs.items()
    }
    result = Translations(
        layout.index,
        {name: each.segments for name, each in matched.items() if each.segments is not None},
        texts,
        source_text,
        {name: each.documents for name, each in matched.items() if each.segments is None},
        layout.ids,
        layout.segment_numbers,
        groups=_groups(layout, sides, reading.by),
        notes=notes,
        language=language_of([*files.references, *files.systems.values()]),
        reordered=layout.reordered,
    )
    aligned = {name: each.aligned for name, each in matched.items() if each.aligned}
    for name, text in result.systems.items():
        if isinstance(inputs[name], Output) and text in texts:
            notes.append(
                f"{name}: the translations are a reference; check that the output was not made "
                "with --score-reference, which prints the references as translations"
            )
    result = _described(without_gaps(result, layout, gaps, inputs, reading), aligned, reading)
    if result.whole:
        whole = {name: result.documents(name) for name in inputs}
        return result._replace(whole=whole)
    return result


class _Files(NamedTuple):
    """Texts of a test set as they are in their files.

    Attributes:
        references: reference texts; empty if the systems' T- lines are the reference.
        source: source text, or None.
        ids: document id of each line of the texts, if these do not show their documents; else None.
        systems: system -> its translations.
    """

    references: List[Input]
    source: Optional[Input]
    ids: Optional[List[str]]
    systems: Dict[str, Input]


def _read_files(
    systems: Dict[str, str],
    references: Optional[Sequence[str]],
    source: Optional[str],
    reading: Reading,
) -> _Files:
    """Read the files of :func:`read_translations`, and divide plain text by ``--docids``.

    Raises:
        UserError: a file cannot be read, or the settings contradict each other or the files.
    """
    plain = reading.plain
    twice = [path for path, count in Counter(references or ()).items() if count > 1]
    if twice:
        raise UserError(f"--reference {twice[0]} is given twice; give each once")
    if reading.align_all and not reading.align:
        raise UserError("--align-all needs --align LANGUAGE")
    inputs = {name: read_input(path, reading.role, name, plain) for name, path in systems.items()}
    ids = read_docids(reading.docids) if reading.docids else None
    wanted = read_input(source, "source", plain=plain, by=reading.by) if source else None
    given = [read_input(path, "reference", plain=plain, by=reading.by) for path in references or ()]
    if not (ids and isinstance((given or [wanted])[0], Documents)):
        return _Files(given, wanted, ids, inputs)
    # The documents of plain text are found by their ids.
    if not any(isinstance(text, Lines) for text in [*given, wanted, *inputs.values()]):
        raise UserError("--docids is for plain text, and all texts name documents; leave it out")
    return _Files(
        [by_docids(text, ids) for text in given],
        wanted and by_docids(wanted, ids),
        None,
        {name: by_docids(text, ids) for name, text in inputs.items()},
    )


def _side(layout: Layout, option: str, text: Input) -> List[str]:
    """Return the segments of a reference or of the source.

    Args:
        layout: documents and segments of the test set.
        option: option by which the text was given, for error messages.
        text: the reference or source.

    Raises:
        UserError: the segments of the text do not match the test set.
    """
    try:
        return layout.sentences(text)
    except Mismatch as mismatch:
        raise UserError(
            f"{option}: {mismatch}; source and references need the same segments"
        ) from None


def _groups(layout: Layout, texts: Sequence[Input], field: Optional[str]) -> Optional[List[str]]:
    """Return the group of each segment: its value of a field such as ``domain``.

    The values come from the first text that has the field; ``-`` stands for a missing value.  If
    ``field`` is None, the result is None.

    Raises:
        UserError: no text has the field.
    """
    if field is None:
        return None
    for text in texts:
        documents = text.documents if isinstance(text, Documents) else []
        if any(document.groups for document in documents):
            of_groups = [
                document._replace(segments=[*document.groups] or [""] * len(document.segments))
                for document in documents
            ]
            return [group or "-" for group in layout.sentences(text._replace(documents=of_groups))]
    raise UserError(
        f"--by {field}: neither reference nor source has this field in its records, or attribute "
        "in its documents of XML"
    )


def _stripped(
    inputs: Dict[str, Input], references: Sequence[Input], notes: List[str]
) -> Dict[str, Input]:
    """Remove wrappers, such as "Here is the translation:", from the translations of all systems.

    Wrappers are what language models write around a translation.  Announcements, offers of help and
    line numbers are kept if the references have them too.

    Args:
        inputs: system -> text.
        references: references of the test set.
        notes: list to which the number of changed segments of each system is appended.

    Returns:
        System -> text without wrappers.
    """
    found, removed = {}, wrappers.removed_for(references)
    for name, text in inputs.items():
        found[name], changed = wrappers.stripped(text, removed)
        notes += [f"{name}: wrappers removed from {changed} segments"] * (changed > 0)
    return found


def _described(texts: Translations, aligned: Dict[str, int], reading: Reading) -> Translations:
    """Add the notes, alignment reports and signature entries that describe how texts were read.

    The notes, which also warn of what looks wrong in the texts, such as shifted lines, are appended
    to ``texts.notes``.

    Args:
        texts: test set.
        aligned: system -> number of aligned documents, for systems that were aligned.
        reading: settings by which the texts were read.

    Returns:
        The test set with new values of ``aligned`` and ``procedure``.
    """
    reference = texts.references[0]
    reports = {
        name: alignment.report(reference, texts.systems[name], reading.align) for name in aligned
    }
    texts = texts._replace(aligned=reports)
    names = [texts.name_of(number) for number in range(texts.index.num_documents)]
    places = [names[number] for number in texts.index.document.tolist()]
    notes = [_alignment_note(name, aligned[name], reading.align, texts) for name in aligned]
    notes += checks.form_notes(texts.systems, texts.references)
    if texts.source:
        notes.append(checks.unrelated_note("source and reference", texts.source, reference))
        same = ["a reference"] * (texts.source in texts.references)
        same += [name for name, text in texts.systems.items() if text == texts.source]
        if same:
            notes.append(
                f"the source and {', '.join(same)} are the same text; check that the right files "
                "are given"
            )
    for name, text in texts.systems.items():
        shifted = checks.shift_note(name, text, reference, texts.index, texts.place)
        pair = f"{name} and the reference"
        notes.append(shifted or checks.unrelated_note(pair, text, reference))
        found = wrappers.find(text, reference, texts.source, texts.index.spans)
        notes += wrappers.notes_on(name, found, places, reading.strip_wrappers)
    whole = texts.joined(reference)
    for name in texts.names if texts.index.num_documents > 1 else ():
        notes.append(checks.length_note(name, texts.documents(name), whole, names))
    for name, text in texts.systems.items():
        empty = sum(not one and bool(wanted) for one, wanted in zip(text, reference))
        known = any(n.startswith(f"{name}: ") and TAKEN_FOR_EMPTY in n for n in texts.notes)
        notes.append(f"{name}: {empty} empty translations" if empty and not known else None)
    texts.notes.extend(filter(None, notes))
    procedure = []
    if aligned:
        what = ",".join(aligned) + (":all" if reading.align_all else "")
        procedure.append(f"align:mweralign-{version('mweralign')}-{reading.align}({what})")
    procedure += [f"missing:{reading.missing}"] * (reading.missing is not None)
    procedure += ["wrappers:stripped"] * reading.strip_wrappers
    return texts._replace(procedure=procedure)


def language_of(texts: Sequence[Input]) -> Optional[str]:
    """Return the target language, as far as it can be told from the texts or their extensions.

    Some formats state the language of a text.  Extensions such as ``.zh`` count only for languages
    that need a tokenizer other than sacreBLEU's 13a.  The first text whose language is known
    decides; if there is none, the result is None.
    """
    for text in texts:
        ending = text.path.rpartition(".")[2]
        found = getattr(text, "language", None) or (ending if ending in NOT_BY_SPACES else None)
        if found:
            return found
    return None


def _alignment_note(name: str, documents: int, language: str, texts: Translations) -> str:
    found = texts.aligned[name]
    counts = {kind: sum(s.kind == kind for s in found.suspects) for kind in ("over", "under")}
    text = (
        f"{name}: {documents} documents aligned by mweralign|language:{language}|"
        f"segments:{found.segments}|"
        f"empty:{found.empty}|words left over:{found.left_over}|suspected over-translation:"
        f"{counts['over']}|suspected under-translation:{counts['under']}"
    )
    worst = sorted(found.suspects, key=lambda s: -abs(s.tokens - s.expected))[:SHOWN]
    shown = [f"{texts.place(s.segment)}: {s.tokens}/{s.expected:g}" for s in worst]
    return f"{text} (document, segment: tokens/expected: {'; '.join(shown)})" if shown else text
