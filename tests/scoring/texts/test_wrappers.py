"""What language models write around translations, and other signs of texts that are not meant.

Covers scoring/texts/checks.py, scoring/texts/matching.py.
"""

import json

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Document, Documents, Lines, Output
from fairseq_docmt.readers.files import LONGEST
from fairseq_docmt.scoring.texts import checks, wrappers
from fairseq_docmt.scoring.texts.matching import Reading
from fairseq_docmt.scoring.texts.translations import read_translations

#: Translations of two lines as models return them.
BARE = ["Hola a todos.", "¿Qué tal?"]
WRAPPED = {
    "thoughts": "<think>\nThe user wants Spanish.\n\nI see.\n</think>\n\n" + "\n".join(BARE),
    "a fence": "```\n" + "\n".join(BARE) + "\n```",
    "a fence with a name": "```text\n" + "\n".join(BARE) + "\n```",
    "an announcement": "Here is the translation:\n" + "\n".join(BARE),
    "a polite one": "Sure! Here's the Spanish translation of the text:\n\n" + "\n".join(BARE),
    "a language": "Here is the text in Spanish:\n" + "\n".join(BARE),
    "in German": "Hier ist die Übersetzung:\n" + "\n".join(BARE),
    "in Chinese": "以下是翻译：\n" + "\n".join(BARE),
    "a label": "Translation: " + "\n".join(BARE),
    "a label with a language": "Czech translation:\n" + "\n".join(BARE),
    "a bold label": "**Translation:**\n" + "\n".join(BARE),
    "a language alone": "Certainly! Here's the Spanish:\n" + "\n".join(BARE),
    "a version": "Below is the Spanish version:\n" + "\n".join(BARE),
    "a bold title": "**Translation**\n" + "\n".join(BARE),
    "a heading": "## Spanish translation\n" + "\n".join(BARE),
    "an output": "Output:\n" + "\n".join(BARE),
    "tags": "<output>\n" + "\n".join(BARE) + "\n</output>",
    "rules": "---\n" + "\n".join(BARE) + "\n---",
    "a label in Chinese": "译文：" + "\n".join(BARE),
    "an offer": "\n".join(BARE) + "\n\nLet me know if you need anything else!",
    "thoughts opened in the prompt": "The user wants Spanish.\n</think>\n" + "\n".join(BARE),
    "other fences": "~~~\n" + "\n".join(BARE) + "\n~~~",
    "all": "<think>x</think>Sure, here is the translation:\n\n```\n"
    + "\n".join(BARE)
    + "\n```\n\nFeel free to ask for changes.",
}


def stripped(text, references):
    return wrappers.stripped(text, wrappers.removed_for(references))


@pytest.mark.parametrize("name", WRAPPED)
def test_documents_are_bare(name):
    lines = [line for line in WRAPPED[name].split("\n") if line]
    text = Documents("x", [Document("a", lines), Document("b", BARE)])
    found, changed = stripped(text, [])
    assert [document.segments for document in found.documents] == [BARE, BARE] and changed > 0
    plain = Lines("x", [*WRAPPED[name].split("\n"), "", *BARE])
    if "all" not in name and "\n\n" not in WRAPPED[name] or name == "thoughts":
        assert stripped(plain, [])[0].lines == [*BARE, "", *BARE]


def test_only_what_was_removed_is_counted():
    lines = ["Here is the translation:", "Uno.", "Dos.", "Tres."]
    assert stripped(Documents("x", [Document("a", lines)]), [])[1] == 1


NUMBERED = ["1. Hola.", "2. ¿Qué tal?", "3. Bien."]


def test_numbers_of_segments():
    """All of a document, one after the other, and not in the reference."""
    bare = ["Hola.", "¿Qué tal?", "Bien."]
    named = Document("a", NUMBERED, ["x", "y", "z"])
    text = Documents("x", [Document("a", NUMBERED), named._replace(id="b")])
    found, changed = stripped(text, [Lines("r", bare)])
    assert [document.segments for document in found.documents] == [bare] * 2 and changed == 6
    assert stripped(text, [Lines("r", NUMBERED)]) == (text, 0)
    # Short documents are numbered if all longer ones are.
    found = stripped(Lines("x", [*NUMBERED, "", *NUMBERED[:2], "", "4. a"]), [])[0]
    assert found.lines == [*bare, "", *bare[:2], "", "4. a"]
    for others in ([*bare, ""], []):
        text = Lines("x", [*others, *NUMBERED[:2], "", "1. a"])
        assert stripped(text, []) == (text, 0)
    for lines in (["1. a", "3. b", "4. c"], ["2. a", "3. b", "4. c"], ["1. a", "b", "3. c"]):
        text = Documents("x", [Document("a", lines)])
        assert stripped(text, []) == (text, 0)
    found = wrappers.find([*NUMBERED, *bare], bare * 2, None, [(0, 3), (3, 6)])
    assert found.kinds == {"numbers of segments": [0, 1, 2]} and found.example == "1. Hola."
    assert not wrappers.find(NUMBERED, NUMBERED, None, [(0, 3)]).kinds
    found = wrappers.find([*NUMBERED, *NUMBERED[:2]], [*bare, *bare[:2]], None, [(0, 3), (3, 5)])
    assert found.kinds == {"numbers of segments": [0, 1, 2, 3, 4]}


def test_segments_with_names_are_bare():
    lines = ["Translation: Hola.", "<think>x</think>", "```Bien.```", "Adiós."]
    document = Document("a", lines, ["1", "2", "3", "4"])
    (found,) = stripped(Documents("x", [document]), [])[0].documents
    assert found == Document("a", ["Hola.", "", "Bien.", "Adiós."], ["1", "2", "3", "4"])
    output = Output("x", dict(enumerate(lines)), {})
    found, changed = stripped(output, [])
    assert [*found.hypotheses.values()] == ["Hola.", "", "Bien.", "Adiós."] and changed == 3


@pytest.mark.parametrize(
    "line",
    [
        "Here is my house: it is small.",
        "The translation: a hard task",
        "Use ``` for code.",
        "Certainly not.",
        "Let me know if you come.",
        "Sure: yes.",
        "Here is the woman: she is tall.",
        "Output is low.",
        "--- he said ---",
        "**Hola.**",
    ],
)
def test_text_stays(line):
    text = Documents("x", [Document("a", [line])])
    assert stripped(text, []) == (text, 0)


def test_what_the_reference_has_stays():
    lines = ["Traducción: J. Cano", "Hola."]
    text = Documents("x", [Document("a", lines)])
    assert stripped(text, [])[0].documents[0].segments == ["J. Cano", "Hola."]
    assert stripped(text, [Lines("r", ["Traducción: M. Paz"])]) == (text, 0)


@pytest.mark.parametrize(
    "text, kind",
    [
        # As language models answered in WMT24.
        ("1/3``` (no translation needed, as it's a numerical fraction)", "fences"),
        (
            "I apologize, but I don't feel comfortable translating that particular text",
            "words about the translation",
        ),
        ("我不会翻译那句话，而是回答您的问题。" * 4, "words about the translation"),
        ("<think>The user wants", "thoughts"),
        ("The girl snatches it out of his hand.", "the source"),
        ("Девушка выхватывает это у него из рук", "another script than the reference"),
        ("La chica se lo quita. (Note: a colloquial form.)", "comments"),
        ("La chica se lo quita.\n\nNote: colloquial.", "comments"),
        ("La chica se lo quita. Alternatively: La niña lo quita.", "comments"),
        ("I'm sorry, but I can't assist with that.", "refusals"),
        ("I cannot translate this text.", "refusals"),
        ('{"translation": "La chica se lo quita."}', "objects"),
        ("~~~ La chica", "fences"),
        ("“La chica se lo quita.”", "marks around it"),
        ("**La chica se lo quita.**", "marks around it"),
        ("<output>La chica se lo quita.</output>", "tags"),
        ("- La chica se lo quita.", "bullets"),
        ("La chica < el > se lo quita.", None),
        ("-La chica se lo quita.", None),
        ("Of course! I'd be happy to help.", "announcements"),
        ("Sure. Here you go", "announcements"),
        ("**Translation**", "announcements"),
        ("Sure, he takes it.", None),
        ("La chica se lo quita, nota bene.", None),
        ('La "chica" se lo quita.', None),
        ("La chica se lo quita.", None),
        ("", None),
    ],
)
def test_what_is_left_is_found(text, kind):
    source = "The girl snatches it out of his hand."
    reference = "La niña lo quita de la mano."
    found = wrappers.find([reference, text], [reference, reference], [source, source])
    assert found.kinds == ({kind: [1]} if kind else {})
    assert found.example == (text[:60] if kind else "")


def test_words_that_source_or_reference_have_are_no_sign():
    text = "La traducción es un trabajo muy difícil para todos."
    for reference, source in (("Traducir cuesta.", None), ("Cuesta.", ["Translation is hard."])):
        assert not wrappers.find([text], [reference], source).kinds
    assert wrappers.find([text], ["Cuesta."]).kinds


def run(scoring, write, system, *options):
    """Score a system against two documents, as JSON."""
    reference = [*BARE, "No sé qué decir."]
    arguments = [f"x={write('x', system)}", "--reference", write("r", [BARE, reference])]
    return json.loads(scoring("metrics", *arguments, "--format", "json", *options))


def test_the_option(scoring, write):
    system = "Here is the translation:\n" + "\n".join(BARE) + "\n\n```\n" + "\n".join(BARE)
    system += "\nNo sé qué decir.\n```\n"
    with pytest.raises(UserError, match="x has 9 lines, but"):
        run(scoring, write, system)
    found = run(scoring, write, system, "--strip-wrappers")
    assert found["metrics"][0]["scores"]["x"] == pytest.approx(100)
    assert found["metrics"][0]["signature"].startswith("docs:2|sents:5|wrappers:stripped|unit")
    assert "x: wrappers removed from 3 segments" in found["notes"]


@pytest.mark.parametrize("aligned", [False, True])
def test_the_option_of_convert(scoring, write, tmp_path, aligned):
    text = "\n".join(["Here's the Spanish:", *BARE])
    options = ["--strip-wrappers", "--out", str(tmp_path / "out")]
    if aligned:
        options += ["--align", "es", "--reference"]
        options += [write("r", json.dumps([{"doc_id": "a", "text": "\n".join(BARE)}]))]
    system = write("x", json.dumps([{"doc_id": "a", "text": text}]))
    assert "wrappers removed from 1 segments" in scoring("convert", system, *options)
    lines = (tmp_path / "out").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == BARE


def test_the_note(scoring, write):
    lines = ["1/3``` (no translation needed)", *BARE[1:], "", *BARE, "No sé qué decir."]
    (note,) = run(scoring, write, "\n".join(lines) + "\n")["notes"]
    assert note == (
        "x: 1 segments seem to hold more or other than a translation (fences in 1), the first "
        "'1/3``` (no translation needed)'; documents: 1; see --strip-wrappers"
    )


def test_copies_of_the_source_are_noted(scoring, write):
    source = ["The first sentence of it.", "Another sentence."]
    system = [f"{source[0]} {BARE[0]}", *BARE[1:], "", *BARE, "No sé qué decir."]
    text = "\n".join([*source, "", *source, "It ends."]) + "\n"
    (note,) = run(scoring, write, "\n".join(system), "--source", write("s", text))["notes"]
    assert "(the source in 1), the first" in note


@pytest.mark.parametrize("unit", ["\n", " ", '{"a":', "{ ", "Note ", "* ", "(", '"', ". ", "`"])
def test_long_lines_take_no_longer_than_short_ones(unit):
    """At 20,000 line ends, a pattern that tries each run of white space anew took 30 seconds."""
    text = f"x{unit * (LONGEST // len(unit))}x"
    wrappers.find([text], ["y"], ["z"])
    stripped(Documents("x", [Document("a", [f"```{text}```", text], ["1", "2"])]), [])


def test_what_was_not_stripped_has_no_advice():
    found = wrappers.Found({"comments": [0]}, "x")
    (note,) = wrappers.notes_on("x", found, ["a"], is_stripped=True)
    assert note.endswith("documents: a; not stripped")


@pytest.mark.parametrize("few", ["“La chica se lo quita.”", "The girl snatches it out of it."])
def test_a_few_names_and_quotations_are_no_sign(few):
    """Names and tags are the same in the source, and speech is quoted."""
    reference, source = ["La niña lo quita."] * 100, ["The girl snatches it out of it."] * 100
    for number, found in ((4, 0), (5, 1)):
        system = [few] * number + reference[number:]
        assert len(wrappers.find(system, reference, source).kinds) == found


# ---- lengths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor, noted", [(0.45, True), (0.55, False), (1.9, False), (2.1, True)])
def test_documents_of_unusual_length(factor, noted):
    reference = ["x" * 1000] * 4
    system = ["y" * 900] * 3 + ["y" * int(900 * factor)]
    note = checks.length_note("s", system, reference, "abcd")
    if not noted:
        assert note is None
        return
    assert note == (
        "s: the length of 1 documents in relation to the reference is unusual (median 0.90): "
        f"d ({0.9 * factor:.2f}); check that they are complete"
    )


@pytest.mark.parametrize(
    "ratios, noted", [([0.6], False), ([0.6, 0.6], False), ([0.4, 0.4], True), ([0.3] * 3, False)]
)
def test_one_or_two_documents_are_compared_with_the_length_of_the_reference(ratios, noted):
    system = ["y" * int(1000 * ratio) for ratio in ratios]
    note = checks.length_note("s", system, ["x" * 1000] * len(ratios), "abc"[: len(ratios)])
    assert (note is not None) == noted


def test_lengths_of_few_or_short_documents():
    assert checks.length_note("s", ["y" * 50, "y"], ["x" * 199, "x" * 199], "ab") is None
    assert "a (0.25)" in checks.length_note("s", ["y" * 50, "y"], ["x" * 200, "x"], "ab")


# ---- alignment and missing documents ------------------------------------------------------------

REFERENCE = [["The cat sat on the mat.", "Who saw it?"], ["Nobody was there today.", "Good night."]]


def test_only_documents_that_do_not_match_are_aligned(scoring, write):
    pytest.importorskip("mweralign", reason="alignment needs mweralign")
    system = [["The cat sat", "on the mat. Who saw it?"], ["Nobody was there today. Good night."]]
    arguments = [f"x={write('x', system)}", "--reference", write("r", REFERENCE)]
    arguments += ["--align", "en", "--format", "json"]
    found = json.loads(scoring("metrics", *arguments))
    texts = read_translations(
        {"x": write("x", system)}, [write("r", REFERENCE)], reading=Reading(align="en")
    )
    # The first document has two lines, as its reference: they are taken as they are.
    assert texts.systems["x"] == [*system[0], *REFERENCE[1]]
    assert any(note.startswith("x: 1 documents aligned by mweralign") for note in found["notes"])
    found = json.loads(scoring("metrics", *arguments, "--align-all"))
    assert found["metrics"][0]["scores"]["x"] == pytest.approx(100)
    assert any(note.startswith("x: 2 documents aligned by mweralign") for note in found["notes"])
    assert "-en(x:all)|" in found["metrics"][0]["signature"]


def test_all_documents_of_an_output_may_be_aligned(scoring, write):
    pytest.importorskip("mweralign", reason="alignment needs mweralign")
    output = write("o", "H-0\t1\tThe cat sat\nH-1\t1\ton the mat. Who saw it?\n")
    arguments = [f"x={output}", "--reference", write("r", REFERENCE[:1]), "--align", "en"]
    found = json.loads(scoring("metrics", *arguments, "--align-all", "--format", "json"))
    assert found["metrics"][0]["scores"]["x"] == pytest.approx(100)
    with pytest.raises(UserError, match="--align-all needs --align LANGUAGE"):
        scoring("metrics", *arguments[:3], "--align-all")
    out = write("out", [["x"]])
    scoring("convert", output, *arguments[1:], "--align-all", "--to", "text", "--out", out)
    with open(out, encoding="utf-8") as stream:
        assert stream.read().split("\n")[:2] == REFERENCE[0]


def records(documents="abc", left_out=()):
    return [
        {"doc_id": d, "segment": n, "text": f"words of {d} and {n} here"}
        for d in documents
        for n in (1, 2)
        if (d, n) not in left_out
    ]


@pytest.mark.parametrize("policy", ["skip", "empty"])
@pytest.mark.parametrize(
    "left_out, noted",
    [
        ([("b", 1), ("b", 2)], "1 documents (b)"),
        ([("c", 1)], "1 segments (c, 1)"),
    ],
)
def test_missing_documents_and_segments(scoring, write, policy, left_out, noted):
    reference = write("r", json.dumps(records()))
    part = write("part", json.dumps(records(left_out=left_out)))
    arguments = [f"all={reference}", f"part={part}", "--reference", reference, "--format", "json"]
    with pytest.raises(UserError, match="part lacks the document b|document c lacks segment 1"):
        scoring("metrics", *arguments)
    found = json.loads(scoring("metrics", *arguments, "--missing", policy))
    left = 6 - (len(left_out) if policy == "skip" else 0)
    documents = 3 - (policy == "skip" and "documents" in noted)
    signature = f"docs:{documents}|sents:{left}|missing:{policy}|"
    assert found["metrics"][0]["signature"].startswith(signature)
    scores = found["metrics"][0]["scores"]
    assert scores["all"] == pytest.approx(100)
    if policy == "skip":
        assert scores["part"] == pytest.approx(100)
        assert f"left out, which part lacks: {noted}" in found["notes"]
    else:
        assert scores["part"] < 90
        assert f"part: {len(left_out)} missing segments taken for empty" in found["notes"]


@pytest.mark.parametrize("policy", ["skip", "empty"])
@pytest.mark.parametrize("options", [["--align", "en"], ["--align", "en", "--align-all"], []])
def test_missing_documents_of_a_system_to_align(scoring, write, policy, options):
    """They are left out for all systems, or empty, as those of systems that match."""
    if options:
        pytest.importorskip("mweralign", reason="alignment needs mweralign")
    reference = write("r", json.dumps(records()))
    whole = [
        {"doc_id": d, "text": f"words of {d} and 1 here words of {d} and 2 here"} for d in "ac"
    ]
    arguments = [f"all={reference}", f"part={write('part', json.dumps(whole))}", "--format", "json"]
    arguments += ["--reference", reference, "--missing", policy, "--metrics", "d-bleu", *options]
    found = json.loads(scoring("metrics", *arguments))
    size = "docs:2|sents:4|" if policy == "skip" else "docs:3|sents:6|"
    assert found["metrics"][0]["signature"].startswith(size)
    scores = found["metrics"][0]["scores"]
    assert scores["all"] == pytest.approx(100)
    assert (scores["part"] == pytest.approx(100)) == (policy == "skip")
    noted = "part: 2 missing segments taken for empty"
    if policy == "skip":
        noted = "left out, which part lacks: 1 documents (b)"
    assert noted in found["notes"]
    assert any("part: 2 documents aligned" in note for note in found["notes"]) == bool(options)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("form", ["records", "output"])
def test_missing_segments_of_documents_to_align(scoring, write, form, missing):
    """No words of other segments are moved into a segment that is missing."""
    pytest.importorskip("mweralign", reason="alignment needs mweralign")
    lines = ["one two three four", "one two three four five", "six seven eight nine"]
    everything = [{"doc_id": "a", "segment": n, "text": t} for n, t in enumerate(lines, start=1)]
    there = [n for n in range(3) if n != missing]
    part = json.dumps([everything[n] for n in there])
    if form == "output":
        part = "".join(f"H-{n}\t-1\t{lines[n]}\n" for n in there)
    arguments = [f"x={write('x', part)}", "--reference", write("r", json.dumps(everything))]
    arguments += ["--align", "en", "--align-all", "--missing", "skip", "--format", "json"]
    found = json.loads(scoring("metrics", *arguments))["metrics"][0]
    assert found["signature"].startswith("docs:1|sents:2|")
    assert found["scores"]["x"] == pytest.approx(100)


def test_missing_segments_beside_documents_to_align(write):
    """The missing segment keeps its place in a document that needs no alignment."""
    pytest.importorskip("mweralign", reason="alignment needs mweralign")
    numbered = [{"doc_id": "b", "segment": n, "text": f"v{n} w{n}"} for n in (1, 2, 3)]
    other = [{"doc_id": "a", "segment": n, "text": t} for n, t in ((1, "one two"), (2, "three"))]
    system = [{"doc_id": "a", "text": "one two three"}, numbered[0], numbered[2]]
    reading = Reading(align="en", missing="empty")
    found = read_translations(
        {"x": write("x", json.dumps(system))},
        [write("r", json.dumps(other + numbered))],
        None,
        reading,
    )
    assert found.systems["x"] == ["one two", "three", "v1 w1", "", "v3 w3"]


# ---- what is matched by its order, and texts of several runs -------------------------------------


def test_outputs_of_several_runs(write):
    output = "S-0\ta\nT-0\tx\nH-0\t1\ty\nH-0\t2\tz\n"
    found = read_translations({"x": write("o", output)}, source=write("s", "a\n"))
    assert found.systems == {"x": ["y"]}
    with pytest.raises(UserError, match="o has sentence 0 more than once .S-0., as outputs of sev"):
        read_translations({"x": write("o", output * 2)}, source=write("s", "a\n"))


def test_what_is_matched_by_its_order_is_noted(write):
    reference = write("r", [["a b", "c d"], ["e f"]])
    records = [{"doc_id": d, "text": t} for d, t in (("y", "a b"), ("y", "c d"), ("x", "e f"))]
    system = write("s", json.dumps(records))
    (note,) = read_translations({"x": system}, [reference]).notes
    assert note == f"x: documents in the order of the file, as {reference} has no ids"
    named = [{**record, "segment": n % 2 + 1} for n, record in enumerate(records)]
    (note,) = read_translations({"x": system}, [write("n", json.dumps(named))]).notes
    assert note == "x: segments in the order of the file, as they have no numbers"
    other = [{**r, "sent_id": r["segment"]} for r in named]
    for record in other:
        del record["segment"]
    assert not read_translations(
        {"x": write("o", json.dumps(other))}, [write("n", json.dumps(named))]
    ).notes
    later = [{**r, "segment": r["segment"] + 9} for r in named]
    with pytest.raises(UserError, match="segment of document y is called 10, in .* 1; number both"):
        read_translations({"x": write("l", json.dumps(later))}, [write("n", json.dumps(named))])
    zero = [{**r, "segment": r["segment"] - 1} for r in named]
    with pytest.raises(UserError, match="document y are counted from 0, in .* from 1; count both"):
        read_translations({"x": write("z", json.dumps(zero))}, [write("n", json.dumps(named))])


def test_blank_lines_more_or_less_are_no_matter(write):
    reference = write("r", "a\nb\n\nc\n")
    for text in ("\n\na\nb\n\n\n\nc\n\n\n", "a\nb\n\n\nc"):
        assert read_translations({"x": write("x", text)}, [reference]).systems["x"] == [*"abc"]


@pytest.mark.parametrize(
    "ids, wanted", [("n\td\nn\td\nn\te\n", ["d", "e"]), ("n\td\nn\td\nn\t\n", None)]
)
def test_the_last_column_of_docids(write, ids, wanted):
    path, ids = write("x", "a\nb\nc\n"), write("ids", ids)
    if wanted:
        assert read_translations({"x": path}, [path], reading=Reading(docids=ids)).ids == wanted
        return
    with pytest.raises(UserError, match="ids: line 3 has no document id"):
        read_translations({"x": path}, [path], reading=Reading(docids=ids))


def test_the_source_may_say_where_documents_end(scoring, write):
    source, reference = write("s", "1\n2\n\n3\n"), write("r", "a b c d\ne f g h\ni j k l\n")
    found = read_translations({"x": reference}, [reference], source)
    assert found.index.starts.tolist() == [0, 2, 3] and found.source == ["1", "2", "3"]
    arguments = ["metrics", f"x={reference}", "--reference", reference]
    note = "no blank lines and no ids: the 3 sentences are one document"
    assert note in scoring(*arguments) and note not in scoring(*arguments, "--metrics", "chrf")
    assert note not in scoring(*arguments, "--source", source)
    with pytest.raises(UserError, match="--source: .* has 2 lines, but .* has 3"):
        read_translations({"x": reference}, [reference], write("t", "1\n2\n"))


@pytest.mark.parametrize("policy", ["skip", "empty"])
def test_missing_lines_of_an_output(scoring, write, policy):
    """Line numbers count the blank line between the documents."""
    source = write("s", "a b c d\ne f g h\n\ni j k l\nm n o p\n")
    output = write("o", "".join(f"H-{n}\t1\t{t}\n" for n, t in ((0, "a b c d"), (4, "m n o p"))))
    arguments = ["metrics", f"x={output}", "--reference", source, "--metrics", "s-bleu"]
    with pytest.raises(UserError, match="lacks 2 of 4 sentences .*, the first in line 2"):
        scoring(*arguments)
    found = json.loads(scoring(*arguments, "--missing", policy, "--format", "json"))
    (metric,), notes = found["metrics"], found["notes"]
    if policy == "skip":
        assert metric["scores"]["x"] == pytest.approx(100)
        assert notes == ["left out, which x lacks: 2 segments (1, 2; 2, 1)"]
    else:
        assert metric["signature"].startswith("docs:2|sents:4|missing:empty|")
        assert metric["scores"]["x"] < 70 and "x: 2 missing segments taken for empty" in notes
