"""Alignment of whole documents with the segments of a reference."""

import json
import random
import re

import pytest
from sacrebleu.metrics import BLEU

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Lines
from fairseq_docmt.scoring.texts import alignment
from fairseq_docmt.scoring.texts.alignment import align_document, report, token_spans
from fairseq_docmt.scoring.texts.layout import layout_of
from fairseq_docmt.scoring.texts.matching import Reading
from fairseq_docmt.scoring.texts.translations import read_translations

pytest.importorskip("mweralign", reason="alignment needs mweralign")

REFERENCE = ["The cat sat on the mat.", "Who saw it?", "Nobody was there today."]


@pytest.mark.parametrize("text", ["A b. C d?", "it's 3.5 %\u00a0x_y", "Grüße, «Ё»  再见!"])
def test_tokens_cover_the_text(text):
    spans = token_spans(text, "de")
    rest = set(range(len(text))) - {i for a, b in spans for i in range(a, b)}
    assert all(text[i].isspace() for i in rest)
    assert [a for a, _ in spans] == sorted({a for a, _ in spans})


def test_tokens_of_languages():
    assert len(token_spans("我们来了", "ja")) == 4
    assert [(0, 2), (2, 4)] == token_spans("我们 来了", "zh")[:1] + [(2, 4)]
    for chinese in ("zh", "zh-TW", "ZH_cn", "zho", "cmn-Hans"):
        assert len(token_spans("我们来了。", chinese)) < 5


@pytest.mark.parametrize(
    "text, parts",
    [
        (" ".join(REFERENCE), REFERENCE),
        # Other words, and space inside, stay as they are.
        ("A  cat sat on a rug. Who did see it? Nobody was THERE today.", None),
        ("The cat sat on the mat. Nobody was there today.", [REFERENCE[0], "", REFERENCE[2]]),
        ("", ["", "", ""]),
    ],
)
def test_documents(text, parts):
    found = align_document(REFERENCE, text, "en")
    assert found == (
        parts or ["A  cat sat on a rug.", "Who did see it?", "Nobody was THERE today."]
    )


def test_text_is_kept_whatever_its_characters():
    text = "▁a x_y \u00a0 <s> 1 2 3 ♥ 再见 … Who \\n saw"
    found = align_document([*REFERENCE, "", "再见"], text, "en")
    assert len(found) == 5 and found[3] == ""
    assert "".join("".join(found).split()) == "".join(text.split())


@pytest.mark.parametrize(
    "reference, text, cuts, parts",
    [
        # before and behind the end of the sentence
        (["A b.", "C d."], "x y z. u v.", [3], ["x y z.", "u v."]),
        (["A b.", "C d."], "x y z. u v.", [5], ["x y z.", "u v."]),
        (["A b.", "C d."], "x. y z! u v.", [3], ["x.", "y z! u v."]),
        (["A b.", "C d."], "x. y z u! v.", [5], ["x. y z u!", "v."]),
        # five tokens away and six
        (["A.", "B."], "a. b c d e f g h i.", [7], ["a.", "b c d e f g h i."]),
        (["A.", "B."], "a. b c d e f g h i.", [8], ["a. b c d e f g", "h i."]),
        # the segment is part of a sentence, or the cut is at an end
        (["A b,", "c d."], "x y z. u v.", [3], ["x y z", ". u v."]),
        (["A b.", "C d."], "x. y. u v.", [4], ["x. y.", "u v."]),
        # points inside numbers, quotes and brackets
        (["A b.", "C d."], "x 3.5 y. u v.", [3], ["x 3.5 y.", "u v."]),
        (['"A b."', "C."], 'x "y z." "u v."', [5], ['x "y z."', '"u v."']),
        (["A b.", '"C."'], 'x y. "u v."', [4], ["x y.", '"u v."']),
        (["(A b.)", "C."], "(x y.) u v.", [4], ["(x y.)", "u v."]),
        (["我来了。", "你走。"], "他走了。你来。", [2], ["他走了。", "你来。"]),
        # no segment becomes empty, and empty ones stay so
        (["A.", "B.", "C."], "x y. z", [1, 2], ["x", "y.", "z"]),
        (["A.", "B.", "C."], "x. y z u", [1, 3], ["x.", "y", "z u"]),
        (["A.", "B.", "C."], "x y. z", [2, 2], ["x y.", "", "z"]),
        (["A.", "B.", "C."], "x y. z", [0, 2], ["", "x y.", "z"]),
        (["A.", "B.", "C."], "x y. z w", [2, 3], ["x y", ".", "z w"]),
        (["A.", "B."], "x y. z", [4], ["x y. z", ""]),
    ],
)
def test_cuts_are_moved_to_the_end_of_a_sentence(monkeypatch, reference, text, cuts, parts):
    """Given what mweralign cuts."""

    def cut(_, hypothesis):
        words = hypothesis.split()
        places = [0, *cuts, len(words)]
        return [" ".join(words[a:b]) for a, b in zip(places, places[1:])]

    monkeypatch.setattr(alignment, "_mweralign", cut)
    language = "ja" if "。" in text else "en"
    assert align_document(reference, text, language) == parts


def test_report():
    reference = ["a b c d e f g h", "a b", "a b c d e f g h"]
    parts = ["a b c d e f g h", "", "a b c d e f g h i j k l m n o p q r s t"]
    found = report(reference, parts, "en")
    # 28 of 18 tokens: 12.4 are expected for 8, of which 20 is no more than twice.
    assert (found.segments, found.empty, found.suspects) == (3, 1, [])
    found = report([*reference, reference[0]], [*parts, "a"], "en")
    assert [(s.segment, s.kind) for s in found.suspects] == [(2, "over"), (3, "under")]
    found = report(["a b c"] * 9 + ["a b"], ["a b c"] * 9 + ["a b c d e f g h"], "en")
    assert [(s.segment, s.kind, s.tokens) for s in found.suspects] == [(9, "over", 8)]
    assert found.suspects[0].expected == 2.4  # 35 / 29 of 2 tokens
    assert found.left_over == round(8 - 2.4)
    for language, tokens in (("ja", 12), ("zh", 9)):
        found = report(["我们来了"] * 9 + ["我们"], ["我们来了"] * 9 + ["我们来了" * 3], language)
        assert [(s.segment, s.tokens) for s in found.suspects] == [(9, tokens)]


def test_commands_align_what_does_not_match(scoring, write):
    reference = write("r", [REFERENCE, ["Good night."]])
    arguments = [
        f"x={write('x', [[' '.join(REFERENCE)], ['Good night.']])}",
        "--reference",
        reference,
    ]
    with pytest.raises(UserError, match="system|x has 3 lines, but .*--align LANGUAGE"):
        scoring("metrics", *arguments)
    found = json.loads(scoring("metrics", *arguments, "--align", "en", "--format", "json"))
    assert {m["label"]: m["scores"]["x"] for m in found["metrics"]}["s-BLEU"] == pytest.approx(100)
    assert found["alignment"]["x"] == {"segments": 4, "empty": 0, "left_over": 0, "suspects": []}
    printed = scoring("metrics", *arguments, "--metrics", "d-bleu,d-chrf")
    assert "x: whole documents" in printed and printed.count("100.00") == 2
    printed = scoring("metrics", *arguments, "--align", "en")
    assert (
        "x: 1 documents aligned by mweralign|language:en|segments:4|empty:0|words left over:0"
        in printed
    )
    with pytest.raises(UserError, match="r has 2 documents"):
        scoring("metrics", f"x={write('y', 'a b')}", *arguments[1:], "--align", "en")


def test_the_note_on_an_alignment_shows_suspected_segments(write):
    reference = [[f"This is sentence {n} ." for n in "abcdefghij"]]
    system = [
        " ".join([*reference[0], *"and here are many more words than there were before".split()])
    ]
    (note,) = read_translations(
        {"x": write("x", [system])}, [write("r", reference)], reading=Reading(align="en")
    ).notes
    assert note.endswith(
        "suspected over-translation:1|suspected under-translation:0 (document, segment: "
        "tokens/expected: 1, 10: 15/6)"
    )


def test_blocks_between_blank_lines_are_whole_documents():
    layout = layout_of(Lines("reference", ["a", "b", "", "c"]))
    assert layout.segments_by_document(Lines("x", ["u", "v", "w", "", "x"])) == [
        ["u", "v", "w"],
        ["x"],
    ]


def test_whole_documents_of_several_systems_keep_their_order(write):
    reference = write("r", [REFERENCE, ["Good night."]])
    systems = {"one": write("one", [["a b"], ["c"]]), "two": reference}
    found = read_translations(systems, [reference], reading=Reading(whole_documents=True))
    assert found.names == ["one", "two"]
    assert found.documents("one") == ["a b", "c"]
    assert found.documents("two") == [" ".join(REFERENCE), "Good night."]


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mweralign", None)
    with pytest.raises(UserError, match="--align needs the package mweralign; install it with"):
        align_document(REFERENCE, "The cat", "en")


def _noisy(sentence, generator, words):
    """Replace, drop or add words, 30 in 100; punctuation stays."""
    found = []
    for token in alignment._TOKEN.findall(sentence):
        chance = generator.random() if token[0].isalnum() else 1
        found += [] if 0.15 <= chance < 0.225 else [token if chance >= 0.15 else words()]
        found += [words()] if 0.225 <= chance < 0.3 else []
    return " ".join(found) or sentence


@pytest.mark.parametrize("corpus", ["ende-docs/test.de", "tvsub-zhen/valid.en"])
def test_real_documents_get_their_line_breaks_back(shared_data, corpus):
    text = (shared_data / corpus).read_text(encoding="utf-8").strip("\n")
    documents = [document.split("\n") for document in text.split("\n\n")][:6]
    vocabulary = re.findall(r"\w+", text)
    generator = random.Random(1)
    same = total = 0
    before, after, references = [], [], []
    for document in documents:
        hypothesis = [
            _noisy(line, generator, lambda: generator.choice(vocabulary)) for line in document
        ]
        found = align_document(document, " ".join(hypothesis), corpus[-2:])
        ends = [_ends(lines) for lines in (hypothesis, found)]
        same, total = same + len(ends[0] & ends[1]), total + len(ends[0])
        before, after, references = before + hypothesis, after + found, references + document
    assert same / total >= 0.98
    scores = [BLEU().corpus_score(lines, [references]).score for lines in (before, after)]
    assert scores[0] < 60 and scores[1] == pytest.approx(scores[0], abs=0.2)


def _ends(lines):
    ends, at = set(), 0
    for line in lines:
        at += len("".join(line.split()))
        ends.add(at)
    return ends
