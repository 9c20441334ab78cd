"""Documents from records: one record per segment or per document.

The format of this project is JSON lines with the fields ``doc_id``, ``segment`` (number of the
segment in its document; may be missing) and ``text``.  Other common field names are recognised too,
including those in files of the WMT shared tasks.  If a document is a single record without a
segment number, the lines of its text are its segments.  References may lack segments.
``is_bad_source`` (WMT24++) marks segments that are not meant to be scored.
"""

import json
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import segment_number, whole_number
from fairseq_docmt.readers.inputs import Document, Documents
from fairseq_docmt.readers.record_files import (
    DOCUMENT_FIELDS,
    SEGMENT_FIELDS,
    TEXT_FIELDS,
    Records,
)

#: Fields of translations that a reference is read from if the record has no other text, as in
#: WMT25, whose references are files like the outputs of systems.
_ONLY_TEXT = ("hypothesis", "hyp", "mt", "translation")
#: Fields of the system of a record, in files with a record for each segment of each system.
SYSTEM_FIELDS = ("system", "system_id", "sysid", "system_name")
#: Field of WMT24++ that marks a segment as bad.
BAD_FIELD = "is_bad_source"


class Lacks(UserError):
    """Error for a record or document that lacks the wanted text.

    If references are read, such a gap is accepted as long as other segments have a text.
    """


class Row(NamedTuple):
    """A segment of a document as read from a file.

    Attributes:
        where: location in the file, for messages.
        number: number or name of the segment; None if the file gives none.
        text: text of the segment; None if it is missing.
        bad: whether the file marks the segment as bad.
        group: group to which the segment belongs in grouped scores; None if it has none.
    """

    where: str
    number: Optional[str]
    text: Optional[str]
    bad: bool = False
    group: Optional[str] = None


class Wanted(NamedTuple):
    """Specification of the text to read from a file.

    Attributes:
        role: ``source``, ``reference`` or ``system``.
        name: name of the system on the command line; None for other roles.
        chosen: field or system that the command line names as ``FILE#NAME``, otherwise None.  A
            nested field is given by names and numbers (from 0) joined by dots.
        fields: fields that the command line names as ``FILE#doc=FIELD,text=FIELD``: ``doc``,
            ``segment``, ``text`` or ``system`` -> name of the field.
        by: field of records or attribute of documents by which scores are grouped; None for no
            groups.
        by_name: whether the command accepts a name after ``#``; used in error messages.
    """

    role: str
    name: Optional[str] = None
    chosen: Optional[str] = None
    fields: Dict[str, str] = {}
    by: Optional[str] = None
    by_name: bool = True

    def advice(self, what: str, names: str) -> str:
        """Return advice on how to read a field with an unusual name, for error messages.

        Args:
            what: phrase that describes the field, such as "of the document".
            names: what to write after ``FILE#``, such as ``doc=FIELD,text=FIELD``.
        """
        if self.by_name:
            return f"name the field {what} as FILE#{names}"
        fields = f"doc_id and {TEXT_FIELDS[self.role][0]}"
        return (
            f"rename the fields to {fields}, or convert the file: fairseq-docmt convert "
            f"--role {self.role} 'FILE#doc=FIELD,text=FIELD' --out NEW.jsonl"
        )


def read(records: Records, path: str, wanted: Wanted) -> Documents:
    """Group records into documents, in the order in which the documents begin.

    If references are read, some records may lack the text, but not all.

    Raises:
        UserError: a record lacks a document id or the text; there are several systems and none is
            named; only some segments of a document have numbers, or a number is repeated; or a
            document without segment numbers is interrupted by another document.
    """
    records = [*records]
    wanted, records = _of_one_system(records, path, wanted)
    refuse_mixed_fields(records, wanted)
    found: Dict[str, List[Row]] = {}
    last, apart = None, set()
    lacks: List[Lacks] = []
    for where, record in records:
        try:
            name, row = row_of(where, record, wanted)
        except Lacks as error:
            if wanted.role != "reference":
                raise
            lacks.append(error)
            name, row = row_of(where, record, wanted, without_text=True)
        if row.number is None and name in found and name != last:
            raise interrupted(where, name)
        if name in found and name != last:
            apart.add(name)
        last = name
        found.setdefault(name, []).append(row)
    if not found:
        raise UserError(f"{path} has no text")
    if len(lacks) == sum(map(len, found.values())):
        raise lacks[0]
    documents = [_document(name, rows) for name, rows in found.items()]
    return Documents(path, [d._replace(reordered=d.reordered or d.id in apart) for d in documents])


def interrupted(where: str, name: str) -> UserError:
    """Return the error for a segment without a number that follows another document.

    Args:
        where: location of the segment.
        name: id of its document.
    """
    return UserError(
        f"{where} is of document {name}, which other documents have followed; number the "
        "segments, or remove what is repeated"
    )


def refuse_mixed_fields(records: Records, wanted: Wanted) -> None:
    """Refuse records that have their text in different fields, which may hold different texts.

    Raises:
        UserError: a record has its text in a different field from the records before it, or has an
            object where others have text.
    """
    chosen = wanted.fields.get("text", wanted.chosen)
    names = [chosen] if chosen else _text_fields(wanted)
    first: Optional[Tuple[str, str]] = None
    kinds: Dict[bool, str] = {}  # whether it is an object -> first record that has it
    for where, record in records:
        field = _first(record, names)
        if field is None:
            continue
        first = first or (field, where)
        if field != first[0]:
            raise UserError(
                f'{where} has its text in "{field}", but {first[1]} in "{first[0]}"; '
                + wanted.advice("with the text", "FIELD")
            )
        if record[field] not in (None, {}):
            kinds.setdefault(isinstance(record[field], dict), where)
        if len(kinds) == 2:  # such as the message of an error among translations
            raise UserError(
                f'{kinds[True]}: "{field}" is an object, in {kinds[False]} it is text; give text '
                "in all"
            )


def _of_one_system(records: list, path: str, wanted: Wanted) -> Tuple[Wanted, list]:
    """Select the records of one system if a field names the system of each record.

    A file with several systems repeats the source and the reference for each of them.  These two
    are therefore read from the records of the first system.

    Returns:
        ``wanted``, with ``chosen`` set to None if it is the name of a system; and the selected
        records, which are all records if there is nothing to select.

    Raises:
        UserError: no record has the field that the user gave for the system, or there are several
            systems and none is chosen.
    """
    names = [wanted.fields["system"]] if "system" in wanted.fields else SYSTEM_FIELDS
    systems = [name_of(where, record, names) for where, record in records]
    known = [*dict.fromkeys(filter(None, systems))]
    if "system" in wanted.fields and not known:
        raise UserError(f"{path} has no {wanted.fields['system']}; see its fields")
    if len(known) < 2 and wanted.chosen not in known:
        return wanted, records
    if wanted.chosen in known:
        system, wanted = wanted.chosen, wanted._replace(chosen=None)
    elif wanted.role != "system":
        system = known[0]
    elif wanted.name in known:
        system = wanted.name
    else:
        raise UserError(
            f"{path} has the systems {', '.join(known)}; choose one as FILE#NAME, or by the name "
            "in NAME=FILE"
        )
    return wanted, [each for each, name in zip(records, systems) if name == system]


def row_of(where: str, record: dict, wanted: Wanted, without_text: bool = False) -> Tuple[str, Row]:
    """Return the document id of a record, and its segment as a :class:`Row`.

    Args:
        where: location of the record, for messages.
        record: fields of the record.
        wanted: which text to read.
        without_text: True to set the text of the segment to None instead of reading it.

    Raises:
        UserError: the record lacks a document id, the wanted text (:class:`Lacks`), or the segment
            field that the user has named; or a name is empty or null.
    """
    fields = wanted.fields
    document_fields = [fields["doc"]] if "doc" in fields else DOCUMENT_FIELDS
    name = name_of(where, record, document_fields)
    segment_fields = [fields["segment"]] if "segment" in fields else SEGMENT_FIELDS
    number = segment_number(name_of(where, record, segment_fields))
    if name is None:
        _refuse_blank(where, record, document_fields)
        found = ", ".join(map(str, record)) or "{}"
        raise UserError(
            f'{where} has no "{fields.get("doc", "doc_id")}", only {found}; '
            + wanted.advice("of the document", "doc=FIELD,text=FIELD")
        )
    if "segment" in fields and number is None:
        _refuse_blank(where, record, segment_fields)
        raise UserError(f'{where} has no "{fields["segment"]}"')
    bad = str(record.get(BAD_FIELD, "")).lower() in ("true", "1")
    text = None if without_text else _text(where, record, wanted)
    return name, Row(where, number, text, bad, value_of(record, [wanted.by]) if wanted.by else None)


def _document(name: str, rows: List[Row]) -> Document:
    if len(rows) == 1 and rows[0].number is None:
        lines = [line for line in map(str.strip, (rows[0].text or "").split("\n")) if line]
        groups = (rows[0].group,) * len(lines) if rows[0].group else ()
        bad = tuple(range(len(lines))) if rows[0].bad else ()
        return Document(name, lines, bad=bad, groups=groups)
    return numbered_document(name, rows)


def numbered_document(name: str, rows: List[Row]) -> Document:
    """Build a document from its segments, sorted by their numbers if these are whole numbers.

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
    refuse_repeated(name, rows)
    if None not in map(whole_number, numbers):
        rows = sorted(rows, key=lambda row: whole_number(row.number))
    segments, _, *places = _segments(rows)
    sorted_numbers = [row.number for row in rows]
    return Document(name, segments, sorted_numbers, *places, sorted_numbers != numbers)


def refuse_repeated(name: str, rows: List[Row]) -> None:
    """Raise an error if two segments of a document have the same number.

    Args:
        name: id of the document.
        rows: its segments; those without a number are ignored.

    Raises:
        UserError: a number is repeated.
    """
    seen = set()
    for row in rows:
        if row.number is not None and row.number in seen:
            raise UserError(f"{row.where}: document {name} already has a segment {row.number}")
        seen.add(row.number)


def _segments(rows: List[Row]) -> tuple:
    """Convert segments to the fields of a :class:`Document` that follow its id.

    Returns:
        The values of ``segments``, ``numbers``, ``missing``, ``bad`` and ``groups``.  ``numbers``
        is always None; the caller replaces it if the segments are numbered.
    """
    missing = tuple(place for place, row in enumerate(rows) if row.text is None)
    bad = tuple(place for place, row in enumerate(rows) if row.bad)
    groups = tuple(row.group or "" for row in rows) if any(row.group for row in rows) else ()
    return [_line(row.text or "") for row in rows], None, missing, bad, groups


def _line(text: str) -> str:
    return " ".join(text.split())


def _text_fields(wanted: Wanted) -> Tuple[str, ...]:
    """Return the names of fields that may hold the wanted text, in order of preference."""
    known = TEXT_FIELDS[wanted.role]
    return (wanted.name, *known) if wanted.name else known


def _text(where: str, record: dict, wanted: Wanted) -> str:
    chosen = wanted.fields.get("text", wanted.chosen)
    if chosen:
        fields = [chosen] if chosen in record else chosen.split(".")
    else:
        names = _text_fields(wanted)
        if wanted.role == "reference" and _first(record, TEXT_FIELDS["source"]) is None:
            names = (*names, *_ONLY_TEXT)
        field = _first(record, names)
        if field is None:
            raise Lacks(
                f"{where} has none of the fields {', '.join(TEXT_FIELDS[wanted.role])}; "
                + wanted.advice("with the text", "FIELD")
            )
        fields = [field]
    value: Any = record
    for field in fields:
        place = whole_number(field)
        if isinstance(value, list) and place is not None and place < len(value):
            value = value[place]
        elif isinstance(value, dict) and field in value:
            value = value[field]
        else:
            raise Lacks(f'{where} has no "{field}"')
    while isinstance(value, dict):
        value = _only(where, value, fields, wanted.name)
    if value is None:
        raise Lacks(f'{where}: "{".".join(fields)}" must be text, not null')
    if isinstance(value, list):
        advice = "for the sentences of a document, give one text with line breaks between them"
        if wanted.by_name:
            name = f"{'.'.join(fields)}.0"
            advice = f"{wanted.advice('with the text and its number', name)}, or, {advice}"
        raise UserError(f'{where}: "{".".join(fields)}" has {len(value)} texts; {advice}')
    if not isinstance(value, str):
        raise UserError(f'{where}: "{".".join(fields)}" must be text, not {json.dumps(value)[:40]}')
    return value


def _only(where: str, values: dict, fields: List[str], name: Optional[str]):
    """Return the text of the named system from a field with nested values.

    If there is a single value, it is returned whatever its name.

    Args:
        where: location of the record, for messages.
        values: the nested values, such as system -> text.
        fields: path to the field in the record, for messages.
        name: name of the system; None for a source or reference.

    Raises:
        Lacks: there are no values.
        UserError: there are several values, and none is of the named system.
    """
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


def value_of(record: dict, names) -> Optional[str]:
    """Return the value of the first of the named fields that a record has, as a string.

    A value of null or "" counts as missing.  If all are missing, None is returned.
    """
    values = (record.get(name) for name in names)
    return next((str(value) for value in values if value not in (None, "")), None)


def name_of(where: str, record: dict, names) -> Optional[str]:
    """Return the name of a document or system, or the number of a segment; None if it is missing.

    Args:
        where: location of the record, for messages.
        record: fields of the record.
        names: fields that may hold the value; the first that has one is read.

    Raises:
        UserError: the value is neither text nor a number.
    """
    field = next((name for name in names if record.get(name) not in (None, "")), None)
    value = record.get(field)
    infinite = isinstance(value, float) and not math.isfinite(value)
    if infinite or isinstance(value, (bool, list, dict)):
        shown = json.dumps(value, ensure_ascii=False)[:40]
        raise UserError(f'{where}: "{field}" must be text or a number, not {shown}')
    return value_of(record, names)


def _refuse_blank(where: str, record: dict, names) -> None:
    """Raise a UserError if a record has one of the named fields, which is then empty or null."""
    field = _first(record, names)
    if field is not None:
        shown = "null" if record[field] is None else "empty"
        raise UserError(f'{where}: "{field}" must be text or a number, not {shown}')


def _first(record: dict, names) -> Optional[str]:
    return next((name for name in names if name in record), None)
