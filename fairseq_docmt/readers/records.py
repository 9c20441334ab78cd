"""Readers of JSON lines and of tables: one record per segment or per document.

The format of this project is JSON lines with the fields ``doc_id``, ``segment`` (number of the
segment in its document; may be missing) and ``text``.  Other names of fields that are in use are
understood too, among them those of the WMT shared tasks.  A document in a single record may have
line breaks; its lines are its segments.  References may lack segments; ``is_bad_source`` (WMT24++)
marks segments that are not meant to be scored.
"""

import json
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.inputs import Document, Documents

DOCUMENT_FIELDS = ("doc_id", "docid", "document_id", "document", "doc")
SEGMENT_FIELDS = ("segment", "segment_id", "seg_id", "seg")
#: Fields of each role; the first that a record has is read.
TEXT_FIELDS = {
    "source": ("source", "src", "src_text", "source_text", "text"),
    "reference": ("reference", "ref", "refs", "target", "tgt", "tgt_text", "text"),
    "system": ("hypothesis", "hyp", "mt", "translation", "target", "tgt", "tgt_text", "text"),
}
#: Field of WMT24++ that marks a segment as bad.
BAD_FIELD = "is_bad_source"


class Lacks(UserError):
    """A record or a document has not the wanted text, which references may lack."""


class Row(NamedTuple):
    """A segment as it stands in a file.

    Attributes:
        where: place in the file, for messages.
        number: name of the segment, None without.
        text: None if the text is missing.
        bad: whether the segment is marked as bad.
    """

    where: str
    number: Optional[str]
    text: Optional[str]
    bad: bool = False


class Wanted(NamedTuple):
    """Which text of a file is meant.

    Attributes:
        role: key of TEXT_FIELDS.
        name: name of the system on the command line, None for other roles.
        chosen: name after ``#``: a field, or several joined by dots for nested ones.
    """

    role: str
    name: Optional[str] = None
    chosen: Optional[str] = None


def is_jsonl(text: str) -> bool:
    """Return whether the first line that is not blank is a JSON object."""
    first = text.lstrip().split("\n", 1)[0]
    try:
        return first.startswith("{") and isinstance(json.loads(first), dict)
    except json.JSONDecodeError:
        return False


def is_tsv(text: str) -> bool:
    """Return whether the first line is the header of a table with document ids."""
    header = text.split("\n", 1)[0].strip().split("\t")
    return len(header) > 1 and any(name in DOCUMENT_FIELDS for name in header)


def is_header(columns: List[str]) -> bool:
    """Return whether two columns or more are named, one of them as a field."""
    names = [name.strip("\r").strip('"').lower() for name in columns]
    known = {*DOCUMENT_FIELDS, *SEGMENT_FIELDS, *(name for f in TEXT_FIELDS.values() for name in f)}
    return (
        len(names) > 1
        and all(re.fullmatch(r"[\w.-]+", n) for n in names)
        and bool(known & {*names})
    )


def read_jsonl(text: str, path: str, wanted: Wanted) -> Documents:
    """Read JSON lines.

    Raises:
        UserError: a line is not a JSON object or lacks a field.
    """
    return Documents(path, _documents(json_records(text, path), path, wanted))


def json_records(text: str, path: str) -> Iterator[Tuple[str, dict]]:
    """Yield the place and the fields of each JSON line.

    Raises:
        UserError: a line is not a JSON object.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where} is not valid JSON ({error.msg})") from None
        if not isinstance(record, dict):
            raise UserError(f"{where} must be a JSON object with the fields doc_id and text")
        yield where, record


def read_tsv(text: str, path: str, wanted: Wanted) -> Documents:
    """Read a table separated by tabs, with the names of its columns in the first line.

    Quotation marks are text.  Only line feeds end a line.

    Raises:
        UserError: two columns have the same name, or a line has too few or too many columns.
    """
    return Documents(path, _documents(table_records(text, path), path, wanted))


def table_records(text: str, path: str) -> Iterator[Tuple[str, dict]]:
    """Yield the place and the columns of each row, see :func:`read_tsv`."""
    rows = (line.split("\t") for line in text.split("\n"))
    header = next(rows)
    for name in filter(None, header):
        if header.count(name) > 1:
            raise UserError(f"{path}: two columns are called {name}; rename one")
    for number, row in enumerate(rows, start=2):
        if not any(row):
            continue
        if len(row) != len(header):
            raise UserError(
                f"{path}: line {number} has {len(row)} columns, but the header {len(header)}"
            )
        yield f"{path}: line {number}", dict(zip(header, row))


def _documents(records, path: str, wanted: Wanted) -> List[Document]:
    """Collect the segments of each document, documents in the order of their first record."""
    found: Dict[str, List[Row]] = {}
    lacks: List[Lacks] = []
    for where, record in records:
        try:
            name, row = row_of(where, record, wanted)
        except Lacks as error:
            if wanted.role != "reference":
                raise
            lacks.append(error)
            name, row = row_of(where, record, None)
        found.setdefault(name, []).append(row)
    if not found:
        raise UserError(f"{path} has no text")
    if len(lacks) == sum(map(len, found.values())):
        raise lacks[0]
    return [_document(name, rows) for name, rows in found.items()]


def row_of(where: str, record: dict, wanted: Optional[Wanted]) -> Tuple[str, Row]:
    """Return the document of a record, and its segment.

    Args:
        where: place in the file.
        record: fields of the record.
        wanted: text of the segment; without it the text is missing.

    Raises:
        UserError: the record has no document or not the wanted text.
    """
    name, number = _id(record, DOCUMENT_FIELDS), _id(record, SEGMENT_FIELDS)
    if name is None:
        raise UserError(f'{where} has no "doc_id"')
    bad = str(record.get(BAD_FIELD, "")).lower() in ("true", "1")
    text = None if wanted is None else _text(where, record, wanted)
    return name, Row(where, number, text, bad)


def _document(name: str, rows: List[Row]) -> Document:
    if len(rows) == 1 and rows[0].number is None:
        lines = [line for line in map(str.strip, (rows[0].text or "").split("\n")) if line]
        return Document(name, lines, bad=tuple(range(len(lines))) if rows[0].bad else ())
    return numbered_document(name, rows)


def numbered_document(name: str, rows: List[Row]) -> Document:
    """Return a document with its segments in the order of their numbers, if they have any.

    Args:
        name: id of the document.
        rows: its segments.

    Raises:
        UserError: only some segments have a number, or two have the same.
    """
    numbers = [row.number for row in rows]
    if None in numbers:
        if numbers.count(None) < len(numbers):
            raise UserError(
                f"{rows[numbers.index(None)].where} has no segment number, but others of document "
                f"{name} do; number all"
            )
        return Document(name, *_segments(rows))
    seen = set()
    for row in rows:
        if row.number in seen:
            raise UserError(f"{row.where}: document {name} already has a segment {row.number}")
        seen.add(row.number)
    if all(number.isdecimal() for number in numbers):
        rows = sorted(rows, key=lambda row: int(row.number))
    segments, _, *places = _segments(rows)
    return Document(name, segments, [row.number for row in rows], *places)


def _segments(rows: List[Row]) -> tuple:
    """Return the fields of a document without numbers."""
    missing = tuple(place for place, row in enumerate(rows) if row.text is None)
    bad = tuple(place for place, row in enumerate(rows) if row.bad)
    return [_line(row.text or "") for row in rows], None, missing, bad


def _line(text: str) -> str:
    return " ".join(text.split())


def _text(where: str, record: dict, wanted: Wanted) -> str:
    if wanted.chosen:
        fields = [wanted.chosen] if wanted.chosen in record else wanted.chosen.split(".")
    else:
        known = TEXT_FIELDS[wanted.role]
        names = (wanted.name, *known) if wanted.name else known
        field = _first(record, names)
        if field is None:
            raise Lacks(
                f"{where} has none of the fields {', '.join(known)}; name the field with the text "
                "as FILE#FIELD"
            )
        fields = [field]
    value: Any = record
    for field in fields:
        if not isinstance(value, dict) or field not in value:
            raise Lacks(f'{where} has no "{field}"')
        value = value[field]
    while isinstance(value, dict):
        value = _only(where, value, fields, wanted.name)
    if value is None:
        raise Lacks(f'{where}: "{".".join(fields)}" must be text, not null')
    if not isinstance(value, str):
        raise UserError(f'{where}: "{".".join(fields)}" must be text, not {json.dumps(value)[:40]}')
    return value


def _only(where: str, values: dict, fields: List[str], name: Optional[str]):
    """Return the text of the named system, or the only one."""
    if name in values:
        return values[name]
    if not values:
        raise Lacks(f'{where}: "{".".join(fields)}" has no text')
    if len(values) != 1:
        raise UserError(
            f'{where}: "{".".join(fields)}" has {", ".join(values)}; choose one as '
            f"FILE#{'.'.join(fields)}.NAME"
        )
    return next(iter(values.values()))


def _id(record: dict, names) -> Optional[str]:
    """Return the value of the first field that a record has; null and "" count as missing."""
    values = (record.get(name) for name in names)
    return next((str(value) for value in values if value not in (None, "")), None)


def _first(record: dict, names) -> Optional[str]:
    return next((name for name in names if name in record), None)
