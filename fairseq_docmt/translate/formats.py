"""Formats of files with documents to translate; the output has the same format.

There is a class for each format.  Its instances read the ``documents`` of a file, and ``pieces``
yields the content of the output file.  ``holds_nbest`` says whether the output can have several
translations of a segment, ``holds_system`` whether it can name the system, and ``line_end`` is the
line ending of the file.  XML and SGM also have ``source_language``, which is None if the file does
not declare it.  The format of a file is recognised by its content, as in the evaluation commands.
"""

import copy
import json
import re
from itertools import islice
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from lxml import etree

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import record_files, records, sgm, unknown_format, wmt_xml
from fairseq_docmt.readers.files import read_with_line_end, segment_number, whole_number
from fairseq_docmt.readers.records import Row, Wanted, numbered_document

#: Field or column of a translation, and field of a list of several.
HYPOTHESIS, NBEST = "hypothesis", "nbest"
SOURCE = Wanted("source", by_name=False)


class Document(NamedTuple):
    """A document to translate.

    Attributes:
        id: name of the document in its file.
        segments: texts to translate; the translation of an empty text is empty.
        places: file and line of each segment, for messages.
    """

    id: str
    segments: List[str]
    places: List[str]


class Hypothesis(NamedTuple):
    """A translation of a segment.

    Attributes:
        text: the translation.
        score: score of the search, in base 2 as printed by ``fairseq-generate``.  If the segment
            was cut into sentences, it is the sum of their scores.
    """

    text: str
    score: float


#: Number of a document -> for each segment its translations, the best first.
Translations = Callable[[int], List[List[Hypothesis]]]


class Layout(NamedTuple):
    """Rule by which a file of plain text is cut into documents.

    Attributes:
        whole: True if the file is one document; False if blank lines separate documents.
        docids: document id of each line, which overrides ``whole``; None without ``--docids``.
    """

    whole: bool = False
    docids: Optional[List[str]] = None


WITH_BLANK_LINES = Layout()


class PlainText:
    """Plain text with one segment per line; the output keeps the blank lines.

    Args:
        text: content of the file.
        path: name of the file, for messages.
        layout: rule that tells where documents end.

    Raises:
        UserError: the number of document ids differs from the number of lines.
    """

    holds_nbest = False
    holds_system = False

    def __init__(self, text: str, path: str, layout: Layout):
        self.lines = text.split("\n")
        self._ends_line = self.lines[-1] == ""
        if self._ends_line:
            self.lines.pop()
        self.documents: List[Document] = []
        self._of_line: List[Tuple[int, int]] = []
        ids = layout.docids
        if ids is not None and len(ids) != len(self.lines):
            raise UserError(f"--docids has {len(ids)} lines, but {path} has {len(self.lines)}")
        for number, line in enumerate(self.lines):
            self._add(line.strip(), f"{path}: line {number + 1}", layout, number)

    @property
    def has_blank_lines(self) -> bool:
        """Whether there are blank lines between lines of text."""
        return "\n\n" in "\n".join(map(str.strip, self.lines)).strip()

    def _add(self, segment: str, place: str, layout: Layout, number: int) -> None:
        ids, first = layout.docids, not self.documents
        if ids is not None:
            first = first or ids[number] != ids[number - 1]
        elif not layout.whole:
            first = first or not self.lines[number - 1].strip()
        if not segment and ids is None:
            self._of_line.append((-1, -1))
            return
        if first:
            name = str(len(self.documents) + 1) if ids is None else ids[number]
            self.documents.append(Document(name, [], []))
        document = self.documents[-1]
        self._of_line.append((len(self.documents) - 1, len(document.segments)))
        document.segments.append(segment)
        document.places.append(place)

    def pieces(self, translations: Translations) -> Iterator[str]:
        """Yield the lines of the file, with translations in place of the source."""
        for number, (line, (document, segment)) in enumerate(zip(self.lines, self._of_line)):
            if document >= 0:
                blanks = line[: len(line) - len(line.lstrip())]
                line = blanks + translations(document)[segment][0].text
            is_last = number == len(self.lines) - 1
            yield line + ("" if is_last and not self._ends_line else "\n")


class JsonLines:
    """JSON lines; the output has the field ``hypothesis`` in each record.

    If a record is a single segment with several translations, it also gets the field ``nbest`` with
    all of them and their scores.  A record without a segment number may be a whole document, whose
    lines are its segments.

    Args:
        text, path: content of the file, and its name for messages.
        layout: ignored, as only plain text needs it.

    Attributes:
        without_nbest: number of records written so far without the field ``nbest``.

    Raises:
        UserError: the records are invalid, or one has the field ``hypothesis`` already; or its text
            has half of a surrogate pair, which other fields may have.
    """

    holds_nbest = True
    holds_system = False

    def __init__(self, text: str, path: str, layout: Layout):
        self._path = path
        given = [*record_files.json_records(text, path, halves=True)]
        self._lines = [line.rstrip() for line in text.split("\n") if line.strip()]
        self.without_nbest = 0
        rows: Dict[str, List[Tuple[int, Row]]] = {}
        records.refuse_mixed_fields(given, SOURCE)
        for number, ((where, record), line) in enumerate(zip(given, self._lines)):
            for field in (HYPOTHESIS, NBEST):
                _refuse_field(field, field in record, where)
            name, row = records.row_of(where, record, SOURCE)
            try:
                record_files.refuse_halves(row.text, line)
            except ValueError as error:
                raise UserError(f"{where}: {error}") from None
            rows.setdefault(name, []).append((number, row))
        self.documents, self._of_record = _ordered(rows)

    def pieces(self, translations: Translations) -> Iterator[str]:
        """Yield the JSON lines with their translations."""
        for line, (document, first, lines) in zip(self._lines, self._of_record):
            best = translations(document)[first : first + len(lines)]
            added: Dict[str, object] = {HYPOTHESIS: "\n".join(found[0].text for found in best)}
            if len(best) == 1 and len(best[0]) > 1:
                added[NBEST] = [found._asdict() for found in best[0]]
            else:
                self.without_nbest += 1
            # The other fields stay as they are written, whatever numbers and escapes they have.
            yield f"{line[:-1]}, {json.dumps(added, ensure_ascii=False)[1:]}\n"


class Table:
    """Tab-separated table with named columns; the output has a further column ``hypothesis``.

    Each row is a segment.

    Args:
        text, path: content of the file, and its name for messages.
        layout: ignored, as only plain text needs it.

    Raises:
        UserError: the rows are invalid, a cell has a line break, or the table has the column
            ``hypothesis`` already.
    """

    holds_nbest = False
    holds_system = False

    def __init__(self, text: str, path: str, layout: Layout):
        lines, rows_of = text.split("\n"), record_files.numbered_rows
        given = [*rows_of(text, path, "\t")]
        for number, row in given:
            if "\n" in "".join(row):
                raise UserError(
                    f"{path}: line {number} has a cell with a line break; write the table as JSON "
                    "lines by `fairseq-docmt convert --role source --out NEW.jsonl`"
                )
        self.lines = [lines[number - 1] for number, _ in given]
        self._quotes = record_files.is_quoted(text)
        header = self.lines[0].split("\t")
        _refuse_field(HYPOTHESIS, not {HYPOTHESIS, f'"{HYPOTHESIS}"'}.isdisjoint(header), path)
        rows: Dict[str, List[Tuple[int, Row]]] = {}
        for number, (where, record) in enumerate(record_files.table_records(text, path)):
            name, row = records.row_of(where, record, SOURCE)
            # A row of a table is a segment, with or without a number.
            rows.setdefault(name, []).append((number, row))
        self.documents, self._of_record = _ordered(rows)

    def pieces(self, translations: Translations) -> Iterator[str]:
        """Yield the header and the rows with their translations."""
        yield f"{self.lines[0]}\t{HYPOTHESIS}\n"
        for line, (document, first, _) in zip(self.lines[1:], self._of_record):
            found = translations(document)[first][0].text
            if self._quotes and '"' in found:
                found = '"' + found.replace('"', '""') + '"'
            yield f"{line}\t{found}\n"


def _of_rows(name: str, rows: List[Row]) -> Document:
    """Build a document from its segments, without sorting them by their numbers.

    Raises:
        UserError: two segments have the same number, or the segments are not in ascending order of
            their numbers.
    """
    records.refuse_repeated(name, rows)
    for before, row in zip(rows, rows[1:]):
        numbers = [whole_number(str(each.number)) for each in (before, row)]
        if None not in numbers and numbers[1] < numbers[0]:
            raise UserError(
                f"{row.where}: segment {row.number} follows segment {before.number}; put segments "
                "in the order of their numbers, because those before a sentence are its context"
            )
    return Document(name, [row.text for row in rows], [row.where for row in rows])


class WmtXml:
    """XML of the WMT shared tasks; each document gets a ``hyp`` element with its translation.

    U+FFFD replaces control characters of translations, which XML cannot hold.

    Args:
        text, path: content of the file, and its name for messages.
        layout: ignored, as only plain text needs it.
        system: name of the system in ``hyp``.
        language: language of the translations (``lang`` of ``hyp``); None to leave it out.

    Raises:
        UserError: the XML is invalid, or a document has a translation by ``system`` already.
    """

    holds_nbest = False
    holds_system = True
    #: Characters that XML cannot hold.
    NOT_HELD = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

    def __init__(self, text: str, path: str, layout: Layout, system: str, language: Optional[str]):
        self._system, self._language = system, language
        self._root = wmt_xml.parse(text, path)
        self._sources, self.documents = [], []
        elements = wmt_xml.documents_of(self._root, path)
        self.source_language = wmt_xml.language_of(elements, "source")
        for element in elements:
            source = wmt_xml.text_of(element, path, SOURCE)
            if any(hyp.get("system") == system for hyp in element.findall("hyp")):
                raise UserError(
                    f"{path} already has translations of {system}; give another --system"
                )
            segs = list(source.iter("seg"))
            self._sources.append(source)
            rows = [
                Row(
                    f"{path}: line {seg.sourceline}",
                    segment_number(seg.get("id")),
                    " ".join("".join(seg.itertext()).split()),
                )
                for seg in segs
            ]
            self.documents.append(_of_rows(element.get("id"), rows))

    def pieces(self, translations: Translations) -> Iterator[str]:
        """Yield the whole XML file, with translations, as a single string."""
        for number, source in enumerate(self._sources):
            hyp = copy.deepcopy(source)
            hyp.tag = "hyp"
            hyp.attrib.clear()
            hyp.set("system", self._system)
            if self._language:
                hyp.set("lang", self._language)
            for seg, found in zip(hyp.iter("seg"), translations(number)):
                for child in list(seg):
                    seg.remove(child)
                seg.text = self.NOT_HELD.sub("\ufffd", found[0].text)
            element = source.getparent()
            last = element.findall("*")[-1]
            hyp.tail = last.tail
            last.tail = source.tail
            element.append(hyp)
        tree = self._root.getroottree()
        yield etree.tostring(tree, encoding="utf-8", xml_declaration=True).decode() + "\n"


class Sgm:
    """SGM of older WMT tasks; a ``tstset`` with the translations replaces the ``srcset``.

    Args:
        text, path: content of the file, and its name for messages.
        layout: ignored, as only plain text needs it.
        system: name of the system (``sysid`` of ``tstset``).
        language: language of the translations (``trglang``); None to leave it out.

    Raises:
        UserError: the SGM is invalid or has no ``srcset``.
    """

    holds_nbest = False
    holds_system = True
    SET = re.compile(r"<(/?)srcset\b([^>]*)>", flags=re.I)
    #: Name of a system in the attributes of a tag.  NIST's sources have it in their documents.
    NAME = re.compile(r"\ssysid\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]+)", flags=re.I)

    def __init__(self, text: str, path: str, layout: Layout, system: str, language: Optional[str]):
        if not self.SET.search(text):
            raise UserError(f"{path} is SGM without a srcset; give the source file of the task")
        self._text, self._system, self._language = text, system, language
        found = sgm.documents_of(text, path)
        for kind in {document.kind for document in found} - {"srcset"}:
            raise UserError(f"{path} has a {kind} too; give the source file of the task")
        sgm.refuse_repeated(found, path)
        self.documents = [_of_rows(document.id, document.rows) for document in found]
        self.source_language = sgm.language_of(found)

    @staticmethod
    def _escaped(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    def pieces(self, translations: Translations) -> Iterator[str]:
        """Yield the whole SGM file, with translations, as a single string."""
        found = iter([best[0].text for d in range(len(self.documents)) for best in translations(d)])
        text = sgm.SEG.sub(lambda seg: seg[1] + self._escaped(next(found)) + seg[3], self._text)
        escaped = self._escaped(self._system).replace('"', "&quot;")
        name, language = f' sysid="{escaped}"', f' trglang="{self._language}"'
        text = sgm.DOC.sub(lambda tag: self.NAME.sub(lambda _: name, tag[0]), text)

        def set_tag(tag) -> str:
            if tag[1]:
                return "</tstset>"
            has_language = not self._language or "trglang" in tag[2].lower()
            return f"<tstset{self.NAME.sub('', tag[2])}{name}{'' if has_language else language}>"

        yield self.SET.sub(set_tag, text)


def read_source(
    path: str,
    layout: Layout = WITH_BLANK_LINES,
    plain: bool = False,
    system: str = "fairseq_docmt",
    language: Optional[str] = None,
):
    """Read a file with documents to translate, after detecting its format from its content.

    Args:
        path: file, or ``-`` for standard input.
        layout: rule that tells where the documents of plain text end.
        plain: True to read any content as plain text.
        system, language: name of the system and language of its translations, for XML and SGM.

    Returns:
        Instance of the class for the format, such as :class:`PlainText`.

    Raises:
        UserError: the file cannot be read, has no text or is invalid, or its format is not
            supported.
    """
    text, line_end = read_with_line_end("/dev/stdin" if path == "-" else path)
    path = "standard input" if path == "-" else path
    if not text.strip():
        raise UserError(f"{path} has no text to translate")
    if plain:
        found = PlainText(text, path, layout)
    elif layout.docids is not None:
        is_table = record_files.separator_of(text) == "\t"
        if is_table or sgm.is_sgm(text) or wmt_xml.is_xml(text) or record_files.is_jsonl(text):
            raise UserError(
                f"--docids is for plain text, and {path} names its documents; leave it out, or "
                "give --input-format text if it is one segment per line"
            )
        _refuse_other(text, path)
        found = PlainText(text, path, layout)
    elif sgm.is_sgm(text):
        found = Sgm(text, path, layout, system, language)
    elif wmt_xml.is_xml(text):
        found = WmtXml(text, path, layout, system, language)
    elif record_files.is_jsonl(text):
        found = JsonLines(text, path, layout)
    elif record_files.separator_of(text) == "\t":
        found = Table(text, path, layout)
    else:
        _refuse_other(text, path)
        found = PlainText(text, path, layout)
    found.line_end = line_end
    return found


def _refuse_damaged(text: str, path: str) -> None:
    """Raise a UserError if a text seems to be JSON, of which the first line or value is damaged."""
    filled = ((n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip())
    (number, first), *others = islice(filled, 2)
    try:
        if others and record_files.is_jsonl(others[0][1]):
            record_files.parsed_json(first, path, number, halves=True)
            raise UserError(f"{path}: line {number} is no JSON object, but line {others[0][0]} is")
        if record_files.is_json(text):
            record_files.refuse_damaged(text, path)
    except UserError as error:
        raise UserError(
            f"{error}; correct it, or give --input-format text if it is one segment per line"
        ) from None


def _refuse_other(text: str, path: str) -> None:
    """Raise a UserError if a text seems to be damaged JSON, or in an unsupported format."""
    _refuse_damaged(text, path)
    advice = "write it as JSON lines by `fairseq-docmt convert --role source --out NEW.jsonl`"
    if record_files.is_json(text):
        kind = "JSON in another form than one object per line"
    elif record_files.separator_of(text):
        kind = "a table separated by commas or semicolons"
    else:
        kind, advice = unknown_format(text), "give its text alone"
    if kind:
        raise UserError(
            f"{path} seems to be {kind}; {advice}, or give --input-format text if it is one "
            "segment per line"
        )


def _refuse_field(field: str, is_there: bool, where: str) -> None:
    if is_there:
        raise UserError(f'{where} already has the field "{field}"; remove or rename it')


def _ordered(rows: Dict[str, List[Tuple[int, Row]]]):
    """Build the documents of a file of records, with segments in the order of their numbers.

    Segments keep their order if they have no numbers, or if their numbers are not whole numbers.

    Args:
        rows: document id -> pairs of a record's index in the file and its :class:`Row`.

    Returns:
        The documents, and a list that says where each record of the file went: the index of its
        document, the index of its first segment in that document, and its segments.

    Raises:
        UserError: a record without a number has several lines, and is not the only one of its
            document; or other documents stand between the records of a document without numbers.
    """
    documents, of_record = [], {}
    for name, given in rows.items():
        for (before, _), (number, row) in zip(given, given[1:]):
            if row.number is None and number != before + 1:
                raise records.interrupted(row.where, name)
        ordered = numbered_document(name, [row for _, row in given])
        if ordered.numbers is not None:
            place = {row.number: each for each in given for row in (each[1],)}
            given = [place[number] for number in ordered.numbers]
        segments: List[str] = []
        places: List[str] = []
        for number, row in given:
            alone = row.number is None and len(given) == 1
            if row.number is None and not alone and "\n" in row.text.strip():
                raise UserError(
                    f"{row.where} has a line break, but is one of {len(given)} records of document "
                    f"{name}; give each document an id of its own, or number the segments"
                )
            lines = row.text.split("\n") if alone else [row.text]
            of_record[number] = (len(documents), len(segments), lines)
            segments += [" ".join(line.split()) for line in lines]
            places += [row.where] * len(lines)
        documents.append(Document(name, segments, places))
    return documents, [of_record[number] for number in range(len(of_record))]
