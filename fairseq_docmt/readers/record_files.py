"""Files of records: JSON lines, other JSON, and tables separated by tabs, commas or semicolons.

The functions that read records yield a pair for each: its location in the file, for error messages,
and a dictionary of its fields.
"""

import csv
import io
import json
import re
from itertools import zip_longest
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from fairseq_docmt.errors import UserError

Records = Iterator[Tuple[str, dict]]

#: Fields that name a document and a segment; the first that a record has is read.
DOCUMENT_FIELDS = ("doc_id", "docid", "document_id", "document", "doc")
SEGMENT_FIELDS = ("segment", "segment_id", "seg_id", "seg", "segid", "seg_num", "segment_number")
SEGMENT_FIELDS += ("sentence_id", "sent_id", "line_id")
#: Fields of each role; the first that a record has is read.
TEXT_FIELDS = {
    "source": ("source", "src", "src_text", "source_text", "text"),
    "reference": ("reference", "ref", "refs", "target", "tgt", "tgt_text", "text"),
    "system": ("hypothesis", "hyp", "mt", "translation", "target", "tgt", "tgt_text", "text"),
}
_KNOWN = {*DOCUMENT_FIELDS, *SEGMENT_FIELDS, *(name for f in TEXT_FIELDS.values() for name in f)}
#: Most lines of a text that are read to see whether all have the same number of tabs.
MOST_LINES = 1000
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
# Quotation marks that CSV has doubled: as text, a quotation would begin or end with a space, or
# three marks would be in a row.
_DOUBLED = re.compile(r'"""|\s""|""\s')


def _fields(pairs: List[Tuple[str, object]]) -> dict:
    """Build a JSON object from its fields.

    Raises:
        ValueError: a field occurs twice, so that one of its values would be lost.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the field "{twice}" occurs twice')
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_fields)


def refuse_halves(value, text: str) -> None:
    r"""Refuse JSON with half of a surrogate pair, which no file of UTF-8 can hold.

    Args:
        value: value of the JSON.
        text: the JSON; only an escape such as ``\ud83d`` can write such a character.

    Raises:
        ValueError: a string has such a character.
    """
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise ValueError(f"{half} is half of a character, which UTF-8 cannot hold") from None


def _reason(error: Exception) -> str:
    """Return the message of an error of the JSON parser, without the line and column."""
    return getattr(error, "msg", None) or str(error)


def parsed_json(text: str, path: str, line: Optional[int] = None, halves: bool = False):
    """Return the value of a JSON text.

    Args:
        text: a file, or a line of it.
        path: path of the file, for messages.
        line: number of the line; None for a whole file.
        halves: whether strings may have halves of surrogate pairs, as escapes can write them.

    Raises:
        UserError: the text is not valid JSON, or a field occurs twice in an object.
    """
    try:
        found = _DECODER.decode(text)
        if not halves:
            refuse_halves(found, text)
        return found
    except (ValueError, RecursionError) as error:
        line = line or getattr(error, "lineno", 1)
        raise UserError(f"{path}: line {line} is not valid JSON ({_reason(error)})") from None


def is_jsonl(text: str) -> bool:
    """Return whether the first non-blank line of a text is a JSON object."""
    first = text.lstrip().split("\n", 1)[0]
    try:
        return first.startswith("{") and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def is_json(text: str) -> bool:
    """Return whether a text begins with a JSON object, or an array of objects, arrays or strings.

    An array counts if at least one of its elements is of these kinds.  Damaged JSON is recognised
    if it begins like an object or like an array of objects.
    """
    start = text.lstrip()
    if start[0] not in "[{":
        return False
    try:
        found, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):
        # A broken file of objects is still none of sentences.
        return re.match(r'(\[\s*)?\{\s*"[^"\n]*"\s*:', start) is not None
    return isinstance(found, dict) or any(isinstance(each, (dict, list, str)) for each in found)


def refuse_damaged(text: str, path: str) -> None:
    """Raise a UserError if the first value of a text is not valid JSON."""
    try:
        json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        next(json_values(text, path), None)


def json_of(text: str, path: str) -> Optional[Records]:
    """Return the records of JSON lines or of other JSON, or None if the text is not JSON."""
    if is_jsonl(text):
        return json_records(text, path)
    return json_values(text, path) if is_json(text) else None


def separator_of(text: str, columns: Sequence[str] = ()) -> Optional[str]:
    """Return the column separator of a table, or None if the text is not a table.

    A text counts as a table if its first line, split at a separator, contains one of the given
    columns or looks like a header with known field names.

    Args:
        text: content of a file.
        columns: columns that were named on the command line, by name or by number.
    """
    names = {mark: cells for mark, cells in _cells(text).items() if _is_header(cells, mark)}
    return separator_with(text, columns) or next(iter(names), None)


def separator_with(text: str, columns: Sequence[str]) -> Optional[str]:
    """Return the separator with which the first line has the most of the given columns.

    If it has none of them with any separator, None is returned.

    Args:
        text: content of a file.
        columns: names of columns, or their numbers, counted from 1.
    """

    def found(cells: List[str]) -> int:
        numbers = map(str, range(1, len(cells) + 1))
        return len({*columns} & {*cells, *numbers}) if len(cells) > 1 else 0

    marks = _cells(text)
    best = max(marks, key=lambda mark: found(marks[mark]))
    return best if found(marks[best]) else None


def _cells(text: str) -> Dict[str, List[str]]:
    """Split the first line of a text by each separator; return separator -> cells.

    The separators are tab, comma and semicolon.
    """
    header = text.lstrip("\n").split("\n", 1)[0]
    return {mark: [name.strip('"') for name in header.split(mark)] for mark in "\t,;"}


def _first_lines(text: str) -> List[str]:
    """Return the lines that are not blank among the first ``MOST_LINES`` of a text."""
    return [line for line in text.split("\n", MOST_LINES)[:MOST_LINES] if line.strip()]


def has_tabs_throughout(text: str) -> bool:
    """Return whether all lines have the same number of tabs, as in a table.

    There must be at least two lines with tabs.  Blank lines are ignored, and only the first
    ``MOST_LINES`` lines are looked at.
    """
    lines = _first_lines(text)
    tabs = {line.count("\t") for line in lines}
    return len(lines) > 1 and len(tabs) == 1 and tabs != {0}


def is_json_without_objects(text: str) -> bool:
    """Return whether all lines are JSON strings or arrays, such as ``"one sentence"``.

    There must be at least two such lines.  Blank lines are ignored, and only the first
    ``MOST_LINES`` lines are looked at.
    """
    lines = _first_lines(text)
    try:
        found = [json.loads(line) for line in lines if line.lstrip()[0] in '["']
    except (ValueError, RecursionError):
        return False
    return 1 < len(lines) == len(found)


def json_records(text: str, path: str, halves: bool = False) -> Records:
    """Yield the location (path and line) and the fields of each record in JSON lines.

    Args:
        text: content of the file.
        path: the file, for messages.
        halves: whether strings may have halves of surrogate pairs, as escapes can write them.

    Raises:
        UserError: a line is not a JSON object, or a field occurs twice in an object.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        record = parsed_json(line, path, number, halves)
        if not isinstance(record, dict):
            raise UserError(f"{where} must be a JSON object with the fields doc_id and text")
        yield where, record


def json_values(text: str, path: str) -> Records:
    """Yield the location and the fields of each record in JSON that extends over several lines.

    The text is an array of objects, or several objects one after another.

    Raises:
        UserError: the text is not valid JSON, contains values that are not objects, or a field
            occurs twice in an object.
    """
    at, number = 0, 0
    blank = re.compile(r"\s*")
    while (at := blank.match(text, at).end()) < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
            refuse_halves(value, text[at:end])
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", text.count("\n", 0, at) + 1)
            raise UserError(f"{path}: line {line} is not valid JSON ({_reason(error)})") from None
        at = end
        for record in value if isinstance(value, list) else [value]:
            number += 1
            where = f"{path}: record {number}"
            if not isinstance(record, dict):
                raise UserError(
                    f"{where} must be a JSON object with the fields doc_id and text, not "
                    f"{json.dumps(record, ensure_ascii=False)[:40]}"
                )
            yield where, record


def table_records(text: str, path: str, separator: str = "\t", header: bool = True) -> Records:
    """Yield the location of each row, and a dictionary of its cells by column name.

    If a tab-separated table is not quoted (see :func:`is_quoted`), quotation marks are part of the
    text, and only line feeds end a row.  Other tables are read as CSV, in which quoted cells may
    contain line breaks.

    Args:
        text: content of the file.
        path: path of the file, for messages.
        separator: separator of the columns.
        header: whether the first line names the columns; otherwise their names are 1, 2, ...

    Raises:
        UserError: the text is not valid CSV, two columns have the same name, or a line has too few
            or too many columns.
    """
    rows = numbered_rows(text, path, separator)
    first, names = next(rows)
    if header:
        for name in filter(None, names):
            if names.count(name) > 1:
                raise UserError(f"{path}: two columns are called {name}; rename one")
        of_header = f"the header {len(names)}"
    else:
        rows = numbered_rows(text, path, separator)
        names, of_header = [str(n) for n, _ in enumerate(names, 1)], f"the first {len(names)}"
    for number, row in rows:
        if len(row) != len(names):
            raise UserError(f"{path}: line {number} has {len(row)} columns, but {of_header}")
        yield f"{path}: line {number}", dict(zip(names, row))


def is_quoted(text: str) -> bool:
    """Return whether the cells of a tab-separated table are quoted as in CSV.

    Programs that write CSV put quotation marks around all cells, around all that are no numbers (so
    also around the header), or only around those that contain a quotation mark, and double each
    quotation mark within a cell.  A quoted cell may have line breaks.
    """
    return _follow_csv(text, _rows_at_tabs(text))


def table_of(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a tab-separated table, from which :func:`numbered_rows` reads the same rows.

    The cells are quoted as in CSV only if their quotation marks would otherwise be unclear.
    """
    text = "".join("\t".join(row) + "\n" for row in rows)
    try:
        unclear = [row for _, row in numbered_rows(text, "", "\t")] != [*map(list, rows)]
    except UserError:
        unclear = True
    if unclear:
        quoted = io.StringIO()
        writer = csv.writer(quoted, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerows(rows)
        text = quoted.getvalue()
    return text


def _rows_at_tabs(text: str) -> List[Tuple[int, List[str]]]:
    """Split a text at tabs; return the line number and the cells of each row that is not blank."""
    lines = enumerate(text.split("\n"), start=1)
    return [(number, line.split("\t")) for number, line in lines if line.strip("\t")]


def _follow_csv(text: str, rows: Sequence[Tuple[int, List[str]]]) -> bool:
    """Do what :func:`is_quoted` does, given the text and its rows split at tabs."""
    return _are_quoted(rows) or _break_cells(text, rows)


def _are_quoted(rows: Sequence[Tuple[int, List[str]]]) -> bool:
    """Return whether all cells of a table that have quotation marks are quoted as in CSV."""
    marked = [cell for _, row in rows for cell in row if '"' in cell]
    if not marked or not all(map(_QUOTED.fullmatch, marked)):
        return False
    header = all(map(_QUOTED.fullmatch, filter(None, rows[0][1])))
    return header or any(map(_DOUBLED.search, marked))


def _break_cells(text: str, rows: Sequence[Tuple[int, List[str]]]) -> bool:
    """Return whether quoted cells have line breaks, so that lines have unequal numbers of cells.

    Args:
        text: content of the file.
        rows: line number and cells of each line, split at tabs.
    """
    if len({len(row) for _, row in rows}) == 1:
        return False
    try:
        found = [row for _, row in _rows_of_csv(text, "", "\t")]
    except UserError:
        return False
    cells = "".join(cell for row in found for cell in row)
    # A tab in a cell tells a quotation that goes on in the text of the next row.
    return "\n" in cells and "\t" not in cells


def _refuse_unclear_quotes(rows: Sequence[Tuple[int, List[str]]], path: str) -> None:
    """Refuse a table whose quotation marks may be those of CSV as well as those of its texts.

    In the only cells that have quotation marks, these are also doubled, or are around all cells
    with commas and no others, as Excel puts them; or all texts of a column are in quotation marks.

    Args:
        rows: line number and cells of each row; the first may be the header.
        path: path of the file, for messages.

    Raises:
        UserError: there is such a cell, or such a column of two or more cells.
    """
    advice = (
        "quote the header too if the marks are those of CSV, or quote the whole table as CSV if "
        "they are part of the text"
    )
    marked = [(number, cell) for number, row in rows for cell in row if '"' in cell]
    if marked and all(_QUOTED.fullmatch(cell) for _, cell in marked):
        commas = {cell for _, row in rows for cell in row if "," in cell}
        of_excel = commas == {cell for _, cell in marked}
        for number, cell in marked:
            if of_excel or '""' in cell[1:-1]:
                raise UserError(
                    f"{path}: line {number}: {cell[:40]} is text in quotation marks, or a cell "
                    f"that is quoted as in CSV; {advice}"
                )
    for number, column in enumerate(zip_longest(*(row for _, row in rows[1:]), fillvalue=""), 1):
        cells = [cell for cell in column if cell]
        if len(cells) > 1 and all(map(_QUOTED.fullmatch, cells)):
            raise UserError(
                f"{path}: all cells of column {number} are in quotation marks, but the header is "
                f"not; {advice}"
            )


def numbered_rows(text: str, path: str, separator: str) -> Iterator[Tuple[int, List[str]]]:
    """Iterate over the line number and the cells of each row that is not blank.

    Args:
        text, path, separator: as in :func:`table_records`.

    Raises:
        UserError: the text is not valid CSV, or it is unclear whether it is quoted.
    """
    if separator == "\t":
        rows = _rows_at_tabs(text)
        if not _follow_csv(text, rows):
            _refuse_unclear_quotes(rows, path)
            return iter(rows)
    return _rows_of_csv(text, path, separator)


def _rows_of_csv(text: str, path: str, separator: str) -> Iterator[Tuple[int, List[str]]]:
    """Yield the number of the first line and the cells of each row of CSV that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    csv.field_size_limit(2**31 - 1)
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{path}: line {begin} is not valid CSV ({error})") from None
        if row is None:
            return
        if any(row):
            yield begin, row


def _is_header(names: List[str], mark: str) -> bool:
    """Return whether the cells of a line look like the names of columns.

    Two known field names suffice, or one if all cells are single words.  In a line split at tabs, a
    field name for document ids suffices too.

    Args:
        names: cells of the line.
        mark: separator at which the line was split.
    """
    if len(names) < 2:
        return False
    if mark == "\t" and not {*DOCUMENT_FIELDS}.isdisjoint(names):
        return True
    known = sum(name.lower() in _KNOWN for name in names)
    return known > 1 or known > 0 and all(re.fullmatch(r"[\w.-]+", name) for name in names)
