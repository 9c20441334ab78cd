"""Readers of source texts, references and translations in published formats.

:func:`read_input` detects the format of a file from its content.  It reads the file only once, so
that ``<(command)`` works.  ``FILE#NAME`` selects one of several texts in a file.
"""

import argparse
import os
import re
from collections import Counter
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import record_files, records, sgm, wmt_xml
from fairseq_docmt.readers.files import lines_of, read_text, refuse_long
from fairseq_docmt.readers.inputs import Document, Documents, Input, Lines, Output

__all__ = ["Document", "Documents", "Input", "Lines", "Output", "read_docids", "read_input"]
__all__ += ["output_lines", "unknown_format"]

_OUTPUT_LINE = re.compile(r"([SDHTP])-(\d{1,18})\t(.*)")
#: A line that begins with a block element of HTML; ordinary text may have ``<i>`` and the like.
_TAGGED = re.compile(r"</?(body|div|h[1-6]|head|li|ol|p|table|td|tr|ul)\b.*>", flags=re.I)
#: How HTML and the SGM of shared tasks begin.
_MARKUP = re.compile(r"<(!doctype|html|mteval|srcset|refset|tstset|doc)\b", flags=re.I)
#: A start tag, with the name of its element.
_TAG = re.compile(r"<([A-Za-z][\w:.-]*)(\s[^<>]*)?>")
#: Times of a subtitle in SRT, WebVTT and ASS.
_TIMES = re.compile(r"(\d+:)?\d\d:\d\d[.,]\d{3} +--> |Dialogue: \d+,\d+:\d\d:")
#: A text with more times than one for so many lines is taken for subtitles; a long text may have
#: one by mistake.
LINES_PER_TIME = 10

#: A name after the file: fields of a record, see :class:`~fairseq_docmt.readers.records.Wanted`.
_FIELD = re.compile(r"(doc|segment|text|system)=(.+)")


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--input-format``: ``text``, or ``auto`` to detect the format."""
    parser.add_argument(
        "--input-format",
        choices=["auto", "text"],
        default="auto",
        help="text: one sentence per line; default: auto, by the content",
    )


def read_input(
    path: str,
    role: str,
    name: Optional[str] = None,
    plain: bool = False,
    by: Optional[str] = None,
) -> Input:
    """Read the source, a reference or the output of a system for a test set.

    Args:
        path: file, ``FILE#NAME`` for the text ``NAME`` of a file that has several, or
            ``FILE#doc=FIELD,segment=FIELD,text=FIELD,system=FIELD`` for records with unusual field
            names.
        role: ``source``, ``reference`` or ``system``: the kind of text to look for in the file.
        name: name of the system, to find its text in files with several systems.
        plain: True to read the file as plain text, whatever its content looks like.
        by: name of the field or attribute by which scores will be grouped; None for no groups.

    Returns:
        ``Documents`` for formats with document ids, ``Output`` for the output of
        ``fairseq-generate``, ``Lines`` for plain text.

    Raises:
        UserError: the file is missing, empty, not UTF-8 or not valid in its format; a line is
            extremely long; the file has several texts and none is chosen, or lacks the chosen one;
            or it is an output of ``fairseq-generate``, but a source or reference is wanted.
    """
    path, chosen = with_selection(os.fspath(path))
    fields = _fields(chosen, path)
    wanted = records.Wanted(role, name, None if fields else chosen, fields, by)
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} has no text; check the command that wrote it")
    found = Lines(path, lines_of(text)) if plain else _by_content(text, path, wanted)
    if isinstance(found, Documents):
        for document in found.documents:
            refuse_long(f"{path}: document {document.id}", document.segments)
    elif chosen:
        raise UserError(f"{path} is plain text, which has no {chosen}; remove #{chosen}")
    else:
        refuse_long(path, found.lines if isinstance(found, Lines) else found.hypotheses.values())
    return found


def _by_content(text: str, path: str, wanted: records.Wanted) -> Input:
    """Detect the format of a file from its content, and convert the content to an ``Input``.

    Args:
        text: content of the file.
        path: path of the file, for messages.
        wanted: which text to read from the file.
    """
    markup = sgm if sgm.is_sgm(text) else wmt_xml if wmt_xml.is_xml(text) else None
    if markup is not None:
        if wanted.fields:
            raise UserError(f"{path} has documents and systems, no fields; give FILE#NAME")
        return markup.read(text, path, wanted)
    found = _records(text, path, wanted)
    if found is not None:
        return records.read(found, path, wanted)
    if re.search(r"^[DHT]-\d+\t", text, flags=re.M):
        if wanted.role != "system":
            raise UserError(
                f"{path} is an output of fairseq-generate; give the {wanted.role} as text"
            )
        return _output(text, path)
    kind = unknown_format(text)
    if kind:
        raise UserError(
            f"{path} seems to be {kind}; give it in one of the formats that `convert --help` "
            "lists, or give --input-format text if it is one sentence per line"
        )
    return Lines(path, lines_of(text))


def _records(text: str, path: str, wanted: records.Wanted) -> Optional[record_files.Records]:
    """Return the records of a JSON file or a table, or None if the text is neither."""
    found = record_files.json_of(text, path)
    if found is not None:
        return found
    columns = [*wanted.fields.values(), *filter(None, [wanted.chosen])]
    separator = record_files.separator_of(text, columns)
    if separator is None:
        return None
    has_header = not wanted.fields or not all(map(str.isdecimal, wanted.fields.values()))
    return record_files.table_records(text, path, separator, has_header)


def unknown_format(text: str) -> Optional[str]:
    """Describe the unsupported format of a text, such as "a table whose ...", for error messages.

    If the text does not seem to be in an unsupported format, None is returned.
    """
    lines = list(filter(None, map(str.strip, text.split("\n"))))
    if _is_element(text) or (lines and all(_TAGGED.fullmatch(line) for line in lines)):
        return "mark-up without documents and segments"
    if sum(map(bool, map(_TIMES.match, lines))) > len(lines) // LINES_PER_TIME:
        return "subtitles with times"
    if record_files.is_json_without_objects(text):
        return "JSON lines without objects, or text with quotation marks around each line"
    if re.match(r"\s*sep=.\n", text):
        return "a table below Excel's line sep=, which must be removed"
    if record_files.has_tabs_throughout(text):
        return "a table whose first line does not name its columns (FILE#doc=1,text=2 names them)"
    return None


def _is_element(text: str) -> bool:
    """Return whether a text begins like HTML or SGM, or is an XML element with others in it."""
    begin = wmt_xml.after_comments(text)
    if _MARKUP.match(text, begin):
        return True
    name = _TAG.match(text, begin)
    if not name:
        return False
    end, inside = f"</{name[1]}>", text[name.end() :].rstrip()
    return inside.endswith(end) and inside.count(end) == 1 and bool(_TAG.search(inside))


def read_docids(path: str) -> List[str]:
    """Read the document id of each line of a text from a separate file.

    As in the files of WMT, the id is in the last of the tab-separated columns.

    Raises:
        UserError: the file is missing, not UTF-8 or empty; a line has no document id; or the lines
            of a document are not consecutive.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} has no text; check the command that wrote it")
    lines = text.split("\n")
    ids = [line.rsplit("\t", 1)[-1].strip() for line in (lines[:-1] if not lines[-1] else lines)]
    if "" in ids:
        raise UserError(f"{path}: line {ids.index('') + 1} has no document id")
    last = dict(zip(ids, range(len(ids))))
    for number, name in enumerate(ids[:-1]):
        if ids[number + 1] != name and last[name] > number:
            again = ids.index(name, number + 1) + 1
            raise UserError(
                f"{path}: line {again} goes on with document {name}, which ended before; sort all "
                "files by document"
            )
    return ids


def with_selection(path: str) -> Tuple[str, Optional[str]]:
    """Split ``FILE#NAME`` into the file and the name; the name is None if there is no ``#``.

    The path of an existing file is not split, as it may contain ``#`` itself.
    """
    file, mark, name = path.rpartition("#")
    if mark and file and name and not os.path.exists(path):
        return file, name
    return path, None


def _fields(chosen: Optional[str], path: str) -> Dict[str, str]:
    """Parse the field names given as ``FILE#doc=FIELD,text=FIELD`` into a dictionary.

    Args:
        chosen: what follows ``#``; None if there is no ``#``.
        path: path of the file, for messages.

    Returns:
        ``doc``, ``segment``, ``text`` or ``system`` -> name of the field.  The dictionary is empty
        if ``chosen`` is None, or does not begin with one of these keys and ``=``; it is then the
        name of a text (``FILE#NAME``).

    Raises:
        UserError: a later part is not of the form ``KEY=FIELD``, or a key is repeated.
    """
    if not chosen or not _FIELD.fullmatch(chosen.split(",")[0]):
        return {}
    found: Dict[str, str] = {}
    for part in chosen.split(","):
        match = _FIELD.fullmatch(part)
        if not match or match[1] in found:
            raise UserError(
                f"{path}#{chosen}: give doc=FIELD, segment=FIELD, text=FIELD and system=FIELD, "
                "each once, separated by commas"
            )
        found[match[1]] = match[2]
    return found


class OutputLine(NamedTuple):
    """A line of an output of ``fairseq-generate``.

    Attributes:
        where: path and line, for messages.
        kind: ``S`` (source), ``T`` (reference), ``H`` (hypothesis), ``D`` (detokenized) or ``P``
            (log-probabilities of tokens).
        number: number of the sentence.
        score: score of a hypothesis; it need not be finite.  None for other kinds.
        text: text of the sentence; for ``P``, the numbers as written.
    """

    where: str
    kind: str
    number: int
    score: Optional[float]
    text: str


def output_lines(text: str, path: str) -> Iterator[OutputLine]:
    """Yield the lines of an output of ``fairseq-generate`` that belong to sentences.

    Other lines, such as those of its log, are left out.

    Raises:
        UserError: the text ends within a line; an H- or D- line has no score, or no tab after it; a
            source sentence occurs twice; or the kinds of lines (H, D, P) differ in number for a
            sentence.
    """
    last = text.rsplit("\n", 1)[-1]
    if _OUTPUT_LINE.fullmatch(last):
        raise UserError(
            f"{path} ends within the line {last[:20]!r}, without a line end, as if it were cut; "
            "run fairseq-generate again, or add the line end if it is whole"
        )
    sources: Set[str] = set()
    counts: Dict[str, Counter] = {kind: Counter() for kind in "DHP"}
    for place, line in enumerate(text.split("\n"), start=1):
        match = _OUTPUT_LINE.fullmatch(line)
        if match is None:
            continue
        where, (kind, number, words) = f"{path}: line {place}", match.groups()
        if kind == "S" and number in sources:
            raise UserError(
                f"{path} has sentence {number} more than once (S-{number}), as outputs of several "
                "runs together have; give that of one"
            )
        if kind == "S":
            sources.add(number)
        if kind in counts:
            counts[kind][int(number)] += 1
        score = None
        if kind in "DH":
            value, tab, words = words.partition("\t")
            try:
                score = float(value if tab else "")
            except ValueError:
                raise UserError(
                    f"{where}: {kind}-{number} needs a score and a text, each after a tab, not "
                    f"{match[3][:40]!r}; give the output as fairseq-generate writes it"
                ) from None
        # Subwords of bytes can write a tab into a sentence.
        yield OutputLine(where, kind, int(number), score, words.replace("\t", " "))
    _refuse_unequal(path, {kind: count for kind, count in counts.items() if count})


def _refuse_unequal(path: str, counts: Dict[str, Counter]) -> None:
    """Raise a UserError if the kinds of lines differ in number for a sentence.

    Args:
        path: path of the file, for messages.
        counts: kind of line (D, H or P) -> sentence -> number of its lines; outputs may lack a
            whole kind.
    """
    for number in sorted(set().union(*counts.values())):
        if len({of_kind[number] for of_kind in counts.values()}) > 1:
            found = ", ".join(f"{of_kind[number]} {kind}-" for kind, of_kind in counts.items())
            raise UserError(
                f"{path}: sentence {number} has {found} lines, but needs one of each for every "
                "translation, as if the file were cut; give it as fairseq-generate writes it"
            )


def _output(text: str, path: str) -> Output:
    """Read an output of ``fairseq-generate``.

    Translations are read from the D- lines (detokenized) or, if there are none, from the H- lines,
    and references from the T- lines.  Of an n-best list, only the first translation is kept.

    Raises:
        UserError: a line is damaged (:func:`output_lines`), or there are no translations.
    """
    lines: Dict[str, Dict[int, str]] = {kind: {} for kind in "SDHTP"}
    for line in output_lines(text, path):
        lines[line.kind].setdefault(line.number, line.text)
    hypotheses = lines["D"] or lines["H"]
    if not hypotheses:
        raise UserError(f"{path} has no translations (H- or D- lines); run fairseq-generate again")
    return Output(path, hypotheses, lines["T"])
