"""Readers of published contrastive sets, and their conversion to JSON lines."""

import json
from pathlib import Path

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.contrastive.formats import read_set
from fairseq_docmt.scoring.contrastive.items import Item, json_lines

VOITA = {"src": "a _eos b", "dst": ["A _eos B", "A _eos C"], "true_ind": 1, "ctx_dist": 1}
CONTRAPRO = {
    "document id": "film.de",
    "segment id": 4,
    "src segment": "It  is big .",
    "ref segment": "Er ist groß .",
    "src pronoun": "It",
    "ref pronoun": "Er",
    "ante distance": 2,
    "intrasegmental": False,
    "errors": [{"contrastive": "Sie ist groß ."}, {"contrastive": "Es ist groß ."}],
}
ANAPHORA = {
    "src": ["The buildings.", "They are full."],
    "trg": [
        {
            "correct": ["Les bâtiments.", "Ils sont pleins."],
            "incorrect": ["Les bâtiments.", "Elles sont pleines."],
        },
        {
            "type": "f.pl",
            "semi-correct": ["Les maisons.", "Elles sont pleines."],
            "incorrect": ["Les maisons.", "Ils sont pleins."],
        },
    ],
}
LEXICAL = {
    "type": "repet",
    "examples": [
        {
            "src": ["What's crazy?", "Is this crazy?"],
            "trg": {"correct": ["A dingue ?", "Dingue ?"], "incorrect": ["A dingue ?", "Fou ?"]},
        }
    ],
}


def write(folder: Path, content, name: str = "set.json") -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def library(folder: Path) -> str:
    """Documents as the scripts of ContraPro extract them."""
    year = folder / "documents" / "1999"
    year.mkdir(parents=True)
    lines = {"en": ["one", "two", "three", "It is big ."], "de": ["eins", "", "drei", "Er ..."]}
    for language, text in lines.items():
        (year / f"film.{language}").write_text("\n".join(text) + "\n", encoding="utf-8")
        (year / f"film2.{language}").write_text("nothing\n", encoding="utf-8")
    return str(year.parent)


def test_voita(tmp_path):
    found = read_set(write(tmp_path, [VOITA], "deixis_dev.json"))
    labels = {"phenomenon": "deixis", "distance": "1"}
    assert found == [Item(["a", "b"], [["A", "B"], ["A", "C"]], 1, labels)]
    shorter = read_set(write(tmp_path, [VOITA], "ellipsis_vp.json"), context=0)
    assert shorter == [Item(["b"], [["B"], ["C"]], 1, {**labels, "phenomenon": "ellipsis_vp"})]


@pytest.mark.parametrize(
    "context, source, target",
    [
        (0, [], []),
        (1, ["three"], ["drei"]),
        (2, ["three"], ["drei"]),  # line 2 has no translation and is passed over
        (9, ["one", "three"], ["eins", "drei"]),  # never beyond the beginning of the document
    ],
)
def test_contrapro(tmp_path, context, source, target):
    (item,) = read_set(write(tmp_path, [CONTRAPRO]), context, library(tmp_path))
    assert item.source == [*source, "It  is big ."]
    assert item.candidates == [
        [*target, f"{pronoun} ist groß ."] for pronoun in ("Er", "Sie", "Es")
    ]
    assert item.correct == 0
    assert item.labels == {
        "phenomenon": "pronoun",
        "distance": "2",
        "pronoun": "it:er",
        "intrasegmental": "false",
    }


@pytest.mark.parametrize(
    "before, after, source, target, behind",
    [
        (0, 1, [], [], 0),  # the next line has no translation and is passed over
        (0, 2, ["six"], ["sechs"], 1),
        (1, 9, ["three", "six", "seven"], ["drei", "sechs", "sieben"], 2),
    ],
)
def test_contrapro_with_what_follows(tmp_path, before, after, source, target, behind):
    folder = library(tmp_path)
    for language, text in (("en", "five\nsix\nseven\n"), ("de", "\nsechs\nsieben\n")):
        with open(tmp_path / "documents" / "1999" / f"film.{language}", "a") as file:
            file.write(text)
    (item,) = read_set(write(tmp_path, [CONTRAPRO]), before, folder, after)
    place = len(source) - behind
    assert item.source == [*source[:place], "It  is big .", *source[place:]]
    assert item.candidates[1] == [*target[:place], "Sie ist groß .", *target[place:]]
    assert item.after == behind and item.correct == 0
    lines = write(tmp_path, "\n".join(json_lines([item])), "after.jsonl")
    assert read_set(lines, None, None, 9) == [item]
    (less,) = read_set(lines, 0, None, 1)
    assert (less.source, less.after) == (["It  is big .", *source[place:][:1]], min(behind, 1))
    (none,) = read_set(lines)
    assert (none.source, none.after) == ([*source[:place], "It  is big ."], 0)


def test_far_antecedents_of_contrapro_are_put_together(tmp_path):
    entries = [{**CONTRAPRO, "ante distance": d, "intrasegmental": None} for d in (3, 4, 17)]
    found = read_set(write(tmp_path, entries), context=0)
    assert [item.labels["distance"] for item in found] == ["3", ">3", ">3"]
    assert found[0].labels["intrasegmental"] == "null"


def test_bawden(tmp_path):
    found = read_set(write(tmp_path, {"1": ANAPHORA}, "anaphora.json"))
    assert [item.candidates[0][1] for item in found] == ["Ils sont pleins.", "Elles sont pleines."]
    assert [item.candidates[1][1] for item in found] == ["Elles sont pleines.", "Ils sont pleins."]
    assert found[1].source == ["The buildings.", "They are full."]
    assert found[1].labels == {
        "phenomenon": "anaphora",
        "translation of the context": "semi-correct",
        "pronoun": "f.pl",
        "distance": "1",
    }
    (lexical,) = read_set(write(tmp_path, {"1": LEXICAL}, "lexical-choice.json"))
    assert lexical.candidates == [["A dingue ?", "Dingue ?"], ["A dingue ?", "Fou ?"]]
    assert lexical.labels == {"phenomenon": "repet", "distance": "1"}


def test_everything_converts_to_json_lines_and_back(tmp_path):
    items = read_set(write(tmp_path, [VOITA]))
    items += read_set(write(tmp_path, [CONTRAPRO]), 2, library(tmp_path))
    items += read_set(write(tmp_path, {"1": ANAPHORA, "2": LEXICAL}))
    lines = "\n\n".join(json_lines(items))
    assert read_set(write(tmp_path, lines, "all.jsonl")) == items


LINE = {"source": ["a"], "candidates": [["A"], ["B"]], "correct": 0}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_byte_order_mark_and_other_encodings(tmp_path, name):
    file, text = tmp_path / name, json.dumps(LINE if name == "a.jsonl" else [VOITA])
    file.write_text("\ufeff" + text, encoding="utf-8")
    assert read_set(str(file)) == read_set(write(tmp_path, text, name))
    file.write_bytes(b"\n\xff")
    with pytest.raises(UserError, match=f"{name}: line 2 is not UTF-8; convert the file"):
        read_set(str(file))


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "x.json",
            "[",
            "line 1 is not valid JSON .*; JSON lines must be in a file that ends in .jsonl",
        ),
        ("x.json", [], "x.json is not in a known format"),
        ("x.json", [{"hypothesis": "a"}], "not in a known format: Voita et al."),
        ("x.json", {"1": {"source": "a"}}, "is not in a known format"),
        ("x.json", [{**VOITA, "true_ind": 2}], "item 1: the correct candidate must be .* to 1"),
        ("x.json", [VOITA, {"src": "a _eos b"}], 'item 2 has no "dst"'),
        ("x.json", [{"dst": ["a _eos b"]}], 'x.json: item 1 has no "src"'),
        ("x.json", [{**VOITA, "src": "a _eos _eos b"}], "list of sentences, none of them empty"),
        ("x.json", [{**VOITA, "src": "a b"}], "item 1 has no context: no _eos between"),
        ("x.json", [{**VOITA, "src": "a _eos b _eos c"}], "0 has 2 sentences, the source has 3"),
        ("x.json", [CONTRAPRO], "does not include context; give --context"),
        ("x.json", {"1": {**ANAPHORA, "trg": [{"correct": ["A", "B"]}]}}, 'has no "incorrect"'),
        (
            "x.json",
            {"1": {**ANAPHORA, "trg": [{"incorrect": ["A", "B"]}]}},
            'x.json: example 1.* has no "',
        ),
        ("x.json", {"1": {**ANAPHORA, "trg": [1]}}, "\"trg\" must have dictionaries, not '1'"),
        ("x.json", {"1": {"trg": ANAPHORA["trg"]}}, 'x.json: example 1 has no "src"'),
        ("x.json", {"1": {"trg": 5}}, 'example 1: "trg" must be a list'),
        ("x.json", {"1": {"examples": 5}}, 'example 1: "examples" must be a list'),
        ("x.jsonl", "", "x.jsonl has no items"),
        ("x.jsonl", '\n{"source": ["a"]}', 'line 2 has no "candidates"'),
        ("x.jsonl", "[1]", "line 1 must be a dictionary"),
        ("x.jsonl", "source", "line 1 is not valid JSON"),
        ("x.jsonl", {**LINE, "candidates": [["A"]]}, "two or more candidates"),
        ("x.jsonl", {**LINE, "candidates": [["A"], [" "]]}, "candidate 1 must be a list of sent"),
        ("x.jsonl", {**LINE, "candidates": ["A", "B"]}, "candidate 0 must be a list of sentences"),
        ("x.jsonl", {**LINE, "source": []}, "the source must be a list of sentences"),
        ("x.jsonl", {**LINE, "correct": True}, "from 0 to 1, not True"),
        ("x.jsonl", {**LINE, "after": 1}, "after the current one must be from 0 to 0"),
        ("x.jsonl", {**LINE, "labels": ["x"]}, "labels must be a dictionary"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path, name, content, message):
    with pytest.raises(UserError, match=message):
        read_set(write(tmp_path, content, name))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"document id": "other.de"}, "item 1: document other.de is not in"),
        ({"segment id": 9}, "film.de has no line 9"),
        ({"segment id": 3}, "line 3 of film.de is 'three', not the source of the item"),
        ({"ante distance": None}, '"ante distance" must be a number, not None'),
    ],
)
def test_mistakes_of_contrapro(tmp_path, change, message):
    documents = library(tmp_path)
    with pytest.raises(UserError, match=message):
        read_set(write(tmp_path, [{**CONTRAPRO, **change}]), 1, documents)


def test_a_document_in_another_encoding_is_named(tmp_path):
    documents = library(tmp_path)
    (name,) = Path(documents).glob("*/film.de")
    name.write_bytes(b"a\n\xff\n")
    with pytest.raises(UserError, match="film.de: line 2 is not UTF-8; convert the file"):
        read_set(write(tmp_path, [CONTRAPRO]), 1, documents)


def test_missing_files(tmp_path):
    with pytest.raises(UserError, match="nowhere.json not found"):
        read_set(str(tmp_path / "nowhere.json"))
    with pytest.raises(UserError, match="--documents nowhere not found"):
        read_set(write(tmp_path, [CONTRAPRO]), 1, "nowhere")
    with pytest.raises(UserError, match="--context-after must be 0 or more sentences, not -1"):
        read_set(write(tmp_path, [VOITA]), 1, None, -1)
    with pytest.raises(UserError, match="does not include context; give --context"):
        read_set(write(tmp_path, [CONTRAPRO]), 0, None, 1)
    with pytest.raises(UserError, match="--context must be 0 or more sentences, not -1"):
        read_set(write(tmp_path, [VOITA]), -1)


@pytest.mark.parametrize(
    "name, items, candidates, distances",
    [
        ("deixis_dev", 500, 1000, (180, 154, 166)),
        ("deixis_test", 2500, 5000, (820, 846, 834)),
        ("lex_cohesion_dev", 500, 1124, (198, 170, 132)),
        ("lex_cohesion_test", 1500, 3428, (657, 460, 383)),
        ("ellipsis_infl", 500, 2520, (460, 39, 1)),
        ("ellipsis_vp", 500, 5203, (499, 1, 0)),
    ],
)
def test_published_sets_of_voita(shared_data, name, items, candidates, distances):
    folder = shared_data / "voita-consistency-enru"
    found = read_set(str(folder / f"{name}.json"))
    assert len(found) == items
    assert {item.labels["phenomenon"] for item in found} == {name.split("_dev")[0].split("_t")[0]}
    counted = [sum(item.labels["distance"] == str(d) for item in found) for d in (1, 2, 3)]
    assert tuple(counted) == distances
    # The candidates come in the order of the flat files, so that losses of those fit.
    flat = [(item.source, candidate) for item in found for candidate in item.candidates]
    assert len(flat) == candidates
    for side, number in (("src", 0), ("dst", 1)):
        path = folder / "scoring_data" / f"{name}.{side}"
        lines = path.read_text(encoding="utf-8").split("\n")
        assert [" _eos ".join(pair[number]) for pair in flat] == lines[: len(flat)]


LOPES = {
    **CONTRAPRO,
    "document id": "1999_film",
    "segment id": 3,
    "ante trg segment": "le chat",
    "src segment": "It is big.",
    "ref segment": "Il est grand .",
    "ref pronoun": "Il",
    "errors": [{"contrastive": "Elle est grande."}],
}


def french_library(folder: Path) -> str:
    year = folder / "documents" / "1999"
    year.mkdir(parents=True)
    lines = {
        "en": ["one", "two", "three", "It is big."],
        "fr": ["un", "", "trois", "Il est grand."],
    }
    for language, text in lines.items():
        (year / f"1999_film.{language}").write_text("\n".join(text) + "\n", encoding="utf-8")
    return str(folder / "documents")


def test_lopes(tmp_path):
    path, documents = write(tmp_path, [LOPES]), french_library(tmp_path)
    (item,) = read_set(path, context=2, documents=documents)
    # Lines count from 0, the reference is that of the document, pairs with an empty side are out.
    assert item.source == ["three", "It is big."]
    assert item.candidates == [["trois", "Il est grand."], ["trois", "Elle est grande."]]
    assert item.labels["pronoun"] == "it:il" and item.labels["distance"] == "2"
    first = {**LOPES, "src segment": "one", "ref segment": "un", "segment id": 0}
    (item,) = read_set(write(tmp_path, [first]), context=2, documents=documents)
    assert item.source == ["one"]
    (item,) = read_set(write(tmp_path, [first]), context=2, documents=documents, after=2)
    assert item.source == ["one", "three"] and item.after == 1


@pytest.mark.parametrize(
    "change, message",
    [
        (
            {"segment id": 2},
            "item 1: line 3 of 1999_film.fr is 'three', not the source of the item",
        ),
        ({"segment id": 5}, "1999_film.fr has no line 6"),
        ({"segment id": "3"}, '"segment id" must be a number'),
        ({"document id": "2000_film"}, "document 2000_film.fr is not in"),
    ],
)
def test_mistakes_of_lopes(tmp_path, change, message):
    documents = french_library(tmp_path)
    with pytest.raises(UserError, match=message):
        read_set(write(tmp_path, [{**LOPES, **change}]), context=1, documents=documents)
    with pytest.raises(UserError, match="set.json has tokenized references and no context; give"):
        read_set(write(tmp_path, [LOPES]), context=0)
