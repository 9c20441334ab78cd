"""Dropped pronouns: counts compared with counts by hand."""

import itertools
import json

import numpy as np
import pytest

import fairseq_docmt
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.words.dropped_pronouns import found_in, read_marks


@pytest.mark.parametrize(
    "source, translation, marked, found",
    [
        ("<你>_S要不要去看电影", "Do you want to see a film?", {"you": 1}, {"you": 1}),
        ("<你>_S要不要去看电影", "Want to see a film?", {"you": 1}, {}),
        # One is there anyway: of two forms one is the dropped one, of one none.
        ("我记得笑过 <我>_S一直笑", "I remember. I laughed.", {"I": 1}, {"I": 1}),
        ("我记得笑过 <我>_S一直笑", "I remember laughing.", {"I": 1}, {}),
        ("<我>_S告诉<你>_O", "I'll tell you what you know", {"I": 1, "you": 1}, {"I": 1, "you": 1}),
        ("<它>_S很好<它>_UN", "It's good", {"it": 2}, {"it": 1}),
        ("<我的>_Pa书 <你自己>_R", "MY book, yourself", {"I": 1, "you": 1}, {"I": 1, "you": 1}),
        ("<我自己的>_R话", "my own words", {"I": 1}, {"I": 1}),
        # 我们 is not 我, and 其他 is not 他.
        ("我们知道<我>_S来", "We know I come", {"I": 1}, {"I": 1}),
        ("俺们知道<我>_S来", "We know I come", {"I": 1}, {"I": 1}),
        ("我們知道<我>_S來", "We know I come", {"I": 1}, {"I": 1}),
        ("<他們>_S來了", "they came", {"they": 1}, {"they": 1}),
        ("<我们>_S来了", "the US came", {"we": 1}, {}),
        ("<我们>_S来了", "THE US CAME", {"we": 1}, {"we": 1}),
        ("其他人和<他>_S", "the others and him", {"he": 1}, {"he": 1}),
        ("其它的<它>_S", "the others, it", {"it": 1}, {"it": 1}),
        ("其它们<它们>_S", "the others, they", {"they": 1}, {"they": 1}),
        ("它<它们>_S它們", "it, they, they", {"they": 1}, {"they": 1}),
        ("<他们>_S来了", "tell 'em; he came", {"they": 1}, {"they": 1}),
        ("<她>_S来了", "his", {"she": 1}, {}),
        # Without a suffix it is no mark; the pronoun is not there either, whatever it means.
        ("<她>来了 <他>_S", "she and he", {"he": 1}, {"he": 1}),
        ("<玉台新咏>里<他>_S", "in it he", {"he": 1}, {"he": 1}),
        ("<这>_UN好<他>_S", "this he", {"he": 1}, {"he": 1}),
        ("没有", "I you", {}, {}),
    ],
)
def test_sentences(source, translation, marked, found):
    dropped = read_marks(source)
    assert dropped.marked == marked
    assert found_in(dropped, translation) == found


@pytest.fixture
def files(write):
    source = write("zh", [["<我>_S来了", "没有<它>_O"], ["<你>_S好<它>_S"]])
    reference = write("en", [["I came", "no"], ["you, it is good"]])
    return ["--source", source, "--reference", reference]


def test_command(scoring, write, files):
    a, b = write("a", [["I came", "not it"], ["you are good"]]), write("b", [["a", "b"], ["c"]])
    printed = scoring("dropped-pronouns", f"a={a}", f"b={b}", *files)
    rows = [line.split() for line in printed.splitlines()]
    # Two are marked; a has one of them and no other "it".
    assert ["it", "2", "66.7", "(100.0/50.0)", "0.0", "(-/0.0)", "66.7", "(100.0/50.0)"] in rows
    assert ["it", "1", "0.0", "0.0"] in rows  # the reference has the other one
    assert rows[6][:4] == ["all", "4", "85.7", "(100.0/75.0)"]
    assert ["all", "3", "66.7", "0.0"] in rows
    assert printed.endswith("marks left out: 0\n")
    numbers = json.loads(scoring("dropped-pronouns", f"a={a}", *files, "--format", "json"))
    counts = {"marked": 2, "found": 1, "produced": 1, "in_reference": 1, "found_too": 0}
    shares = {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3)}
    assert numbers["systems"]["a"]["it"] == {**counts, **shares}
    assert numbers["reference"]["it"]["found"] == 1


def test_differences_in_f1(scoring, write):
    documents = [["I came", "no"], ["you, it is good"], ["x"], ["we"]]
    marked = [["<我>_S来了", "没有<它>_O"], ["<你>_S好<它>_S"], ["好"], ["<我们>_S"]]
    files = ["--source", write("zh", marked), "--reference", write("en", documents)]
    texts = {
        "a": [["came", "it"], ["good"], ["he"], ["we"]],
        "b": [["I", "it"], ["you"], ["x"], ["we"]],
    }
    systems = [f"{name}={write(name, text)}" for name, text in texts.items()]
    # restored, marked and produced of each sentence
    a = [(0, 1), (1, 2), (0, 2), (0, 1), (1, 2)]
    b = [(1, 2), (1, 2), (1, 3), (0, 0), (1, 2)]

    def f1(counts):
        found, total = (sum(column) for column in zip(*counts))
        return 2 * found / max(total, 1)

    drawn = [
        f1([b[i] for i in places]) - f1([a[i] for i in places])
        for places in itertools.product(range(5), repeat=5)
    ]
    printed = json.loads(scoring("dropped-pronouns", *systems, *files, "--format", "json"))
    found = printed["differences"]["b"]
    assert found["f1"] == pytest.approx(f1(b) - f1(a))
    low, high = np.percentile(drawn, [2.5, 97.5])
    assert (found["low"], found["high"]) == (
        pytest.approx(low, abs=0.04),
        pytest.approx(high, abs=0.04),
    )
    rows = [line.split() for line in scoring("dropped-pronouns", *systems, *files).splitlines()]
    assert [row[:2] for row in rows if row[-2:-1] == ["to"]] == [["b", f"{100 * found['f1']:+.1f}"]]
    alone = scoring("dropped-pronouns", systems[0], *files, "--format", "json")
    assert json.loads(alone)["differences"] == {}


def test_signature(scoring, write, files):
    a, reference = (f"{name}={files[3]}" for name in "ab")
    for systems, drawn in (([a], ""), ([a, reference], "bs:1000|seed:0|")):
        signature = f"docs:2|sents:3|nrefs:1|{drawn}version:{fairseq_docmt.__version__}"
        assert f"\n{signature}\n" in scoring("dropped-pronouns", *systems, *files)
        found = json.loads(scoring("dropped-pronouns", *systems, *files, "--format", "json"))
        assert found["signature"] == signature and found["notes"] == []


def test_a_single_sentence_has_no_interval(scoring, write):
    files = ["--source", write("zh", [["<我>_S来了"]]), "--reference", write("en", [["I came"]])]
    systems = [f"a={write('a', [['x']])}", f"b={write('b', [['I']])}"]
    found = json.loads(scoring("dropped-pronouns", *systems, *files, "--format", "json"))
    assert found["differences"] == {"b": {"f1": 1.0, "low": None, "high": None}}


def test_pronouns_everywhere_cost_precision(scoring, write, files):
    every = "I you he she it we they"
    a = write("a", [[every, every], [every]])
    found = json.loads(scoring("dropped-pronouns", f"a={a}", *files, "--format", "json"))
    found = found["systems"]["a"]["all"]
    assert found["recall"] == 1 and found["produced"] == 21
    assert found["precision"] == pytest.approx(4 / 21)


def test_marks_left_out_are_counted(scoring, write, files):
    source = write(
        "zh", [["<我>_S来了<他>", "没有<它>_O<这>_UN<这>_UN<书名>"], ["<你>_S好<这>_UN"]]
    )
    files = ["--source", source, *files[2:]]
    printed = scoring("dropped-pronouns", f"a={files[3]}", *files)
    assert printed.endswith("marks left out: 4: <这>_UN (3), <他> (1)\n")
    assert "Differences" not in printed  # of one system


def test_a_second_reference_adds_what_the_first_lacks(scoring, write, files):
    a = write("a", [["I came", "not it"], ["you are good"]])
    second = write("second", [["come", "without it"], ["good"]])
    arguments = [f"a={a}", *files, "--reference", second, "--format", "json"]
    numbers = json.loads(scoring("dropped-pronouns", *arguments))["systems"]["a"]["it"]
    assert (numbers["in_reference"], numbers["found_too"]) == (2, 1)


def test_mistakes(scoring, write, files):
    reference = files[3]
    with pytest.raises(UserError, match="the source has no marks .* give --from-reference"):
        scoring("dropped-pronouns", f"a={reference}", "--source", reference, *files[2:])
    without_english = ["--source", files[1], "--reference", files[1], "--from-reference"]
    english = ["--source", reference, "--reference", reference, "--from-reference"]
    with pytest.raises(UserError, match="Chinese characters in only 0 of . sentences; give Chin"):
        scoring("dropped-pronouns", f"a={reference}", *english)
    with pytest.raises(UserError, match="no reference has an English pronoun that the source"):
        scoring("dropped-pronouns", f"a={reference}", *without_english)


def test_from_reference(scoring, write):
    # The mark does not count; of two forms of "I" one is in the source.
    source = write("zh", [["我来了 <她>_S", "没有"], ["你好"]])
    reference = write("en", [["I came. My she", "it"], ["hello"]])
    second = write("second", [["I came to me", "them"], ["you, it"]])
    a = write("a", [["Mine! I did", "He"], ["you, it"]])
    arguments = ["--source", source, "--reference", reference, "--from-reference"]
    printed = scoring("dropped-pronouns", f"a={a}", *arguments)
    rows = [line.split() for line in printed.splitlines()]
    # I, she and it are dropped; a has I, and "he" and "it" besides.
    assert ["all", "3", "33.3", "(33.3/33.3)", "100.0", "(100.0/100.0)"] in rows
    assert printed.endswith("|nrefs:1|marks:reference|version:" + fairseq_docmt.__version__ + "\n")
    arguments += ["--reference", second, "--format", "json"]
    found = json.loads(scoring("dropped-pronouns", f"a={a}", *arguments))["systems"]["a"]
    assert {person: count["marked"] for person, count in found.items()} == {
        **{"I": 1, "she": 1, "it": 2, "they": 1},
        "all": 5,
    }


def test_real_marks(scoring, shared_data):
    folder = shared_data / "tvsub-zhen"
    arguments = ["--source", folder / "zpdev.zp.zh", "--reference", folder / "zpdev.en"]
    printed = scoring(
        "dropped-pronouns", f"a={folder / 'zpdev.en'}", *arguments, "--format", "json"
    )
    # Marks were made where the English text has a pronoun; the count misses two of them.
    marks = json.loads(printed)["systems"]["a"]["all"]
    assert marks["found"] == marks["marked"] - 2 == 490
    printed = scoring(
        *("dropped-pronouns", f"a={folder / 'zpdev.en'}", *arguments, "--from-reference"),
        *("--format", "json"),
    )
    # Most of the pronouns that count without marks are marked (guide/evaluation.md).
    assert json.loads(printed)["systems"]["a"]["all"]["marked"] == marks["produced"] == 536
