"""Consistency checks of source, reference and output texts.

Covers scoring/texts/layout.py.
"""

import json

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.texts.matching import Reading
from fairseq_docmt.scoring.texts.translations import read_translations

REFERENCE = "a\nb\n\nc\n"


def read(write, system, reference=REFERENCE):
    return read_translations({"x": write("system", system)}, [write("reference", reference)])


@pytest.mark.parametrize(
    "system, wanted",
    [
        ("A\nB\n\nC\n", ["A", "B", "C"]),
        ("A\r\nB\r\n \r\nC\r\n\r\n", ["A", "B", "C"]),
        ("A\nB\nC\n", ["A", "B", "C"]),  # as grep ^D- leaves them
        ("A\n\n\nC\n", ["A", "", "C"]),  # a translation may be empty
        ("\nB\n\nC", ["", "B", "C"]),
        ("A\nB\n\n\n", ["A", "B", ""]),
        ("H-0\t-1\tA\nH-1\t-1\tB\nT-0\ta\nT-1\tb\nH-3\t-1\tC\nT-3\tc\n", ["A", "B", "C"]),
        ("H-1\t-1\tB\nT-1\tb\nH-2\t-1\tC\nT-2\tc\nH-0\t-1\tA\nT-0\ta\n", ["A", "B", "C"]),
    ],
)
def test_sentences_of_a_system(write, system, wanted):
    found = read(write, system)
    assert found.systems == {"x": wanted}
    assert found.references == [["a", "b", "c"]]
    assert found.index.document.tolist() == [0, 0, 1]
    assert found.joined(wanted) == [" ".join(wanted[:2]), wanted[2]]


@pytest.mark.parametrize(
    "system, piece",
    [("A@@ a\nB\nC\n", "A@@"), ("A\nx b@@\nC\n", "b@@"), ("▁A a\n▁B\n▁C\n", "▁A")],
)
def test_subwords_that_were_not_joined_get_a_note(write, system, piece):
    (note,) = read(write, system).notes
    assert note.startswith(f"x: words are cut into subwords (such as {piece}); join them before")
    cut = system.replace("\nC", "\n\nC")  # a reference in the same form
    assert read(write, system, cut).notes == []


def test_a_few_signs_of_subwords_are_words(write):
    many = "".join(f"w{n}\n" for n in range(30))
    assert read(write, many.replace("w7\n", "me@@ you\n"), many).notes == []


def test_a_reference_in_subwords_gets_a_note_too(write):
    (note,) = read(write, "A\nB\nC\n", "A@@ a\nB\n\nC\n").notes
    assert note.startswith("the reference: words are cut into subwords (such as A@@)")


@pytest.mark.parametrize(
    "system, reference, names",
    [
        ("I don &apos;t\nB\nC\n", REFERENCE, "x"),
        ("I don &apos;t\nB\nC\n", "don &apos;t\nb\n\nc\n", "x, the reference"),
        ("A\nB\nC\n", "don &apos;t\nb\n\nc\n", "the reference"),
    ],
)
def test_entities_get_a_note(write, system, reference, names):
    (note,) = read(write, system, reference).notes
    assert note.startswith(
        f"{names}: characters are written as entities (such as &apos;), of which"
    )
    assert read(write, "a & b\nR&D;\nC\n").notes == []


def test_tokens_against_text_get_a_note(write):
    tokens, text = "A b , c .\nB .\nC , d .\n", "A b, c.\nB.\n\nC, d.\n"
    (note,) = read(write, tokens, text).notes
    assert note.startswith("x: punctuation is separated by spaces, but not in the reference; give")
    (note,) = read(write, text, tokens.replace("B .\n", "B .\n\n")).notes
    assert note.startswith("the reference: punctuation is separated by spaces, but not in x; give")
    assert read(write, text, text).notes == []
    assert read(write, tokens, tokens.replace("B .\n", "B .\n\n")).notes == []
    assert read(write, "Ah !\nB ?\nC :\n", "Ah!\nB?\n\nC:\n").notes == []


TWO = "a\nb\nc\n\nd\ne\nf\n"


@pytest.mark.parametrize(
    "system",
    ["A\nB\nC\n\nD\nE\n", "B\nC\n\nD\nE\nF\n", "\nB\nC\n\nE\nF\n", "A\nB\nC\nD\n\nE\n"],
)
def test_a_lost_line_is_no_lost_boundary(write, system):
    """As many lines as sentences, but the blank one may be the end of a document."""
    with pytest.raises(UserError, match="is blank, .* give --docids; align them with --align LANG"):
        read(write, system, TWO)


def test_empty_translations_without_boundaries(write):
    """A block of five lines is longer than each document: the blank line ends none."""
    found = read(write, "A\nB\nC\nD\nE\n\n", TWO)
    assert found.systems == {"x": ["A", "B", "C", "D", "E", ""]}
    assert found.notes == ["x: 1 blank lines taken for empty translations"]
    assert read(write, "A\nB\nC\nD\nE\nF\n", TWO).notes == []
    assert read(write, "A\n\nC\n\nD\n\nF\n", TWO).notes == ["x: 2 empty translations"]


@pytest.mark.parametrize("source, same", [("two", "a reference"), ("x", "x"), ("new", None)])
def test_a_source_that_is_another_text_is_named(write, source, same):
    texts = {"x": "A\nB\n", "y": "A\nC\n", "one": "a\nb\n", "two": "a\nc\n", "new": "d\ne\n"}
    files = {name: write(name, text) for name, text in texts.items()}
    systems = {name: files[name] for name in "xy"}
    found = read_translations(systems, [files["one"], files["two"]], source=files[source])
    notes = [note for note in found.notes if "are the same text" in note]
    wanted = f"the source and {same} are the same text; check that the right files are given"
    assert notes == [wanted] * (same is not None)


def test_empty_translations_are_counted_beside_other_notes(write):
    records = [{"doc_id": "d", "segment": n, "text": text} for n, text in ((1, "A"), (2, ""))]
    system = write("x.json", json.dumps(records))
    found = read_translations({"x": system}, [write("reference", "a\nb\n")])
    order, empty = found.notes
    assert order.startswith("x: documents in the order of the file")
    assert empty == "x: 1 empty translations"


def test_an_output_without_translations(write):
    path = write("x", "S-0\ta\nT-0\ta\n")
    with pytest.raises(UserError, match=r"has no translations \(H- or D- lines\)"):
        read_translations({"x": path}, [write("reference", "a\n")])


def test_an_output_of_scored_references_is_named(write):
    """Its translations are the references, which may be given as a file, too."""
    lines = [
        f"T-{i}\t{text}\nH-{i}\t-1\t{text}\nD-{i}\t-1\t{text}\n" for i, text in enumerate("ab")
    ]
    systems = {
        "x": write("x", "".join(lines)),
        "y": write("y", "".join(lines).replace("D-1\t-1\tb", "D-1\t-1\tc")),
        "z": write("z", "a\nb\n"),
    }
    reference = write("reference", "a\nb\n")
    found = read_translations(systems, [reference])
    assert [note for note in found.notes if "--score-reference" in note] == [
        "x: the translations are a reference; check that the output was not made with "
        "--score-reference, which prints the references as translations"
    ]


def test_outputs_bring_their_references(write):
    text = "T-4\tc d\nD-4\t-1\tC\nT-1\tb\nD-1\t-1\tB\nT-0\ta\nD-0\t-1\tA\n"
    outputs = {"x": write("x", text), "y": write("y", text)}
    with pytest.raises(UserError, match="nothing says where documents end"):
        read_translations(outputs)
    found = read_translations(outputs, source=write("source", "1\n2\n\n\n3\n"))
    assert found.systems["y"] == ["A", "B", "C"]
    assert found.references == [["a", "b", "c d"]]
    assert found.index.starts.tolist() == [0, 2, 3]
    assert found.index.line_ids.tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    "system, message",
    [
        ("A\nB\n", r"system has 2 lines, but .*reference has 4 \(3 without blank lines\)"),
        ("A\n\nC\n", "system: line 2 is blank, .*an empty translation or the end of a document"),
        ("A\n\nB\nC\n", r"system: line 3 has text where a document ends in .*reference"),
        ("A\nB\n\nC\nD\n", r"system has 5 lines"),
        (" \n", r"system has no text"),
        ("H-0\t-1\tA\nH-3\t-1\tC\n", r"system lacks 1 of 3 sentences of .*, the first in line 2"),
        ("H-0\t-1\tA\nH-2\t-1\tC\n", r"differ: line 2 is a sentence in only one"),
    ],
)
def test_texts_that_do_not_fit(write, system, message):
    with pytest.raises(UserError, match=message):
        read(write, system)


def test_other_mistakes(write, tmp_path):
    reference = write("reference", REFERENCE)
    with pytest.raises(UserError, match="nowhere cannot be read: No such file"):
        read_translations({"x": str(tmp_path / "nowhere")}, [reference])
    (tmp_path / "latin").write_bytes("a\nö\n\nc\n".encode("latin-1"))
    with pytest.raises(UserError, match="latin: line 2 is not UTF-8"):
        read_translations({"x": str(tmp_path / "latin")}, [reference])
    with pytest.raises(UserError, match="is text without references; give them by --reference"):
        read_translations({"x": reference}, source=reference)
    outputs = {name: write(name, f"T-0\t{name}\nH-0\t-1\tA\n") for name in "xy"}
    one = write("one", "a\n")
    with pytest.raises(UserError, match="y and x have different references"):
        read_translations(outputs, source=one)
    unknown = write("unknown", "T-0\ta <<unk>>\nH-0\t-1\tA\n")
    with pytest.raises(UserError, match="unknown have unknown words"):
        read_translations({"x": unknown}, source=one)
    with pytest.raises(UserError, match="other has 1 lines, but .*reference has 4"):
        read_translations({"x": reference}, [reference, write("other", "a\n")])
    with pytest.raises(UserError, match="source has 2 lines"):
        read_translations({"x": reference}, [reference], write("source", "a\nb\n"))


@pytest.mark.parametrize(
    "text, message",
    [
        # The last document of three was lost, then a sentence in the middle of the first.
        ("T-0\ta\nH-0\t1\tA\nT-1\tb\nH-1\t1\tB\n", "lacks 1 of 3 sentences .* in line 4"),
        ("T-0\ta\nH-0\t1\tA\nT-3\tc\nH-3\t1\tC\n", "lacks 1 of 3 sentences .* in line 2"),
    ],
)
def test_missing_sentences_are_no_documents(write, text, message):
    source, output = write("source", "1\n2\n\n3\n"), write("x", text)
    with pytest.raises(UserError, match=message):
        read_translations({"x": output}, source=source)
    with pytest.raises(UserError, match="--docids"):
        read_translations({"x": output}, reading=Reading(docids=write("ids", "d\nd\ne\n")))


def test_sources_and_references_by_their_order_are_noted(write):
    """Documents with names, while those of the reference have none."""
    named = [
        {"doc_id": name, "segment": n, "text": "x"} for name, n in (("b", 2), ("b", 1), ("a", 1))
    ]
    named = write("named", "".join(json.dumps(each) + "\n" for each in named))
    plain = write("plain", "a\nb\n\nc\n")
    found = read_translations({"x": plain}, [plain, named], named)
    note = f"{named}: documents in the order of the file, as {plain} has no ids"
    assert found.notes.count(note) == 2


def test_docids_say_where_documents_end(write):
    ids = write("ids", "news\td\nnews\td\nnews\te\n")
    output = write("x", "T-0\ta\nH-0\t1\tA\nT-1\tb\nH-1\t1\tB\nT-3\tc\nH-3\t1\tC\n")
    found = read_translations({"x": output}, reading=Reading(docids=ids))
    assert found.systems == {"x": ["A", "B", "C"]} and found.ids == ["d", "e"]
    text = write("text", "A\n\nC\n")
    found = read_translations(
        {"x": text}, [write("reference", "a\nb\nc\n")], reading=Reading(docids=ids)
    )
    assert found.systems == {"x": ["A", "", "C"]}
    assert found.index.starts.tolist() == [0, 2, 3]
    with pytest.raises(UserError, match="mixed: line 3 goes on with document d, wh"):
        read_translations({"x": text}, [text], reading=Reading(docids=write("mixed", "d\ne\nd\n")))
    with pytest.raises(UserError, match="text has 3 lines .1 blank., but --docids has 2"):
        read_translations({"x": text}, [text], reading=Reading(docids=write("few", "d\ne\n")))
    with pytest.raises(UserError, match="line 2 has no document id"):
        read_translations({"x": text}, [text], reading=Reading(docids=write("gap", "d\n\ne\n")))
