"""Targeted tests without model scores: words that a translation must have."""

import json

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.words.ctxpro import has_word, judge, last_sentences, read_targets

CTXPRO = [
    {"expected": "sie", "rule": "ACC.FORM", "ref segment": "x"},
    {"expected": "glaube", "rule": "DO.ELL", "ante distance": 2, "ref segment": "x"},
    {"expected": "geht", "rule": "DO.ELL", "ante distance": 10, "ref segment": "x"},
]
CONTRAPRO = [
    {"ref pronoun": "Er", "ante distance": 0, "errors": [], "segment id": 1},
    {"ref pronoun": "sie", "ante distance": 4, "errors": [], "segment id": 2},
]
TABLE = "1\t2\tcorrect\ter\ta <eos>b\tA <eos>B\n0\t0\tcorrect\tsie\tc <eos>d\tC <eos>D\n"


@pytest.fixture
def ctxpro(write):
    return write("auxiliary.en-de.json", json.dumps(CTXPRO))


@pytest.mark.parametrize(
    "kind, sentence, word, right",
    [
        ("ctxpro", "Ja, SIE!", "sie", True),
        ("ctxpro", "Ja, das.Sie", "sie", False),  # as in its script: punctuation is only removed
        ("ctxpro", "siehe da", "sie", False),
        ("genpro", "Ja, er.", "Er", True),
        ("genpro", "La route qu'elles prennent", "elles", True),
        ("genpro", "aber", "er", False),
        # A full stop belongs to its word before lower case, which the next word has not.
        ("genpro", "Das ist sie. Er ging", "sie", True),
        ("genpro", "das ist sie. er ging", "sie", False),
    ],
)
def test_words(kind, sentence, word, right):
    assert has_word(kind)(sentence, word) == right


def test_formats(write, ctxpro):
    kind, items = read_targets(ctxpro)
    assert kind == "ctxpro" and [item.place for item in items] == [-1] * 3
    assert items[0].labels == {"phenomenon": "ACC.FORM"}
    assert items[2].labels == {"phenomenon": "DO.ELL", "distance": "10"}
    kind, items = read_targets(write("contrapro.json", json.dumps(CONTRAPRO)))
    assert kind == "genpro" and items[0] == ("Er", {"phenomenon": "er", "distance": "0"}, -1)
    kind, items = read_targets(write("genpro.tsv", TABLE))
    assert kind == "genpro" and items[0] == ("er", {"phenomenon": "er", "distance": "2"}, 1)
    assert items[1].place == 0


def test_tested_sentence(write):
    targets = read_targets(write("genpro.tsv", TABLE))
    assert judge(targets, ["Sie da. <eos> Er ist da.", "Sie <eos> er"]) == [True, True]
    assert judge(targets, ["Er <eos> Sie", "er <eos> sie"]) == [False, False]
    assert judge(targets, ["Er", "Sie"]) == [False, True]  # the second sentence is missing
    assert judge(targets, ["sie ||| er", "sie"], separator="|||") == [True, True]
    with pytest.raises(UserError, match="split at '[.]', no translation has text in the sentence"):
        judge(targets, ["Er ist da.", "."], separator=".")


def test_command(scoring, write, ctxpro, tmp_path):
    one, two = (
        write("one", "Sie\nich glaube\n\n"),
        write("two", "H-1\t0\tx\nH-0\t0\tsie\nH-2\t0\tgeht\n"),
    )
    items = tmp_path / "items.jsonl"
    arguments = ["ctxpro", ctxpro, f"one={one}", f"two={two}", "--items", str(items)]
    rows = [line.split() for line in scoring(*arguments).splitlines()]
    assert ["all", "3", "66.7", "66.7"] in rows
    assert ["phenomenon", "DO.ELL", "2", "50.0", "50.0"] in rows
    assert rows.index(["distance", "2", "1", "100.0", "0.0"]) < rows.index(
        ["distance", "10", "1", "0.0", "100.0"]
    )
    assert ["Accuracy,", "%"] in rows
    assert rows[-1] == ["set:auxiliary.en-de|items:3|ctxpro|last:de|bs:1000|seed:0"]
    found = [json.loads(line) for line in items.read_text().splitlines()]
    assert found[1]["correct"] == {"one": True, "two": False}
    figures = json.loads(scoring(*arguments, "--format", "json"))["systems"]["one"]
    assert figures["all"] == {"items": 3, "correct": 2, "accuracy": pytest.approx(2 / 3)}


def test_the_sentence_that_counts_for_ctxpro(scoring, write):
    """Words in context sentences do not count, as in the script of ctxpro."""
    pytest.importorskip("sentence_splitter", reason="last sentences need sentence-splitter")
    lines = write("x", "Sie kam. Er ging.\nIch glaube.\nDas geht. Es geht.\n")
    correct = lambda *options: json.loads(  # noqa: E731
        scoring("ctxpro", *options, f"x={lines}", "--format", "json")
    )["systems"]["x"]["all"]["correct"]
    named = write("my-auxiliary-in-en-de.test.json", json.dumps(CTXPRO))
    other = write("other.json", json.dumps(CTXPRO))
    assert correct(named) == 2 and correct(named, "--separator", "<eos>") == 3
    assert correct(other, "--last-sentence", "de") == 2
    with pytest.raises(UserError, match="the name of the file shows no language; give --last-sent"):
        correct(other)
    with pytest.raises(UserError, match="give --separator or --last-sentence, not both"):
        correct(named, "--separator", "<eos>", "--last-sentence", "de")


def test_translations_in_other_formats(scoring, write, ctxpro):
    """A document or a segment for each item."""
    texts = ["Sie", "ich glaube", "x"]
    many = [{"doc_id": n, "text": text} for n, text in enumerate(texts)]
    one = [{"doc_id": "a", "segment": n, "text": text} for n, text in enumerate(texts)]
    for records in (many, one):
        system = write("x", json.dumps(records))
        printed = scoring("ctxpro", ctxpro, f"x={system}", "--separator", "<eos>")
        assert ["all", "3", "66.7"] in [line.split() for line in printed.splitlines()]
    with pytest.raises(UserError, match="has 2 lines, but .* has 3 items"):
        scoring("ctxpro", ctxpro, f"x={write('x', json.dumps(many[1:]))}")


@pytest.mark.parametrize("first", [0, 1, 5])
def test_documents_are_sorted_by_ids_that_count(scoring, write, ctxpro, first):
    """As are the numbers of an output; other ids may be in any order."""
    texts = ["x", "ich glaube", "Sie"] + ["x"] * 9
    ids = [2, 1, 0, *range(3, 12)]
    items = write("a.json", json.dumps(CTXPRO + [CTXPRO[0]] * 9))
    records = [{"doc_id": first + n, "text": text} for n, text in zip(ids, texts)]
    system = write("x", "".join(json.dumps(record) + chr(10) for record in records))
    printed = scoring("ctxpro", items, f"x={system}", "--separator", "<eos>")
    right = "16.7" if first < 2 else "8.3"
    assert ["all", "12", right] in [line.split() for line in printed.splitlines()]


def test_an_output_whose_numbers_count_blank_lines(scoring, write, ctxpro):
    lines = [
        f"H-{number}\t0\t{text}" for number, text in ((10, "x"), (2, "ich glaube"), (0, "Sie"))
    ]
    system = write("x", "".join(line + chr(10) for line in lines))
    printed = scoring("ctxpro", ctxpro, f"x={system}", "--separator", "<eos>")
    assert ["all", "3", "66.7"] in [line.split() for line in printed.splitlines()]


def test_the_name_chooses_a_system_of_the_file(scoring, write, ctxpro):
    texts = {"a": ["Sie", "ich glaube", "x"], "b": ["x", "x", "Sie"]}
    records = [
        {"system": name, "doc_id": n, "text": text}
        for name, lines in texts.items()
        for n, text in enumerate(lines)
    ]
    file = write("x", json.dumps(records))
    printed = scoring("ctxpro", ctxpro, f"a={file}", f"b={file}", "--separator", "<eos>")
    assert ["all", "3", "66.7", "0.0"] in [line.split() for line in printed.splitlines()]


@pytest.mark.parametrize("options", [["--separator", "<eos>"], ["--last-sentence", "de"]], ids=str)
def test_the_last_segment_of_a_document_is_tested(scoring, write, ctxpro, options):
    """Whatever ends the segments before."""
    texts = ["oh sie da\nx", "x\nich glaube", "geht\nx"]
    records = [{"doc_id": n, "text": text} for n, text in enumerate(texts)]
    items = write("items", "")
    system = f"x={write('x', json.dumps(records))}"
    scoring("ctxpro", ctxpro, system, "--items", items, *options)
    found = [json.loads(line)["correct"]["x"] for line in open(items)]
    assert found == [False, True, False]
    records[0]["text"] = ""  # no segment at all
    scoring("ctxpro", ctxpro, f"x={write('x', json.dumps(records))}", "--items", items, *options)
    assert [json.loads(line)["correct"]["x"] for line in open(items)] == found


def test_intervals_and_differences(scoring, write):
    items = write("a.en-de.json", json.dumps([CTXPRO[0]] * 40))
    systems = [f"one={write('one', 'x' + chr(10) * 1 + ('sie' + chr(10)) * 39)}"]
    systems += [f"two={write('two', ('sie' + chr(10)) * 10 + ('x' + chr(10)) * 30)}"]
    found = json.loads(scoring("ctxpro", items, *systems, "--format", "json"))["intervals"]
    assert found["two"]["score"]["value"] == 0.25
    assert found["two"]["difference"]["value"] == pytest.approx(-0.725)
    assert -0.9 < found["two"]["difference"]["low"] < -0.8
    assert "difference" not in found["one"]
    rows = [line.split() for line in scoring("ctxpro", items, *systems).splitlines()]
    assert ["all", "two", "25.0"] in [row[:3] for row in rows]
    score, difference = (found["two"][key] for key in ("score", "difference"))
    shown = [f"{100 * score['low']:.1f}", "to", f"{100 * score['high']:.1f}", "-72.5"]
    shown += [f"{100 * difference['low']:+.1f}", "to", f"{100 * difference['high']:+.1f}"]
    assert shown in [row[3:] for row in rows]


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("x.json", "[", "line 1 is not valid JSON"),
        ("x.json", "[{}]", "is not in a known format"),
        ("x.json", "[]", "is not in a known format"),
        ("x.json", json.dumps([*CTXPRO, {}]), 'item 4 has no "rule"'),
        (
            "x.json",
            json.dumps([{**CTXPRO[0], "expected": ""}]),
            "item 1: the expected word must be",
        ),
        ("x.tsv", TABLE + "a\tb\n", "line 3 has 2 columns"),
        ("x.tsv", TABLE.replace("correct", "contrastive", 1), "line 1 is not a correct item"),
        ("x.tsv", TABLE.replace("0\t0", "0\tx"), "line 2: index and distance must be numbers"),
        ("x.tsv", TABLE.replace("0\t0", "--1\t0"), "line 2: index and distance must be numbers"),
    ],
)
def test_mistakes_in_sets(write, name, text, message):
    with pytest.raises(UserError, match=message):
        read_targets(write(name, text))


def test_other_mistakes(scoring, write, ctxpro, monkeypatch):
    with pytest.raises(UserError, match="has 1 lines, but .* has 3 items; it needs one for each"):
        scoring("ctxpro", ctxpro, f"x={write('x', 'a')}")
    records = json.dumps({"doc_id": "a", "segment": 1, "hypothesis": "Sie"})
    with pytest.raises(UserError, match="x.jsonl has 1 lines, but .* has 3 items; it needs one"):
        scoring("ctxpro", ctxpro, f"x={write('x.jsonl', records)}")
    with pytest.raises(UserError, match="has 1 translations, but .* has 3 items"):
        scoring("ctxpro", ctxpro, f"x={write('x', 'H-0' + chr(9) + '0' + chr(9) + 'a' + chr(10))}")
    with pytest.raises(UserError, match="--separator is empty; give the text between sentences"):
        scoring("ctxpro", ctxpro, f"x={write('x', 'a')}", "--separator", "")
    monkeypatch.setitem(__import__("sys").modules, "sentence_splitter", None)
    with pytest.raises(UserError, match="needs the package sentence-splitter; install it with"):
        last_sentences("de")


def test_last_sentence():
    pytest.importorskip("sentence_splitter", reason="last sentences need sentence-splitter")
    assert last_sentences("de")("Ja. Das glaube ich.") == "Das glaube ich."
    with pytest.raises(UserError, match="sentence-splitter has no language xx"):
        last_sentences("xx")
