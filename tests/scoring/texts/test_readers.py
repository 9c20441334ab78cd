"""Formats of documents: the same test set in each of them, mistakes, conversion.

Covers scoring/texts/convert.py, scoring/texts/layout.py, readers/inputs.py,
readers/wmt_xml.py.
"""

import json
import re
from pathlib import Path

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Document, Documents, Lines, Output, read_input
from fairseq_docmt.readers import files as _files
from fairseq_docmt.scoring.texts.layout import layout_of
from fairseq_docmt.scoring.texts.translations import Reading, read_translations

XML = """<?xml version='1.0' encoding='utf-8'?>
<dataset id="set"><collection id="general">
<doc origlang="en" id="a"><src lang="en"><p><seg id="1">one &amp; two</seg></p>
<p><seg id="2">three</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">eins</seg><seg id="2">drei</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">1</seg><seg id="2">3</seg></p></ref>
<hyp lang="de" system="X"><p><seg id="2">drei x</seg><seg id="1">eins x</seg></p></hyp>
<hyp lang="de" system="Y"><p><seg id="1">eins y</seg><seg id="2">drei y</seg></p></hyp></doc>
</collection>
<doc origlang="en" id="b"><src lang="en"><p><seg id="1">four</seg></p></src>
<ref lang="de" translator="A"><p><seg id="1">vier</seg></p></ref>
<ref lang="de" translator="B"><p><seg id="1">4</seg></p></ref>
<hyp lang="de" system="X"><p><seg id="1">vier x</seg></p></hyp>
<hyp lang="de" system="Y"><p><seg id="1">vier y</seg></p></hyp></doc>
</dataset>
"""


#: The same with the system X alone.
ONE = re.sub('<hyp lang="de" system="Y">.*</hyp>', "", XML)


def json_lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


SEGMENTS = json_lines(
    {"doc_id": "b", "segment": 1, "text": "vier x"},
    {"doc_id": "a", "segment": 2, "text": "drei x"},
    {"doc_id": "a", "segment": 1, "text": "eins\nx"},
)
WHOLE = json_lines(
    {"doc_id": "other", "hypothesis": "left out"},
    {"doc_id": "a", "hypothesis": "eins x\n\ndrei x\n"},
    {"doc_id": "b", "hypothesis": "vier x"},
)
TABLE = """doc_id	source	reference	X
a	one	eins	eins x
a	three	drei	drei x
b	four	vier	vier x
"""


@pytest.mark.parametrize(
    "name, text",
    [
        ("x.xml", XML),
        ("x.jsonl", SEGMENTS),
        ("whole.jsonl", WHOLE),
        ("x.tsv", TABLE),
        ("x.txt", "eins x\ndrei x\n\nvier x\n"),
    ],
)
@pytest.mark.parametrize("missing", [None, "skip", "empty"])
def test_the_same_system_in_every_format(write, tmp_path, name, text, missing):
    systems, reading = {"X": write(name, text)}, Reading(missing=missing)
    found = read_translations(systems, [write("r.xml", XML) + "#A"], reading=reading)
    assert found.systems == {"X": ["eins x", "drei x", "vier x"]}
    assert found.references == [["eins", "drei", "vier"]]
    assert found.ids == ["a", "b"] and found.index.starts.tolist() == [0, 2, 3]
    left_out = [f"X: left out, 1 documents that are not in {tmp_path}/r.xml (other)"]
    assert [note for note in found.notes if "left out" in note] == left_out * (text is WHOLE)


def test_a_text_may_have_the_time_of_a_subtitle(write):
    text = "x\n" * 9 + "00:00:01,000 --> 00:00:02,000\n"
    assert len(read_input(write("x", text), "system").lines) == 10
    with pytest.raises(UserError, match="subtitles with times"):
        read_input(write("x", text.replace("x\n", "", 1)), "system")


def test_documents_of_source_or_reference_that_the_first_reference_lacks(write):
    first, more = write("r.xml", XML) + "#A", write("w.jsonl", WHOLE) + "#hypothesis"
    notes = read_translations({"X": more}, [first, more], more).notes
    path = more.partition("#")[0]
    assert sum(note.startswith(f"{path}: left out, 1 documents") for note in notes) == 2


def test_a_document_without_a_reference_has_valid_segments(write):
    cut = ONE.replace('<ref lang="de" translator="A"><p><seg id="1">vier</seg></p></ref>', "")
    found = read_input(write("x", cut) + "#A", "reference").documents[1]
    assert (found.segments, found.missing) == ([""], (0,))
    cut = cut.replace('<p><seg id="1">four</seg>', '<p><seg id="1">four</seg><seg id="1">f</seg>')
    with pytest.raises(UserError, match="x, line 10: document b already has a segment 1"):
        read_input(write("x", cut) + "#A", "reference")


def test_documents_named_by_the_source_are_those_of_its_file(write):
    records = [{"doc_id": name, "segment": n, "text": "w"} for name, n in ("b1", "a1", "a2")]
    source, system = write("s", json_lines(*records)), write("x", json_lines(records[0]))
    reference = write("r", "vier\n\neins\ndrei\n")
    with pytest.raises(UserError, match="x lacks the document a of .*/s; translate all of it"):
        read_translations({"X": system}, [reference], source)


@pytest.mark.parametrize(
    "text, line",
    [(b"eins\r\r\ndrei\r\r\n", 1), (b"eins\n\ndrei\rvier\n", 3), (b"eins\r\ndrei\r", 2)],
)
def test_a_carriage_return_alone_beside_line_feeds_is_refused(tmp_path, text, line):
    (tmp_path / "x.txt").write_bytes(text)
    message = f"x.txt: line {line} ends with a carriage return alone, other lines with a line feed"
    with pytest.raises(UserError, match=message):
        read_input(str(tmp_path / "x.txt"), "system")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_line_ends_are_read(tmp_path, end):
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbf" + end.join([b"eins", b"", b"drei", b""]))
    assert read_input(str(tmp_path / "x.txt"), "system").lines == ["eins", "", "drei"]


def test_a_progress_bar_may_stand_in_an_output(tmp_path):
    (tmp_path / "out").write_bytes(
        b"H-0\t-1\teins\n\rtranslating: 50%\rtranslating: 99%\rH-1\t-1\tdrei\n"
    )
    assert read_input(str(tmp_path / "out"), "system").hypotheses == {0: "eins", 1: "drei"}


def test_roles_and_names(write):
    path = write("x.xml", XML)
    assert read_input(path, "source").documents[0].segments == ["one & two", "three"]
    assert read_input(f"{path}#B", "reference").documents[1].segments == ["4"]
    assert read_input(f"{path}#Y", "system", "Z").documents[1].segments == ["vier y"]
    table = write("x.tsv", TABLE)
    assert read_input(table, "source").documents[1].segments == ["four"]
    assert read_input(table, "reference").documents[1].segments == ["vier"]
    assert read_input(f"{table}#X", "system").documents[1].segments == ["vier x"]
    record = {
        "doc_id": 3,
        "src_text": "s",
        "tgt_text": {"X": "x", "Y": "y"},
        "refs": {"A": {"ref": "r"}},
    }
    nested = write("x.jsonl", json_lines(record))
    assert read_input(nested, "source").documents == [Document("3", ["s"])]
    assert read_input(nested, "reference").documents[0].segments == ["r"]
    assert read_input(nested, "system", "Y").documents[0].segments == ["y"]
    assert read_input(f"{nested}#tgt_text.X", "system", "Z").documents[0].segments == ["x"]
    with pytest.raises(UserError, match='"tgt_text" has X, Y; choose one as FILE#tgt_text.NAME'):
        read_input(nested, "system", "Z")


def test_kinds(write):
    assert isinstance(read_input(write("a#b", "text\n"), "system"), Lines)
    assert isinstance(read_input(write("o", "H-0\t-1\tx\n"), "system"), Output)
    assert isinstance(read_input(write("j", '\n{"doc_id": 1, "text": "x"}\n'), "system"), Documents)
    for role in ("source", "reference"):
        with pytest.raises(UserError, match=f"o is an output of .*; give the {role} as text"):
            read_input(write("o", "H-0\t-1\tx\n"), role)
    # A line of text may begin with a brace or have tabs.
    assert isinstance(read_input(write("b", "{ text\n"), "system"), Lines)
    assert isinstance(read_input(write("t", "a\tb\n"), "system"), Lines)


@pytest.mark.parametrize(
    "line", ["H-1\t-1", "H-1\t", "D-1\ta b", "H-1\tword\ta b", "H-1\t1,5\ta b", "D-1\t\ta b"]
)
def test_damaged_lines_of_an_output(write, line):
    kind, _, rest = line.partition("\t")
    message = f"o: line 2: {kind} needs a score and a text, each after a tab, not {rest!r}; give"
    with pytest.raises(UserError, match=re.escape(message)):
        read_input(write("o", f"H-0\t-1\tx\n{line}\n"), "system")


def test_odd_lines_of_an_output(write):
    """A tab in a sentence stands for a space; scores are not read; numbers may be large."""
    found = read_input(write("o", "T-0\ta\tb\nH-0\tnan\tc\td\nH-9\t-1\t\n"), "system")
    assert (found.hypotheses, found.references) == ({0: "c d", 9: ""}, {0: "a b"})
    far = read_input(write("o", f"H-0\t-1\tx\nH-{10**15}\t-1\ty\n"), "system")
    with pytest.raises(UserError, match=f"line {10**15 + 1} is a sentence in only one of them"):
        layout_of(read_input(write("s", "a\n"), "source")).sentences(far)


def test_lines_of_a_table_end_at_line_feeds_alone(write):
    text = 'doc_id\ttext\na\t"one\u2028two\x85three\n\na\t' + "word " * 30_000 + "\n"
    (document,) = read_input(write("x", text), "system").documents
    assert [len(segment.split()) for segment in document.segments] == [3, 30_000]
    assert document.segments[0].startswith('"one')


@pytest.mark.parametrize(
    "text",
    [
        json_lines(*({"doc_id": "a", "segment": None, "text": text} for text in "xy")),
        "doc_id\tsegment\ttext\na\t\tx\na\t\ty\n",
    ],
)
def test_segments_without_numbers(write, text):
    assert read_input(write("x", text), "system").documents == [Document("a", ["x", "y"])]


@pytest.mark.parametrize(
    "text, message",
    [
        (SEGMENTS + "{\n", "line 4 is not valid JSON"),
        (SEGMENTS + "[1]\n", "line 4 must be a JSON object"),
        (
            SEGMENTS + '{"text": "x", "text": "y"}',
            r'line 4 is not valid JSON \(the field "text" occ',
        ),
        (SEGMENTS + '{"a": ' + "[" * 99999, r"line 4 is not valid JSON \(maximum recursion depth"),
        (SEGMENTS + '{"n": ' + "9" * 9999 + "}", "line 4 "),
        ('[{"doc_id": 1},\n{"text": "x", "text": "y"}]', r"line 1 is not .* occurs twice"),
        (json_lines({"text": "x"}), 'line 1 has no "doc_id", only text; '),
        (json_lines({}), 'line 1 has no "doc_id", only {}; '),
        (json_lines({"doc_id": 1, "words": "x"}), "line 1 has none of the fields .*FILE#FIELD"),
        (json_lines({"doc_id": 1, "text": None}), 'line 1: "text" must be text, not null'),
        (SEGMENTS + SEGMENTS, "line 4: document b already has a segment 1"),
        (json_lines({"doc_id": None, "text": "x"}), '"doc_id" must be text or a number, not null'),
        (json_lines({"doc_id": "", "text": "x"}), '"doc_id" must be text or a number, not empty'),
        ("document,text\n,a\n", 'line 2: "document" must be text or a number, not empty'),
        (SEGMENTS + '{"doc_id": "a", "text": "x"}', "line 4 has no segment number, but others of"),
        (TABLE.replace("X", "mt") + "c\tfive\n", "line 5 has 2 columns, but the header 4"),
        (XML.replace("</doc>", "", 1), "is not valid XML"),
        (json_lines({"doc_id": float("nan"), "text": "x"}), 'line 1: "doc_id" must be .*, not NaN'),
        ('{"doc_id": "a", "segment": 1e400, "text": "x"}', '"segment" must be .*, not Infinity'),
        (
            json_lines({"doc_id": "a", "text": "x"}, {"doc_id": "b", "text": {"error": "limit"}}),
            'line 2: "text" is an object, in .* line 1 it is text; give text in all',
        ),
        (json_lines({"doc_id": True, "text": "x"}), '"doc_id" must be text or a number, not true'),
        (json_lines({"doc_id": 1, "segment": [1], "text": "x"}), '"segment" must be .* not .1'),
        (json_lines({"doc_id": 1, "system": {}, "text": "x"}), '"system" must be .* not {}'),
        ("<dataset/>", "has no documents"),
        (XML, "has several: X, Y; choose one as FILE#NAME"),
        (XML.replace(' id="a"', ""), "line 3: the document has no id"),
        (ONE.replace('id="b"', 'id="a"'), "line 10: the file already has a document a; rename"),
        (ONE.replace('"2">drei x', '"1">drei x'), "x, line 7: document a already has a segment 1"),
        (
            ONE.replace('<seg id="1">eins x', "<seg>eins x"),
            "line 7 has no segment number, but others of document a do; number all",
        ),
        (ONE.replace('"1">eins x', '"">eins x'), "line 7 has no segment number, but others of"),
        (TABLE.replace("source", "X"), "x: two columns are called X; rename one"),
    ],
)
def test_mistakes(write, text, message):
    with pytest.raises(UserError, match=message):
        read_input(write("x", text), "system")


def test_mistakes_in_names(write):
    with pytest.raises(UserError, match="document a: its src has no translator; leave out #Z"):
        read_input(write("x", XML) + "#Z", "source")
    reference = write("reference", "text\n")
    with pytest.raises(UserError, match="--reference .*reference is given twice; give each once"):
        read_translations({"x": reference}, [reference, reference])
    with pytest.raises(UserError, match="document a has no hyp Z, only X, Y"):
        read_input(write("x", XML) + "#Z", "system")
    with pytest.raises(UserError, match="x is plain text, which has no Z; remove #Z"):
        read_input(write("x", "text\n") + "#Z", "system")
    twice = write("x", XML.replace('"A"', '"B"'))
    with pytest.raises(UserError, match="document a has several ref elements of B; leave one"):
        read_input(f"{twice}#B", "reference")
    with pytest.raises(UserError, match='line 2 has no "Z"'):
        read_input(write("x", TABLE) + "#Z", "system")
    unnumbered = write("x", json_lines({"doc_id": "a", "part": None, "text": "x"}))
    with pytest.raises(UserError, match='line 1: "part" must be text or a number, not null'):
        read_input(f"{unnumbered}#segment=part", "system")


@pytest.mark.parametrize(
    "text, message",
    [
        (json_lines({"doc_id": "a", "text": "x\ny"}), "lacks the document b"),
        (SEGMENTS.replace('"segment": 2', '"segment": 3'), "document a lacks segment 2"),
        (
            SEGMENTS + json_lines({"doc_id": "b", "segment": 2, "text": "x"}),
            "has a segment 2, which",
        ),
        (WHOLE.replace("eins x", "eins"), None),
        (WHOLE.replace("eins x\\n\\n", ""), "document a has 1 segments, but 2 in .*--align LANG"),
        ("a\nb\nc\nd\ne\n", "system has 5 lines, but .*--align LANGUAGE, or use `metrics` with"),
    ],
)
def test_documents_that_do_not_match(write, text, message):
    reference, system = write("r", XML) + "#A", write("system", text)
    if message is None:
        assert read_translations({"X": system}, [reference]).systems["X"][0] == "eins"
        return
    with pytest.raises(UserError, match=message):
        read_translations({"X": system}, [reference])


def test_a_pipe_is_read_once(scoring, pipe, tmp_path):
    text, out = "a b c d\n", str(tmp_path / "out")
    for name in ("source", "reference"):
        assert "1 segments" in scoring("convert", pipe(text), f"--{name}", pipe(text), "--out", out)
    arguments = ["--metrics", "s-bleu", "--reference", pipe(text), f"x={pipe(text)}"]
    assert "100.00" in scoring("metrics", *arguments)


def test_paths_of_pathlib(write):
    assert read_input(Path(write("s", "a\nb\n")), "system").lines == ["a", "b"]


def test_thousands_of_digits_are_a_name(scoring, write, tmp_path):
    """Python refuses to convert them to a number."""
    names = ["1" * 5000, "2"]
    lines = [json.dumps({"doc_id": "a", "segment": name, "text": "x"}) + "\n" for name in names]
    path = write("s", "".join(lines))
    assert read_input(path, "system").documents[0].numbers == names
    scoring("convert", path, "--out", str(tmp_path / "out"))
    found = [json.loads(line)["segment"] for line in (tmp_path / "out").read_text().splitlines()]
    assert found == [names[0], 2]
    # As a place in a list, they are beyond its end.
    path = write("l", json.dumps({"doc_id": "a", "text": ["x"]}))
    with pytest.raises(UserError, match='l: line 1 has no "9999999999999999999"'):
        read_input(f"{path}#text.{'9' * 19}", "system")
    with pytest.raises(UserError, match=f'l: line 1 has no "{names[0]}"'):  # no file has this name
        read_input(f"{path}#{names[0]}", "system")


@pytest.mark.parametrize("form", ["{}\n", "[{}]", "{}\n{}"])
def test_half_of_a_character_is_refused(write, form):
    """Escapes can write one, but no file can hold it."""
    record = '{"doc_id": "a", "text": "%s"}'
    whole = write("w", form.replace("{}", record % "\\uD83D\\ude00"))
    if form.count("{}") == 1:
        assert read_input(whole, "system").documents[0].segments == ["\U0001f600"]
    half = write("h", form.replace("{}", record % "\\uD83D \\\\ude00"))
    message = re.escape(
        r"h: line 1 is not valid JSON ('\ud83d' is half of a character, which UTF-8 cannot hold)"
    )
    with pytest.raises(UserError, match=message):
        read_input(half, "system")


def test_more_than_nine_segments_are_in_the_order_of_their_numbers(write):
    numbers = [10, 2, 11, 1, 9, 3, 12, 4, 8, 5, 7, 6]
    records = [{"doc_id": "a", "segment": number, "text": f"t{number}"} for number in numbers]
    (document,) = read_input(write("x.jsonl", json_lines(*records)), "system").documents
    assert document.segments == [f"t{number}" for number in range(1, 13)]


@pytest.mark.parametrize("to", ["jsonl", "text"])
def test_conversion_keeps_everything(scoring, write, tmp_path, to):
    out = tmp_path / "converted"
    printed = scoring("convert", write("x.xml", XML) + "#X", "--to", to, "--out", str(out))
    note = "segments sorted by document and number; the file has another order"
    assert printed == f"{note}\nwrote 2 documents with 3 segments to {out}\n"
    if to == "text":
        assert out.read_text() == "eins x\ndrei x\n\nvier x\n"
    else:
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert lines[2] == {"doc_id": "b", "segment": 1, "text": "vier x"}
    again = tmp_path / "again"
    scoring("convert", str(out), "--to", "jsonl", "--out", str(again))
    found = [json.loads(line)["text"] for line in again.read_text().splitlines()]
    assert sorted(found) == ["drei x", "eins x", "vier x"]


@pytest.mark.parametrize("loose", ["<p>x<seg id='1'>a</seg></p>", "<p><seg id='1'>a</seg></p> x"])
def test_text_outside_of_the_segments_of_xml_is_refused(write, loose):
    text = f"<dataset>\n<doc id='a'>\n<hyp system='S'>\n{loose}\n</hyp></doc></dataset>"
    with pytest.raises(UserError, match="line 3: the hyp has text outside of its segs, 'x'; put"):
        read_input(write("x.xml", text), "system")
    text = text.replace(loose, "<p><seg id='1'>a <b>bold</b> word</seg></p>")
    assert read_input(write("x.xml", text), "system").documents[0].segments == ["a bold word"]


def test_entities_of_xml_are_refused(scoring, write, tmp_path):
    """A file must not read others, or grow without end; what is not expanded is no text."""
    secret, out = write("secret", "secret"), tmp_path / "o"
    for entity in ('"abc"', f'SYSTEM "file://{secret}"'):
        kind = f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x {entity}>]>'
        text = '<dataset><doc id="a"><src><p><seg id="1">one &x;</seg></p></src></doc></dataset>'
        path = write("x.xml", kind + text)
        with pytest.raises(UserError, match="line 1: the entity &x; is not one of XML"):
            scoring("convert", path, "--role", "source", "--to", "text", "--out", str(out))
        assert not out.exists()


def test_conversion_of_a_role(scoring, write, tmp_path):
    """--role decides with and without a text that has the wanted segments."""
    xml, out = write("x.xml", ONE), tmp_path / "o"
    source = write("source", json_lines({"doc_id": "a", "src": "s\ns"}))
    records = write("r", json_lines({"doc_id": "a", "ref": "1\n2", "mt": "x\ny", "text": "t\nt"}))
    wanted = {"reference": "1\n2\n", "system": "x\ny\n"}
    for options in ([], ["--source", source], ["--reference", write("lines", "one\ntwo\n")]):
        for role, lines in wanted.items():
            command = ["convert", records, *options, "--role", role, "--to", "text"]
            scoring(*command, "--out", str(out))
            assert out.read_text() == lines
    scoring("convert", xml, "--role", "source", "--source", xml, "--to", "text", "--out", str(out))
    assert out.read_text() == "one & two\nthree\n\nfour\n"
    with pytest.raises(
        UserError, match="but .*or align it: fairseq-docmt convert --reference FILE --align"
    ):
        scoring("convert", write("l", "a\n"), "--source", source, "--out", str(out))
    with pytest.raises(UserError, match="give --source or --reference, not both"):
        scoring("convert", xml, "--source", source, "--reference", source, "--out", str(out))


def test_conversion_of_outputs_and_docids(scoring, write, tmp_path):
    out = tmp_path / "converted"
    output = write("o", "H-0\t-1\tx\nH-2\t-1\tz\n")
    with pytest.raises(UserError, match="does not say where documents end; give --source"):
        scoring("convert", output, "--out", str(out))
    source = write("s", "1\n\n3\n")
    scoring("convert", output, "--source", source, "--to", "text", "--out", str(out))
    assert out.read_text() == "x\n\nz\n"
    lines = write("l", "x\n\nz\n")
    arguments = ["convert", lines, "--docids", write("d", "p\np\nq\n"), "--out", str(out)]
    scoring(*arguments)
    assert json.loads(out.read_text().splitlines()[1]) == {"doc_id": "p", "segment": 2, "text": ""}
    scoring(*arguments, "--reference", write("r", "1\n2\n3\n"))
    assert json.loads(out.read_text().splitlines()[2]) == {"doc_id": "q", "segment": 1, "text": "z"}
    with pytest.raises(UserError, match="segment 2 of document p is empty and would end"):
        scoring(*arguments, "--to", "text")
    with pytest.raises(UserError, match="--align needs the text to align with"):
        scoring(*arguments, "--align", "de")


INTERACTIVE = (
    "S-0\ta\nH-0\t-1\teins\nD-0\t-1\teins\nH-1\t-1\t\nD-1\t-1\t\nH-2\t-1\tdrei\nD-2\t-1\tdrei\n"
)


def test_output_of_interactive_has_lines_for_blank_lines(scoring, write, tmp_path):
    source, output = write("source", "a\n\nc\n"), write("output", INTERACTIVE)
    scoring("convert", "--source", source, "--to", "text", "--out", str(tmp_path / "o"), output)
    assert (tmp_path / "o").read_text() == "eins\n\ndrei\n"
    for text, message in (
        (INTERACTIVE.replace("-1\t-1\t", "-1\t-1\tzwei"), "line 2 is a sentence in only one"),
        (INTERACTIVE[: INTERACTIVE.index("H-2")], "lacks 1 of 2 sentences of .*, the first in"),
    ):
        with pytest.raises(UserError, match=message):
            read_translations({"X": write("broken", text)}, [source])


def test_empty_segments(scoring, write, tmp_path):
    source, out = write("source", "a\nb\n\nc\n"), str(tmp_path / "o")
    output = write("output", "H-0\t-1\t\nH-1\t-1\tb\nH-3\t-1\t\n")
    convert = ["convert", "--source", source, "--to", "text", "--out", out]
    with pytest.raises(UserError, match="segment 1 of document 1 is empty and would end"):
        scoring(*convert, output)
    for text in (" ", "a\nb", "a\u2028b"):
        with pytest.raises(UserError, match="--empty is '.*; give text of one line, such as <unk>"):
            scoring(*convert, "--empty", text, output)
    scoring(*convert, "--empty", "<unk>", output)
    assert (tmp_path / "o").read_text() == "<unk>\nb\n\n<unk>\n"


def test_empty_documents(scoring, write, tmp_path):
    text, out = (
        json_lines({"doc_id": "a", "text": ""}, {"doc_id": "b", "text": "x"}),
        tmp_path / "o",
    )
    convert = ["convert", write("x", text), "--out", str(out), "--to"]
    for options in (["text"], ["text", "--write-docids", str(tmp_path / "ids")]):
        with pytest.raises(UserError, match="document a is empty, which only JSON lines can hold"):
            scoring(*convert, *options)
    scoring(*convert, "jsonl")
    documents = read_input(str(out), "system").documents
    assert [(document.id, document.segments) for document in documents] == [("a", []), ("b", ["x"])]


@pytest.mark.parametrize(
    "text", ["[music]\n", "[1]\n", "{\n", "<i>x</i>\n", "text, source\nx\n", "x\ty\n", "source\n"]
)
def test_text_may_look_like_another_format(write, text):
    assert isinstance(read_input(write("x", text), "system"), Lines)


def test_the_format_may_be_given(scoring, write, tmp_path):
    path, out = write("x", "source\ttarget\nx y\tz\n"), str(tmp_path / "out")
    with pytest.raises(UserError, match='x: line 2 has no "doc_id", only source, target; name'):
        read_input(path, "system")
    text = ["--input-format", "text"]
    assert "100.00" in scoring("metrics", f"a={path}", "--reference", path, *text)
    scoring("convert", path, "--reference", path, "--out", out, *text)
    scoring("convert", path, "--out", out, *text)
    scoring("mbr", f"a={path}", f"b={path}", "--source", path, "--out", out, *text)
    assert (tmp_path / "out").read_text() == "source\ttarget\nx y\tz\n"


@pytest.mark.parametrize(
    "text, where",
    [
        ("a\n" + 600 * "b c " + "\n", "x: sentence 2 has 2,399 characters"),
        ("H-0\t-1\t" + 600 * "b c " + "\n", "x: sentence 1 has"),
        (json_lines({"doc_id": "d", "text": 600 * "b c "}), "x: document d: sentence 1 has"),
    ],
)
def test_lines_of_megabytes_are_refused(write, monkeypatch, text, where):
    monkeypatch.setattr(_files, "LONGEST", 2000)
    with pytest.raises(UserError, match=f"{where}.*; check its line ends"):
        read_input(write("x", text), "system")


def test_notes_name_segments_by_their_numbers(scoring, write):
    """The reference counts from 0."""
    texts = [{"doc_id": "d", "segment": n, "text": f"satz {n}"} for n in range(4)]
    reference, system = write("r", json_lines(*texts)), write("s", json_lines(*texts[:2], texts[3]))
    printed = scoring("metrics", "--reference", reference, f"B={system}", "--missing", "skip")
    assert "left out, which B lacks: 1 segments (d, 2)" in printed
