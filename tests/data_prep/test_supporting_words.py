"""Text with marked supporting words: without its marks, and as links between subwords."""

import json
import re
from pathlib import Path

import prepare
import pytest
import supporting_words
from supporting_words import Marked, tokens_of, without_marks

EN = """She bought <hon>the table<hoff> & a "chair".
<p>It</p> was sp<p>it</p>eful, was <p2>it</p2>? <hon2>Yes<hoff2>.

<p>They</p> left<hon>.
"""
FR = """Elle a acheté <hon>la table<hoff> & une « chaise ».
<p>Elle</p> était rancunière, n'est-ce <p2>pas</p2> ? Oui.

<p>Ils</p> sont partis. <hon>les hommes<hoff>
"""


@pytest.mark.parametrize(
    "text, plain, words",
    [
        ("no marks", "no marks", []),
        ("<p>it</p>", "it", [("p", "", 0, 2)]),
        ("a <hon>b c<hoff>, <p3>it</p3>", "a b c, it", [("hon", "", 2, 5), ("p", "3", 7, 9)]),
        ("<hon>the <p>it</p> x<hoff>", "the it x", [("p", "", 4, 6), ("hon", "", 0, 8)]),
        # without counterpart, or of another number
        ("a <hon>b", "a b", []),
        ("b<hoff> c</p> <p1>d</p2>", "b c d", []),
        ("<hon>a <hon>b<hoff>", "a b", [("hon", "", 2, 3)]),
        # a part of a word; an apostrophe ends words, and scripts without case have none
        ("sp<p>it</p>e", "spite", []),
        ("t<p>elle</p>", "telle", []),
        ("<p>it</p>s", "its", []),
        ("l'<hon>eau<hoff>-là <p>it</p>'s", "l'eau-là it's", [("hon", "", 2, 5), ("p", "", 9, 11)]),
        ("我<p>它</p>是", "我它是", [("p", "", 1, 2)]),
        ("4<p>it</p>5", "4it5", [("p", "", 1, 3)]),
        # marks in marks, as SCAT has some
        ("<ho <hon>n> The boy<hoff> is", " The boy is", [("hon", "", 0, 8)]),
        ("<hon>a<<hoff> hoff> b", "a b", [("hon", "", 0, 1)]),
    ],
)
def test_marks_and_their_words(text, plain, words):
    found, marked = without_marks(text)
    assert found == plain
    assert marked == [Marked(*word) for word in words]


@pytest.mark.parametrize(
    "text, word, subwords, want",
    [
        ("it is", (0, 2), "it is", [0]),
        ("It is", (3, 5), "it is", [1]),  # truecased
        ("the gadgets", (4, 11), "the g@@ ad@@ gets", [1, 2, 3]),
        ("the gadgets", (4, 11), "▁the ▁g ad gets", [1, 2, 3]),
        ("the gadgets", (4, 11), "▁ the ▁ gadgets", [3]),
        ("l'eau", (2, 5), "l&apos; eau", [1]),
        ("l'eau", (2, 5), "l @-@ e@@ a@@ u", [2, 3, 4]),
        ('"it" & it', (7, 9), "&quot; it &quot; &amp; it", [4]),
        ('"it" & it', (1, 3), "&quo@@ t; it &quot; &amp; it", [2]),
        ("d'a'b", (2, 3), "d&apos; a &apos; b", [1]),  # no letter of an escape is the word
        ("Cat d'a'b", (6, 7), "Cat d&@@ a@@ pos; a &apos; b", [4]),
        ("d' a", (0, 2), "d&a@@ pos; a", [0]),
        ("d&apos; a &apos; b", (0, 7), "d@@ &apos; a &apos; b", [0, 1]),  # escaped on both sides
        ("a 它 b", (2, 3), "a b", []),
        ("İ it", (2, 4), "İ it", [1]),  # the lower case of İ has two letters
        ("a it b", (2, 4), "a <unk> b", []),
    ],
)
def test_subwords_of_a_word(text, word, subwords, want):
    assert tokens_of(text, [Marked("p", "", *word)], subwords.split()) == [want]


@pytest.fixture
def marked(tmp_path):
    """Paths of marked text."""
    for language, text in (("en", EN), ("fr", FR)):
        (tmp_path / f"marked.{language}").write_text(text, encoding="utf-8")
    return [str(tmp_path / f"marked.{language}") for language in ("en", "fr")]


def strip(marked, folder, *more):
    out = [str(folder / f"train.{language}") for language in ("en", "fr")]
    supporting_words.main(["strip", *marked, *more, "--out", *out])
    return out


def link(marked, subwords, folder, *more):
    out = folder / "train.en-fr.supporting.jsonl"
    supporting_words.main(["link", *marked, *more, "--subwords", *subwords, "--out", str(out)])
    return [json.loads(line) for line in out.read_text().splitlines()]


def words(record, subwords):
    """A record with words in place of their numbers."""
    lines = {
        side: [line.split() for line in open(path, encoding="utf-8")]
        for side, path in zip(("source", "target"), subwords)
    }
    found = {}
    for name, places in record.items():
        side = name.rpartition("_")[2]
        if name in lines:
            found[name] = [lines[side][record["line"]][place] for place in places]
        elif name != "line":
            found[name] = [lines[side][int(n)][p] for n, tokens in places.items() for p in tokens]
    return found


def test_from_marked_text_to_links(marked, tmp_path, monkeypatch, capsys):
    """Through the preparation of text: tokenized, truecased, cut into subwords."""
    plain = strip(marked, tmp_path)
    with open(plain[0], encoding="utf-8") as file:
        assert file.read() == (
            'She bought the table & a "chair".\nIt was spiteful, was it? Yes.\n\nThey left.\n'
        )
    monkeypatch.setattr(prepare, "_run", lambda command, folder: None)
    corpus, valid = str(tmp_path / "train"), str(tmp_path / "valid")
    for side in ("en", "fr"):
        Path(f"{valid}.{side}").write_text("She left.\n")
    prepare.main(
        ["--source-lang", "en", "--target-lang", "fr", "--workers", "1", "--truecase"]
        + ["--train", corpus, "--valid", valid]
        + ["--destdir", str(tmp_path / "out"), "--bpe-operations", "20"]
    )
    subwords = [str(tmp_path / "out/text/subwords" / f"train.{side}") for side in ("en", "fr")]
    capsys.readouterr()
    records = link(marked, subwords, tmp_path)
    assert capsys.readouterr().out.startswith(
        "lines with ambiguous words: 2; marked words that were found: 10, not found: 0"
    )
    assert [record["line"] for record in records] == [1, 1, 3]
    shown = [
        {
            name: " ".join(tokens).replace("@@ ", "").lower()
            for name, tokens in words(r, subwords).items()
        }
        for r in records
    ]
    assert shown == [
        {
            "source": "it",
            "target": "elle",
            "supporting_source": "the table",
            "supporting_target": "la table",
        },
        {"source": "it", "target": "pas", "supporting_source": "yes"},
        {"source": "they", "target": "ils", "supporting_target": "les hommes"},
    ]


def test_contexts_in_files_of_their_own(tmp_path):
    """As in SCAT: a document is a line of context and its sentence; the context may be empty."""
    texts = {
        "train.en": "<p>It</p> is.\nIs <p>it</p>?\n",
        "train.fr": "<p>Elle</p> est.\nEst-<p>il</p> ?\n",
        "context.en": "The house.\n\n",
        "context.fr": "La <hon>maison<hoff>.\n\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in texts]
    (tmp_path / "plain").mkdir()
    plain = strip(paths[:2], tmp_path / "plain", "--context", *paths[2:])
    assert open(plain[0]).read() == "The house.\nIt is.\n\nIs it?\n"
    records = link(paths[:2], plain, tmp_path, "--context", *paths[2:])
    assert records == [
        {"line": 1, "source": [0], "target": [0], "supporting_target": {"0": [1]}},
    ]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda text: text.replace("\n\n", "\n"), "line 3 should end a document"),
        (lambda text: "\n" + text, "the document at line 1 has other lines"),
        (lambda text: text + "\nOne more.\n", "continues after line 4"),
        (lambda text: text.rsplit("\n", 2)[0] + "\n", "the document at line 4 has other lines"),
        (lambda text: "sat Erich\nloin\n\nthey\n", "9 of 10 marked words were not found"),
        (lambda text: "x\nx\n\nx\n", "10 of 10 marked words were not found"),
        (lambda text: re.sub("They|Ils", "x", text), "2 of 10 marked words were not found"),
    ],
)
def test_other_text_than_the_prepared_one_is_refused(marked, tmp_path, change, message):
    subwords = strip(marked, tmp_path)
    for path in subwords:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(change(text))
    with pytest.raises(SystemExit, match=message):
        link(marked, subwords, tmp_path)
    assert not (tmp_path / "train.en-fr.supporting.jsonl").exists()


def test_a_tenth_of_the_words_may_be_missing(marked, tmp_path, capsys):
    subwords = strip(marked, tmp_path)
    with open(subwords[0], encoding="utf-8") as file:
        text = file.read()
    with open(subwords[0], "w", encoding="utf-8") as file:
        file.write(text.replace("They", "x"))
    capsys.readouterr()
    assert [record["line"] for record in link(marked, subwords, tmp_path)] == [1, 1, 3]
    assert "found: 9, not found: 1" in capsys.readouterr().out


def test_marked_text_is_not_overwritten(marked, tmp_path):
    before = open(marked[0]).read()
    for command in (
        ["strip", *marked, "--out", marked[0], "x"],
        ["link", *marked, "--subwords", *marked, "--out", marked[0]],
    ):
        with pytest.raises(SystemExit, match="is read; give another file to write"):
            supporting_words.main(command)
    assert open(marked[0]).read() == before
