"""Gaps in published test sets: left out, counted and named, in every command that reads them.

Covers scoring/texts/layout.py, scoring/texts/test_set.py.
"""

import json

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.texts.matching import DEFAULT_READING, Reading
from fairseq_docmt.scoring.texts.translations import read_translations

SAME = "the source and {} are the same text; check that the right files are given"
#: 1 to 12: segments in the order of their numbers.
WORDS = [f"w{n} and v{n} are here" for n in range(1, 13)]


def json_lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def rows(field, documents="abc", bad=(), **more):
    """Records of documents of four segments, in the form of WMT24++."""
    texts = iter(WORDS)
    return [
        {"document_id": d, "segment_id": n, field: text, "is_bad_source": (d, n) in bad, **more}
        for d in "abc"
        for n, text in zip(range(1, 5), texts)
        if d in documents
    ]


@pytest.fixture
def plain(write):
    return write("system.txt", [WORDS[:4], WORDS[4:8], WORDS[8:]])


def wmt_xml(refs):
    """XML of WMT: three documents of two segments, each with the references named."""
    found = "<dataset>"
    for name, translators in zip("abc", refs):
        found += f'<doc id="{name}"><src><p><seg id="1">s</seg><seg id="2">t</seg></p></src>'
        for translator in translators:
            text = f"{name}{translator}"
            found += f'<ref translator="{translator}"><p><seg id="1">{text}1</seg>'
            found += f'<seg id="2">{text}2</seg></p></ref>'
        found += f'<hyp system="X"><p><seg id="1">{name}x</seg><seg id="2">{name}y</seg></p></hyp>'
        found += "</doc>"
    return found + "</dataset>"


def test_bad_sources_are_left_out(write, plain):
    """WMT24++: the mark is in the file of the reference, the system is text of all lines."""
    bad = [("a", 2), ("b", 1), ("b", 2), ("b", 3), ("b", 4)]
    reference = write("reference.jsonl", json_lines(*rows("target", bad=bad)))
    found = read_translations({"x": plain}, [reference])
    kept = [WORDS[0], *WORDS[2:4], *WORDS[8:]]
    assert found.systems == {"x": kept} and found.references == [kept]
    assert found.ids == ["a", "c"] and found.index.starts.tolist() == [0, 3, 7]
    (note,) = found.notes
    assert note == "left out, marked as bad (is_bad_source): 1 documents (b) and 1 segments (a, 2)"


def test_marks_may_be_in_the_source_or_the_system(write, plain):
    reference = write("reference.txt", [WORDS[:4], WORDS[4:8], WORDS[8:]])
    marked = write("source.jsonl", json_lines(*rows("source", bad=[("c", 4)])))
    system = write("system.jsonl", json_lines(*rows("translation", bad=[("a", 1)])))
    found = read_translations({"x": plain, "y": system}, [reference], marked)
    assert found.systems["x"] == found.systems["y"] == found.source == WORDS[1:11]
    assert found.notes == [
        "left out, marked as bad (is_bad_source): 2 segments (a, 1; c, 4)",
        SAME.format("a reference, x, y"),
    ]


def test_marks_of_a_table(write, plain):
    table = "doc_id\tsegment\tis_bad_source\treference\n" + "".join(
        f"{row['document_id']}\t{row['segment_id']}\t{row['segment_id'] == 3}\t{row['target']}\n"
        for row in rows("target")
    )
    found = read_translations({"x": plain}, [write("table.tsv", table)])
    assert len(found.systems["x"]) == 9 and "3 segments (a, 3; b, 3; c, 3)" in found.notes[0]


def test_segments_are_left_out_by_number_and_not_by_place(write):
    """Twelve segments in another order, numbered as 1, 10, 11, ... when sorted as text."""
    records = [{"doc": "a", "seg": n, "text": f"r{n}"} for n in range(12, 0, -1)]
    records[1]["is_bad_source"] = True  # segment 11
    system = [
        {"doc": "a", "seg": n, "text": f"x{n}"} for n in (5, 3, 1, 2, 4, 6, 12, 11, 10, 9, 8, 7)
    ]
    found = read_translations(
        {"x": write("x.jsonl", json_lines(*system))}, [write("r.jsonl", json_lines(*records))]
    )
    assert found.systems["x"] == [f"x{n}" for n in range(1, 13) if n != 11]
    assert found.references[0] == [f"r{n}" for n in range(1, 13) if n != 11]
    assert [found.place(segment) for segment in (0, 10)] == ["a, 1", "a, 12"]


@pytest.mark.parametrize("kind", ["records", "output"])
def test_the_source_has_the_ids_of_a_reference_of_text(write, kind):
    """Then documents of systems are matched by their ids, and not by their order."""
    places = (("b", 1), ("b", 2), ("a", 1))
    records = [{"doc_id": d, "segment": n, "text": f"{d}{n}"} for d, n in places]
    source, reference = write("source", json_lines(*records)), write("r", [["r1", "r2"], ["r3"]])
    system = json_lines(*records[2:], *records[:2])
    if kind == "output":  # its numbers count the blank lines
        system = "".join(f"H-{n}\t-1\t{text}\n" for n, text in ((0, "b1"), (1, "b2"), (3, "a1")))
    found = read_translations({"x": write("x", system)}, [reference], source)
    assert found.systems["x"] == ["b1", "b2", "a1"] and found.ids == ["b", "a"]
    assert not [note for note in found.notes if "order" in note]


OTHER_ORDERS = {
    "alternating documents": [("a", 1), ("b", 1), ("a", 2), ("b", 2)],
    "numbers from the end": [("a", 2), ("a", 1), ("b", 1), ("b", 2)],
}


@pytest.mark.parametrize("order", OTHER_ORDERS.values(), ids=OTHER_ORDERS)
@pytest.mark.parametrize("form", ["lines", "an output", "records"])
def test_texts_without_numbers_do_not_match_a_reordered_test_set(write, order, form):
    """Their lines may be in the order of the file or in that of documents and numbers."""
    records = [{"doc_id": d, "segment": n, "text": f"r{d}{n}"} for d, n in order]
    reference = write("r.jsonl", json_lines(*records))
    texts = {
        "lines": "1\n2\n3\n4\n",
        "an output": "".join(f"H-{n}\t-1\t{n}\n" for n in range(4)),
        "records": json_lines(*({"doc_id": d, "text": "x\ny"} for d in "ab")),
    }
    message = "has no segment numbers, and .*r.jsonl does not list its segments document by docum"
    with pytest.raises(UserError, match=message):
        read_translations({"x": write("x", texts[form])}, [reference])
    system = [{**record, "text": f"x{record['doc_id']}{record['segment']}"} for record in records]
    named = write("named.jsonl", json_lines(*system))
    assert read_translations({"x": named}, [reference]).systems["x"] == ["xa1", "xa2", "xb1", "xb2"]
    if form != "an output":  # documents can be aligned
        whole = write("whole.jsonl", json_lines(*({"doc_id": d, "text": "x"} for d in "ab")))
        found = read_translations({"x": whole}, [reference], reading=Reading(align="de"))
        assert len(found.systems["x"]) == 4


@pytest.mark.parametrize(
    "first, second, kept, note",
    [
        (("A", "AB", "AB"), None, "bc", "a"),
        (("AB", "AB", "B"), None, "ab", "c"),
        (("AB", "A", "B"), None, "a", "b; c"),
    ],
)
def test_references_that_cover_different_documents(write, first, second, kept, note):
    """Documents in the order of A; each reference lacks some."""
    file = write("wmt.xml", wmt_xml(first))
    found = read_translations({"X": file}, [f"{file}#A", f"{file}#B"], file)
    assert found.systems["X"] == [f"{name}{n}" for name in kept for n in "xy"]
    assert found.references[1] == [f"{name}B{n}" for name in kept for n in "12"]
    count = 3 - len(kept)
    assert found.notes == [f"left out, without a reference or source: {count} documents ({note})"]


def test_a_system_as_text_needs_no_reference_of_each_document(write):
    file = write("wmt.xml", wmt_xml(["A", "", "A"]))
    system = write("x", [["1", "2"], ["3", "4"], ["5", "6"]])
    found = read_translations({"x": system}, [file])
    assert found.systems["x"] == ["1", "2", "5", "6"] and found.ids == ["a", "c"]


@pytest.mark.parametrize("value", [None, {}, ""])
def test_records_without_a_reference(write, plain, value):
    records = rows("target")
    for record in records[4:8]:
        record["target"] = value
    found = read_translations({"x": plain}, [write("r.jsonl", json_lines(*records))])
    assert found.systems["x"] == [*WORDS[:4], *WORDS[8:]]
    assert found.notes == ["left out, without a reference or source: 1 documents (b)"]


def empty_segments_of(write, kind):
    """Return arguments of ``read_translations`` in which texts are empty, and the system is not.

    The first reference has no text in segment a, 2; nor has the other text, if there is one.
    """
    full, gap = [WORDS[:4], WORDS[4:8]], [[WORDS[0], "", *WORDS[2:4]], WORDS[4:8]]
    if kind == "docids":
        texts = [write(name, "\n".join(sum(text, []))) for name, text in (("r", gap), ("x", full))]
        ids = write("ids", "a\n" * 4 + "b\n" * 4)
        return {"x": texts[1]}, [texts[0]], None, Reading(docids=ids)
    if kind == "xml":
        file = write("wmt.xml", wmt_xml(["A", "A"]).replace("aA2", " "))
        return {"X": file}, [file], file, DEFAULT_READING
    forms = {"full": full, "gap": gap}
    files = {
        name: write(
            f"{name}.jsonl",
            json_lines(
                *(
                    {"doc_id": "ab"[d], "segment": n, "text": text}
                    for d, document in enumerate(texts)
                    for n, text in enumerate(document, 1)
                )
            ),
        )
        for name, texts in forms.items()
    }
    references, source = {
        "reference": (["gap"], None),
        "second reference": (["full", "gap"], None),
        "source": (["full"], "gap"),
    }[kind]
    given = [files[name] for name in references]
    return {"x": files["full"]}, given, source and files[source], DEFAULT_READING


@pytest.mark.parametrize("kind", ["reference", "second reference", "source", "docids", "xml"])
def test_segments_without_text_in_a_reference_or_the_source(write, kind):
    """They are left out as if the file did not have them."""
    found = read_translations(*empty_segments_of(write, kind))
    (text,) = found.systems.values()
    assert text == (["ax", "bx", "by"] if kind == "xml" else [WORDS[0], *WORDS[2:8]])
    assert all(map(all, found.references)) and all(found.source or [True])
    note, *others = found.notes
    assert note == "left out, without a reference or source: 1 segments (a, 2)"
    assert others == ([SAME.format("a reference, x")] if kind == "source" else [])


def numbered(numbers):
    return json_lines(*({"doc_id": "a", "segment": n, "text": WORDS[n]} for n in numbers))


@pytest.mark.parametrize("first, second", [("gap", "full"), ("full", "gap")])
@pytest.mark.parametrize("role", ["reference", "source"])
@pytest.mark.parametrize("system", ["0123", "013"])
@pytest.mark.parametrize("marks", [[], ["s1", "s2"]])
def test_each_text_may_lack_segments(write, first, second, role, system, marks):
    """The others show that they exist; a system need not have them."""
    names = {"0": "s2", "1": "s10", "2": "s1", "3": "s3"} if marks else {}

    def text(name, numbers):
        records = [{"doc_id": "a", "segment": names.get(n, n), "text": name + n} for n in numbers]
        return write(f"{name}.jsonl", json_lines(*records))

    files = {"full": text("full", "0123"), "gap": text("gap", "013")}
    references = [files[first], files[second]][: 1 + (role == "reference")]
    source = files[second] if role == "source" else None
    found = read_translations({"x": text("x", system)}, references, source)
    assert found.systems["x"] == ["x0", "x1", "x3"] and found.position.tolist() == [0, 1, 3]
    note = f"left out, without a reference or source: 1 segments (a, {names.get('2', '2')})"
    assert found.notes == [note]
    for missing in ("skip", "empty"):
        reading = Reading(missing=missing)
        again = read_translations({"x": text("x", system)}, references, source, reading)
        assert again.notes == [note]
    plain = write("plain", [WORDS[:4]])
    assert read_translations({"x": plain}, references, source).systems["x"][2] == WORDS[3]


def test_segments_counted_otherwise_are_not_taken_for_missing(write):
    """Neither text has all segments of the other."""
    files = [write(f"{n}.jsonl", numbered(range(n, n + 3))) for n in (0, 1)]
    for reference, source in (files, files[::-1]):
        with pytest.raises(UserError, match="document a has a segment|are counted from 0"):
            read_translations({"x": reference}, [reference], source)


def test_a_segment_that_only_translations_have(write):
    """The texts of an XML are told apart."""
    found = wmt_xml(["A", "A"]).replace('<seg id="2">bA2</seg>', "")
    file = write("wmt.xml", found)
    assert read_translations({"X": file}, [file], file).systems["X"] == ["ax", "ay", "bx"]
    with pytest.raises(UserError, match="document b has a segment 2, which its reference or sour"):
        read_translations({"X": file}, [file])
    file = write("wmt.xml", found.replace('<seg id="2">ay</seg>', ""))
    with pytest.raises(UserError, match="document a lacks segment 2 of its reference or source"):
        read_translations({"X": file}, [file])


def test_empty_translations_are_scored(write):
    """Their number is noted."""
    systems, references, *_ = empty_segments_of(write, "reference")
    found = read_translations({"x": references[0]}, [systems["x"]])
    assert found.index.num_sentences == 8 and found.notes == ["x: 1 empty translations"]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("names", [True, False])
def test_empty_translations_are_not_missing(write, size, names):
    """In documents of one segment neither, whether or not segments have names."""
    rows = [("a", "1", "one"), ("b", "1", "two"), ("b", "2", "three")][: 1 + size]

    def text(name, empty, lacks=()):
        kept = [row for row in rows if row[0] not in lacks]
        records = [{"doc_id": d, "segment": n, "text": t * (d not in empty)} for d, n, t in kept]
        for record in records:
            if not names:
                del record["segment"]
        return write(name, json_lines(*records))

    for missing in (None, "skip", "empty"):
        reading = Reading(missing=missing)
        found = read_translations({"x": text("x", "b")}, [text("r", "")], None, reading)
        assert found.systems["x"] == ["one", *[""] * size]
        assert found.notes == [f"x: {size} empty translations"]
    lacking = read_translations(
        {"x": text("x", "", lacks="b")}, [text("r", "")], None, Reading(missing="skip")
    )
    assert lacking.ids == ["a"]


def test_numbers_that_fit_with_and_without_blank_lines(write):
    """Line 3 is blank: H-0, H-1 and H-3 lack the third or the fourth sentence."""
    reference, skip = write("r", [["a", "b"], ["c", "d"]]), Reading(missing="skip")

    def read(*numbers):
        output = write("x", "".join(f"H-{n}\t-1\t{n}\n" for n in numbers))
        return read_translations({"x": output}, [reference], None, skip).systems["x"]

    with pytest.raises(UserError, match=r"x: which sentences are missing depends on whether"):
        read(0, 1, 3)
    assert read(0, 1) == ["0", "1"]
    assert read(0, 1, 4) == ["0", "1", "4"] and read(0, 2, 3) == ["0", "2", "3"]


def test_a_document_of_unknown_size_without_a_reference(write):
    records = [{"doc_id": d, "text": t} for d, t in (("a", "one\ntwo"), ("b", ""), ("c", "three"))]
    file = write("r.jsonl", json_lines(*records))
    system = write("x.jsonl", json_lines(*[{**r, "text": r["text"] or "b"} for r in records]))
    found = read_translations({"x": system}, [file])
    assert found.ids == ["a", "c"]
    assert "left out, without a reference: 1 documents (b)" in found.notes


def test_whole_documents_are_left_out_as_a_whole(write):
    records = rows("target", bad=[("a", 2)])
    system = [{"doc_id": d, "text": d} for d in "abc"]
    found = read_translations(
        {"x": write("x.jsonl", json_lines(*system))},
        [write("r.jsonl", json_lines(*records))],
        reading=Reading(whole_documents=True),
    )
    assert found.whole == {"x": ["b", "c"]} and found.index.num_documents == 2
    assert "left out, marked as bad (is_bad_source): 1 segments (a, 2)" in found.notes
    because = "with these segments, as documents are scored as a whole"
    assert f"left out, {because}: 1 documents (a)" in found.notes


def test_nothing_is_left(write, plain):
    bad = [(d, n) for d in "abc" for n in range(1, 5)]
    file = write("r.jsonl", json_lines(*rows("target", bad=bad)))
    with pytest.raises(UserError, match=r"nothing is left to score; .* 3 documents \(a; b; c\)"):
        read_translations({"x": plain}, [file])
    file = write("wmt.xml", wmt_xml(["A", "B", "A"]))
    with pytest.raises(UserError, match="document a has no ref C, only A"):
        read_translations({"X": file}, [f"{file}#C"])


def test_a_system_may_not_lack_documents(write, plain):
    file = write("x.jsonl", json_lines(*rows("translation", documents="ac")))
    reference = write("r.jsonl", json_lines(*rows("target")))
    with pytest.raises(UserError, match="lacks the document b .*; translate all of it"):
        read_translations({"x": file}, [reference])


def test_every_command_names_them(scoring, write, plain, tmp_path):
    bad = [("a", 2)]
    file = write("all.jsonl", json_lines(*rows("target", bad=bad)))
    source = write("source.jsonl", json_lines(*rows("source", bad=bad)))
    out = str(tmp_path / "out")
    note = "left out, marked as bad (is_bad_source): 1 segments (a, 2)"
    assert note in scoring("metrics", f"x={plain}", "--reference", file)
    scoring("report", f"x={plain}", "--reference", file, "--out", out)
    assert note in (tmp_path / "out").read_text()
    assert note in scoring("convert", plain, "--reference", file, "--out", out)
    assert len((tmp_path / "out").read_text().splitlines()) == 11
    printed = scoring("convert", file, "--role", "reference", "--out", out)
    assert "segments left out of a (1 marked as bad)" in printed
    assert len((tmp_path / "out").read_text().splitlines()) == 11
    # A choice among candidates is made for every sentence.
    scoring("mbr", f"x={plain}", f"y={plain}", "--source", source, "--out", out)
    assert len((tmp_path / "out").read_text().split("\n")) == 12 + 2 + 1


@pytest.mark.parametrize("without", [None, ""])
def test_weights_are_chosen_without_them(scoring, write, tmp_path, without):
    """Only the second sentence has a reference, which the longer candidate is."""
    records = [{"doc_id": "a", "segment": n, "text": w} for n, w in enumerate("st", 1)]
    source = write("source", json_lines(*records))
    records[0]["text"] = without
    reference = write("r", json_lines(*({**r, "text": r["text"] and WORDS[0]} for r in records)))
    systems = [f"x={write('x', [['a', 'b']])}", f"y={write('y', [['a a', WORDS[0]]])}"]
    out = str(tmp_path / "out")
    printed = scoring(
        *["rerank", *systems, "--source", source, "--reference", reference, "--out", out],
        *["--score", "length:-1,1"],
    )
    assert "r: 1 sentences without a reference, or marked as bad, left out" in printed
    assert "best: length:1 " in printed and "s-BLEU 100.00" in printed
    assert (tmp_path / "out").read_text() == f"a a\n{WORDS[0]}\n"
