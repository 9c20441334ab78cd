"""Published formats that test_readers.py lacks: JSON, CSV, SGM, gzip, fields by name.

Covers readers/record_files.py, readers/records.py, readers/sgm.py.
"""

import csv
import gzip
import io
import json

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Document, Lines, read_docids, read_input
from fairseq_docmt.scoring.texts.matching import Reading
from fairseq_docmt.scoring.texts.translations import read_translations

#: Document, number, source, reference and translation of each segment.
ROWS = [
    ("a", 1, "one, two", 'eins "und" zwei', "eins, zwei"),
    ("a", 2, "three; four", "drei & vier", "drei <vier>"),
    ("b", 1, "five", "fünf", "fuenf"),
]
FIELDS = ("doc_id", "segment", "source", "reference", "hypothesis")
RECORDS = [dict(zip(FIELDS, row)) for row in ROWS]


def table(separator, rows=ROWS, header=FIELDS, quoting=None):
    """CSV with quotes where they are needed; none with tabs, unless another quoting is given."""
    stream = io.StringIO()
    if quoting is None:
        quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
    quotes = None if quoting == csv.QUOTE_NONE else '"'
    csv.writer(stream, delimiter=separator, quoting=quoting, quotechar=quotes).writerows(
        [header, *rows] if header else rows
    )
    return stream.getvalue()


def one_set(kind, column, sysid="", quotes='"'):
    """A set of SGM; & is an entity, < is not, and attributes may lack quotes."""
    text = f'<{kind} setid="t" srclang="any" trglang="de">\n'
    for name in "ab":
        text += f"<DOC {sysid} genre=news docid={quotes}{name}{quotes}>\n<p>\n"
        for row in ROWS:
            if row[0] == name:
                words = row[column].replace("&", "&amp;")
                text += f'<seg id="{row[1]}"> {words} </seg>\n'
        text += "</p>\n</DOC>\n"
    return text + f"</{kind}>\n"


SGM = one_set("srcset", 2) + one_set("refset", 3, 'sysid="ref"') + one_set("tstset", 4, "sysid=X")
FORMATS = {
    "array": json.dumps(RECORDS),
    "pretty array": json.dumps(RECORDS, indent=2, ensure_ascii=False),
    "objects over several lines": "\n".join(json.dumps(r, indent=2) for r in RECORDS),
    "JSON lines": "\n".join(json.dumps(r) for r in RECORDS),
    "comma": table(","),
    "semicolon": table(";"),
    "tab": table("\t"),
    "tab, as CSV": table("\t", quoting=csv.QUOTE_MINIMAL),
    "tab, as CSV with marks around all cells": table("\t", quoting=csv.QUOTE_ALL),
    "SGM": SGM,
    "SGM without quotes": SGM.replace('"', ""),
    "SGM with the marks of XML": f'<?xml version="1.0"?>\n<!DOCTYPE mteval SYSTEM "m">\n{SGM}',
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_test_set_in_every_format(write, name):
    path = write("x", FORMATS[name])
    found = read_translations({"X": path}, [path], source=path)
    wanted = [list(column) for column in zip(*ROWS)][2:]
    if "quotes" in name:  # quotes of the text are gone too
        wanted[1][0] = "eins und zwei"
    assert [found.source, *found.references, found.systems["X"]] == wanted
    assert found.ids == ["a", "b"] and found.index.starts.tolist() == [0, 2, 3]


@pytest.mark.parametrize("text", ['"So?"', '"So?" "No."', '"', '"a" ""b""', 'x ""y""'])
def test_quotation_marks_between_tabs_are_text(write, text):
    path = write("x", f"doc_id\ttext\na\t{text}\nb\tc\n")
    assert read_input(path, "system").documents[0].segments == [text]


def test_a_document_that_comes_again_is_refused(write):
    """As when the answers of a second run were appended."""
    record = {name: json.dumps({"doc_id": name, "text": "one\ntwo"}) for name in "ab"}
    path = write("x", "\n".join([record["a"], record["b"], record["a"]]))
    message = "line 3 is of document a, which other documents have followed; number the segments"
    with pytest.raises(UserError, match=message):
        read_input(path, "system")


@pytest.mark.parametrize("name", ["comma", "SGM", "JSON lines"])
def test_gzip_is_unpacked(write, tmp_path, name):
    (tmp_path / "x.gz").write_bytes(gzip.compress(FORMATS[name].encode()))
    assert read_input(str(tmp_path / "x.gz"), "source") == read_input(
        write("x.gz", FORMATS[name]), "source"
    )


def test_a_broken_archive_is_refused(tmp_path):
    path = tmp_path / "x.gz"
    for content in (gzip.compress(b"text" * 99)[:-9], gzip.compress(b"text")[:11] + b"?" * 20):
        path.write_bytes(content)
        with pytest.raises(UserError, match="x.gz cannot be unpacked by gzip"):
            read_input(str(path), "system")


def test_cells_of_csv_may_have_several_lines(write):
    path = write("x.csv", 'doc_id,text\na,"one, ""two""\nthree"\nb,four\n')
    assert read_input(path, "system").documents == [
        Document("a", ['one, "two"', "three"]),
        Document("b", ["four"]),
    ]


@pytest.mark.parametrize(
    "text, fields",
    [
        (table("\t", header=("X", "part", "s", "ref", "my words")), "doc=X,text=my words"),
        (table(",", header=("X", "part", "s", "ref", "my words")), "doc=X,segment=part,text=s"),
        (table("\t", header=None), "doc=1,segment=2,text=5"),
        (table(";", header=None), "doc=1,text=5"),
        (json.dumps([{"X": r[0], "s": {"o": [{"t": r[4]}]}} for r in ROWS]), "doc=X,text=s.o.0.t"),
    ],
)
def test_fields_by_name_or_number(write, text, fields):
    column = 2 if fields.endswith("text=s") else 4
    found = read_input(f"{write('x', text)}#{fields}", "system").documents
    assert [d.id for d in found] == ["a", "b"]
    assert [s for d in found for s in d.segments] == [row[column] for row in ROWS]
    assert (found[0].numbers == ["1", "2"]) == ("segment" in fields)


def long_table(names=("X", "Y")):
    """A row for each segment of each system."""
    rows = [(*row[:4], f"{row[4]} {name}", name) for name in names for row in ROWS]
    return table(",", rows, (*FIELDS, "system"))


def test_a_table_with_several_systems(write):
    path = write("x", long_table())
    found = read_translations({"Y": path, "other": f"{path}#X"}, [path], source=path)
    assert found.systems["Y"][2] == "fuenf Y" and found.systems["other"][2] == "fuenf X"
    assert found.references == [[row[3] for row in ROWS]]
    for name in ("Z", None):
        with pytest.raises(UserError, match="x has the systems X, Y; choose one as FILE#NAME, or"):
            read_input(path, "system", name)
    named = write("n", long_table().replace("system", "who"))
    wanted = f"{named}#doc=doc_id,segment=segment,text=hypothesis,system=who"
    assert read_input(wanted, "system", "Y").documents[1].segments == ["fuenf Y"]
    one = write("o", long_table(["X"]))
    assert read_input(one, "system", "any").documents[1].segments == ["fuenf X"]


@pytest.mark.parametrize("root", ["mt", "dataset"])
def test_xml_is_known_by_its_elements(write, root):
    """It may lack a declaration, or begin with comments."""
    text = f'<{root}><doc id="a"><hyp><seg id="1">x</seg></hyp></doc></{root}>\n'
    for begin in ("", "\n<!-- by hand -->\n<!-- <doc> -->\n"):
        found = read_input(write("x", f"{begin}{text}<!-- end -->"), "system")
        assert found.documents == [Document("a", ["x"], ["1"])]


@pytest.mark.parametrize(
    "text",
    [
        *["<i>x</i>\n<i>y</i>\n", "<i>x y</i>\n", "<Applause>\nx <b>y</b>\n", "<3 x </3>\n"],
        *["<i>x <b>y</b></i>\nz\n", 'x\n<doc id="1"><seg>\n'],
    ],
)
def test_tags_in_plain_text(write, text):
    assert read_input(write("x", text), "system") == Lines(str(write("x", text)), text.splitlines())


OUTPUT = "S-0\tx\nH-0\t0\ta b\nP-0\t0 0 0\nH-10\t0\tc d\nP-10\t0 0 0\n"


@pytest.mark.parametrize(
    "text, message",
    [
        (OUTPUT[:-3], "x ends within the line 'P-10.t0 0', without a line end, as if it were cut"),
        (OUTPUT[:-12], "x ends within the line 'H-10.t0.tc d', without"),
        (OUTPUT[:-9], "x: sentence 10 has 1 H-, 0 P- lines, but needs one of each"),
        (OUTPUT.replace("H-0\t0\ta b\n", ""), "x: sentence 0 has 0 H-, 1 P- lines, but needs one"),
    ],
)
def test_an_output_that_is_cut(write, text, message):
    """Within a line, or without a line."""
    assert read_input(write("x", OUTPUT), "system").hypotheses == {0: "a b", 10: "c d"}
    assert read_input(write("x", f"{OUTPUT}end of log"), "system").hypotheses[10] == "c d"
    with pytest.raises(UserError, match=message):
        read_input(write("x", text), "system")


def test_comments_of_sgm_outside_of_sets(write):
    path = write("x", "<!-- by hand -->\n" + SGM.replace("<p>", "<!-- a -->"))
    assert read_input(path, "source").documents[1].segments == ["five"]


def test_a_translation_alone_is_a_reference(write):
    """The references of WMT25 are files like the outputs of systems."""
    records = [{"doc_id": "a", "tgt_lang": "de", "hypothesis": "eins\n\nzwei"}]
    path = write("x", json.dumps(records[0]) + "\n")
    assert read_input(path, "reference").documents[0].segments == ["eins", "zwei"]
    path = write("x", json.dumps({**records[0], "source": "one"}) + "\n")
    with pytest.raises(UserError, match="none of the fields reference, ref,"):
        read_input(path, "reference")
    assert read_input(f"{path}#hypothesis", "reference").documents[0].segments[0] == "eins"


@pytest.mark.parametrize(
    "text, message",
    [
        ('["x y", "z"]', 'record 1 must be a JSON object with the fields doc_id and text, not "x'),
        (json.dumps({"a": ["x y"]}, indent=1), 'record 1 has no "doc_id", only a; name the field'),
        ('[\n{"doc_id": "a",\n "text": "x"},\n{"doc_id": \n]', "line 5 is not valid JSON"),
        (
            '{"doc_id": "a", "text": ["x"]}',
            'line 1: "text" has 1 texts; name .*number as FILE#text.0',
        ),
        ("source\ttarget\nx y\tz\n", 'line 2 has no "doc_id", only source, target; name the field'),
        ("news\td1\tone\nnews\td1\ttwo\n", "x seems to be a table whose first line does not name"),
        ('doc_id,text\na,"x\nb,y\n', "line 2 is not valid CSV"),
        ("doc_id,text\na,x,y\n", "line 2 has 3 columns, but the header 2"),
        ('<DOC docid="a">\n<seg id="1">x y</seg>\n</DOC>\n', "line 1: the document is in no srcs"),
        ('<tstset>\n<doc docid="a">\n<seg id=1>x\n<seg id=2>y</seg>\n</doc>', "the seg has no end"),
        (
            '"x y"\n\n"z"\n',
            "x seems to be JSON lines without objects, or text with quotation marks",
        ),
        ("[1, 2]\n[3]\n", "x seems to be JSON lines without objects"),
        ("<html><p>x</p></html>", "x seems to be mark-up without documents and segments"),
        ("<p>x</p>\n<P>y</P>\n", "x seems to be mark-up without documents and segments"),
        (
            '<doc id="1" url="u">\nx\n</doc>\n',
            "x seems to be mark-up without documents and segments",
        ),
        ("<!-- a -->\n<!DOCTYPE x>\n<x>y</x>", "x seems to be mark-up without documents and seg"),
        (
            '<tmx version="1.4">\n<tu><seg>x\ny</seg></tu>\n</tmx>\n',
            "x seems to be mark-up without documents and segments",
        ),
        (
            '<!-- by hand -->\n<dataset id="x">\n<doc/>\n</dataset>',
            "line 3: the document has no id",
        ),
        ('<mt><doc id="a"><src><seg>x</src></doc></mt>', "x, line 1 is not valid XML: Opening"),
        (
            SGM.replace("<DOC", "<!-- <DOC", 1).replace("</DOC>", "</DOC> -->", 1),
            "line 2: the comment has a <DOC>; remove it",
        ),
        (SGM.replace("one, two", "one <!-- ? -->"), "line 4: the seg has a comment; remove it"),
        ("1\n00:00:01,000 --> 00:00:02,000\nx\n", "x seems to be subtitles with times"),
        ("WEBVTT\n\n00:01.000 --> 00:02.000\nx\n", "x seems to be subtitles with times"),
        (
            "sep=,\ndoc_id,text\na,x\n",
            "x seems to be a table below Excel's line sep=, which must be",
        ),
        ("[Events]\nDialogue: 0,0:00:01.00,0:00:02.00,,x\n", "x seems to be subtitles with ti"),
        (one_set("srcset", 2), "x has no tstset, only srcset; give the system file of the task"),
        (one_set("tstset", 4, "sysid=X") * 2, "line 17: the file already has a document a; rename"),
        (SGM + one_set("tstset", 4, "sysid=Y"), "x has several: X, Y; choose one as FILE#NAME"),
    ],
)
def test_mistakes(write, text, message):
    with pytest.raises(UserError, match=message):
        read_input(write("x", text), "system")


@pytest.mark.parametrize(
    "text, fields, message",
    [
        (SGM, "doc=a,text=b", "x has documents and systems, no fields; give FILE#NAME"),
        ("words\n", "doc=a,text=b", "x is plain text, which has no doc=a,text=b; remove #doc=a"),
        (FORMATS["comma"], "doc=doc_id,txt=source", "give doc=FIELD, segment=FIELD, text=FIELD"),
        (FORMATS["comma"], "doc=doc_id,doc=source", "each once, separated by commas"),
        (FORMATS["comma"], "doc=doc_id,segment=no", 'line 2 has no "no"'),
        ('a,1,x\nb,2,"y\n', "doc=1,text=3", "/x: line 2 is not valid CSV"),
        (FORMATS["comma"], "doc=doc_id,system=no", "x has no no; see its fields"),
        (FORMATS["array"], "source.3", 'record 1 has no "3"'),
        (SGM, "Z", "x has no Z, only X"),
    ],
)
def test_mistakes_in_fields(write, text, fields, message):
    with pytest.raises(UserError, match=message):
        read_input(f"{write('x', text)}#{fields}", "system")


def test_the_wanted_set_and_system_of_sgm(write):
    path = write("x", SGM + one_set("tstset", 4, "sysid=Y").replace("fuenf", "five"))
    assert read_input(f"{path}#Y", "system").documents[1].segments == ["five"]
    assert read_input(path, "system", "X").documents[1].segments == ["fuenf"]
    assert read_input(path, "reference").language == "de"
    assert read_input(path, "source").language is None
    human = write("r", one_set("refset", 3))
    assert read_input(human, "system").documents[0].numbers == ["1", "2"]


def test_quoted_columns(write):
    """Programs that quote texts but no numbers quote the header, too."""
    rows = 'd\t1\t"a b"\nd\t2\t"c"\n'
    document = read_input(write("q", '"doc_id"\t"seg"\t"text"\n' + rows), "system").documents[0]
    assert document.segments == ["a b", "c"]
    with pytest.raises(UserError, match="all cells of column 3 are in quotation marks, but the he"):
        read_input(write("t", "doc_id\tseg\ttext\n" + rows), "system")
    rows = rows.replace('"c"', "c")
    document = read_input(write("s", "doc_id\tseg\ttext\n" + rows), "system").documents[0]
    assert document.segments == ['"a b"', "c"]


def test_unclear_quotation_marks(write):
    """Text in quotation marks beside other such text looks like a cell of CSV."""
    rows = 'doc_id\tseg\ttext\nd\t1\tx\nd\t2\t"a""b"\n'
    with pytest.raises(UserError, match='line 3: "a""b" is text in quotation marks, or a cell'):
        read_input(write("t", rows), "system")
    for last, wanted in (
        ('c"', ['"a""b"', 'c"']),
        ('"""c"""', ['a"b', '"c"']),
        ('"c"" d"', ['a"b', 'c" d']),
        ('"c ""d"', ['a"b', 'c "d']),
    ):
        document = read_input(write("u", f"{rows}d\t3\t{last}\n"), "system").documents[0]
        assert document.segments == ["x", *wanted]


def numbered(form, numbers):
    """A document in which the text of each segment is its number."""
    if form == "array":
        return json.dumps([{"doc_id": "d", "segment": n, "text": str(n)} for n in numbers])
    if form == "table":
        return "doc_id\tsegment\ttext\n" + "".join(f"d\t{n}\t{n}\n" for n in numbers)
    segments = "".join(f'<seg id="{n}">{n}</seg>' for n in numbers)
    if form == "SGM":
        return f'<tstset setid="s" sysid="X"><doc docid="d">{segments}</doc></tstset>'
    return f'<dataset><doc id="d"><hyp system="X"><p>{segments}</p></hyp></doc></dataset>'


@pytest.mark.parametrize("form", ["array", "table", "SGM", "XML"])
def test_numbers_with_a_point_are_whole(write, form):
    """Programs that read columns with gaps write 1.0 for 1; in 1.1, the point is part of a name."""
    text = numbered(form, [2.0, 10.0, 1.0])
    (document,) = read_input(write("x", text), "system").documents
    assert document.segments == ["1.0", "2.0", "10.0"] and document.numbers == ["1", "2", "10"]
    text = text.replace("10.0", "1.15").replace("2.0", "1.05")
    (document,) = read_input(write("y", text), "system").documents
    assert document.segments == ["1.05", "1.15", "1.0"]
    assert document.numbers == ["1.05", "1.15", "1"]


def test_marks_around_commas_alone(write):
    """Excel quotes such cells of a tab-separated table, and not its header."""
    rows = 'doc_id\ttext\nd\t"a, b"\nd\tc\n'
    for path in (write("t", rows), write("u", rows + 'd\t"d, e"\n')):
        with pytest.raises(UserError, match='line 2: "a, b" is text in quotation marks, or a cell'):
            read_input(path, "system")
    for text in ("d, e", '"e"'):
        document = read_input(write("s", f"{rows}d\t{text}\n"), "system").documents[0]
        assert document.segments == ['"a, b"', "c", text]


QUOTES = [['"a, b"', "c"], ['"a, b"', "c, d"], ['"a""b"', "x"], ['"a"', '"b"'], ['"a"', "x"]]
QUOTES += [['"""a"""', "x"], ['a"b', '"c""d"'], ['"']]


@pytest.mark.parametrize("texts", QUOTES, ids=" ".join)
def test_tables_keep_quotation_marks(scoring, write, tmp_path, texts):
    start, out = write("x", json.dumps([{"doc_id": "d", "text": t} for t in texts])), tmp_path / "y"
    scoring("convert", start, "--to", "tsv", "--out", str(out))
    assert read_input(str(out), "system").documents[0].segments == texts
    quoted = texts not in (['"a, b"', "c, d"], ['"a"', "x"], ['a"b', '"c""d"'], ['"'])
    assert out.read_text().startswith('"doc_id"' if quoted else "doc_id")


@pytest.mark.parametrize("header", ["doc_id\ttext\n", '"doc_id"\t"text"\n'])
def test_line_breaks_in_a_quoted_table(write, header):
    """Lines of a whole document; but a quotation that goes on in the next row is no cell."""
    document = read_input(write("x", f'{header}"d"\t"a\n\nb"\n'.replace('"d"', "d")), "system")
    assert document.documents[0].segments == ["a", "b"]
    rows = 'doc_id\ttext\nd\t"a\nd\tb"\n'
    assert read_input(write("y", rows), "system").documents[0].segments == ['"a', 'b"']
    rows = f'{header}d\t"a\nb"\nd\tx\ty\n'
    with pytest.raises(UserError, match="line 4 has 3 columns, but the header 2"):
        read_input(write("w", rows), "system")
    with pytest.raises(UserError, match="line 3 has 3 columns, but the header 2"):
        read_input(write("z", 'doc_id\ttext\nd\t"a\nd\tb\tc"\n'), "system")


def test_tabs_in_some_lines_are_text(write):
    assert isinstance(read_input(write("x", "a\tb\nc\n"), "system"), Lines)
    path = write("y", "a\tb\nc\td\n")
    assert isinstance(read_input(path, "system", plain=True), Lines)


IDS = [
    {"doc_id": d, "segment": n, "text": t}
    for d, n, t in (
        ("b", "s2", "eins & <zwei>"),
        ("b", "s10", "drei"),
        ("a", "01", "vier, fünf"),
        ("a", "02", "x"),
    )
]


@pytest.mark.parametrize("role", ["source", "reference", "system"])
@pytest.mark.parametrize("to", ["jsonl", "tsv", "xml"])
def test_conversion_there_and_back_keeps_names(scoring, write, tmp_path, to, role):
    start, there, back = write("x", json.dumps(IDS)), tmp_path / "there.y", tmp_path / "back"
    scoring("convert", start, "--role", role, "--to", to, "--out", str(there))
    found = scoring("convert", str(there), "--role", role, "--out", str(back))
    assert found == f"wrote 2 documents with 4 segments to {back}\n"
    assert [json.loads(line) for line in back.read_text().splitlines()] == IDS
    assert ('system="there"' in there.read_text()) == (to == "xml" and role == "system")
    # The names come from the text that has the segments.
    other = write("other", json.dumps([{**record, "text": "y"} for record in IDS[::-1]]))
    scoring("convert", other, "--reference", start, "--out", str(back))
    assert [json.loads(line)["segment"] for line in back.read_text().splitlines()] == [
        record["segment"] for record in IDS
    ]


def test_conversion_to_text_with_docids(scoring, write, tmp_path):
    out, ids = tmp_path / "out", tmp_path / "ids"
    records = [{**record, "text": record["text"] * (record["segment"] != "s10")} for record in IDS]
    convert = ["convert", write("x", json.dumps(records)), "--out", str(out)]
    scoring(*convert, "--to", "text", "--write-docids", str(ids))
    assert out.read_text() == "eins & <zwei>\n\nvier, fünf\nx\n"
    assert ids.read_text() == "b\nb\na\na\n"
    found = read_translations(
        {"x": str(out)}, [write("r", json.dumps(IDS))], reading=Reading(docids=str(ids))
    )
    assert found.systems["x"][1] == "" and found.ids == ["b", "a"]
    for name in ("d ", " "):
        twice = write("z", json.dumps([{"doc_id": n, "text": "a"} for n in ("d", name)]))
        with pytest.raises(UserError, match=f"/ids: white space around the id '{name}' would be l"):
            scoring("convert", twice, *convert[2:], "--to", "text", "--write-docids", str(ids))
    with pytest.raises(UserError, match="--write-docids is for --to text; other formats hold"):
        scoring(*convert, "--write-docids", str(ids))


@pytest.mark.parametrize(
    "record, to, message",
    [
        ({"text": "x\x01"}, "xml", "segment 1 of document a has control characters, which XML"),
        ({"doc_id": "a\x01", "text": "x"}, "xml", "id 'a.x01' has control characters, which XML"),
        ({"segment": 1, "text": "x\tv"}, "tsv", None),
        ({"text": ""}, "tsv", "document a is empty, which only JSON lines can hold"),
        ({"text": ""}, "xml", "document a is empty, which only JSON lines can hold"),
    ],
)
def test_what_a_format_cannot_hold(scoring, write, tmp_path, record, to, message):
    command = ["convert", write("x", json.dumps([{"doc_id": "a", **record}])), "--to", to]
    command += ["--out", str(tmp_path / "out")]
    if message is None:
        scoring(*command)
        assert (tmp_path / "out").read_text() == "doc_id\tsegment\ttext\na\t1\tx v\n"
        return
    with pytest.raises(UserError, match=message):
        scoring(*command)
    assert not (tmp_path / "out").exists()


def test_what_small_changes_would_break(write):
    """One known name of a column; the document of three columns; a document without segments."""
    with pytest.raises(UserError, match='line 2 has no "doc_id"'):
        read_input(write("x", "text,episode\na,b\n"), "system")
    empty = (
        '<tstset>\n<doc docid="a">\n</doc>\n<doc docid="a"></doc>\n<doc docid="b">\n<seg>x</seg>'
    )
    with pytest.raises(UserError, match="x: the file already has a document a; rename one"):
        read_input(write("x", f"{empty}</doc></tstset>"), "system")
    assert read_docids(write("ids", "x\ty\td1\nx\tz\td1\n")) == ["d1", "d1"]
