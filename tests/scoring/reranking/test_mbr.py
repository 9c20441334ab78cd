"""Choice among candidates: minimum Bayes risk against plain loops, reranking.

Covers scoring/reranking/rerank.py and scoring/reranking/candidates.py.
"""

import argparse
import json

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.reranking import mbr, rerank
from fairseq_docmt.scoring.reranking.candidates import Candidates, read_nbest
from fairseq_docmt.scoring.texts.layout import Layout

ROWS = [
    ["the cat sat", "a cat sat down", "the dog sat down", "the cat sat"],
    ["he saw it there", "it saw him", "he saw it now"],
    ["good night", "good bye", "bye"],
]
NBEST = "".join(
    f"S-{row}\tx\nT-{row}\tx\n" + "".join(f"H-{row}\t-{n}.5\t{t}\n" for n, t in enumerate(texts))
    for row, texts in zip((3, 0, 1), (ROWS[2], ROWS[0], ROWS[1]))
)


@pytest.fixture
def candidates():
    return Candidates(Layout("", DocumentIndex.from_lengths([2, 1])), ROWS, None, None)


@pytest.fixture
def files(write):
    return write("nbest", NBEST), write("source", "eins\nzwei\n\ndrei\n")


def expected(hypothesis, references, metric):
    scores = [metric.sentence_score(hypothesis, [reference]).score for reference in references]
    return sum(scores) / len(scores)


@pytest.mark.parametrize("name, metric", [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
@pytest.mark.parametrize("by", ["sentence", "context", "document"])
def test_choice_is_that_of_plain_loops(candidates, name, metric, by):
    choice = mbr.choose(candidates, mbr.UTILITIES[name](None), by, context=1)
    wanted = []
    for first, end in ((0, 2), (2, 3)):
        rows = ROWS[first:end]
        if by == "document":
            ranked = [" ".join(r[min(n, len(r) - 1)] for r in rows) for n in range(4)][
                : max(map(len, rows))
            ]
            scores = [expected(one, ranked, metric) for one in ranked]
            rank = scores.index(max(scores))
            wanted += [min(rank, len(r) - 1) for r in rows]
            continue
        own = []
        for place, texts in enumerate(rows):
            before = by == "context" and place > 0
            front = rows[0][own[0]] + " " if before else ""
            fronts = [rows[0][n] + " " if before else "" for n in range(len(texts))]
            references = [a + text for a, text in zip(fronts, texts)]
            scores = [expected(front + text, references, metric) for text in texts]
            own.append(scores.index(max(scores)))
        wanted += own
    assert choice == wanted


def test_context_of_any_length_decides():
    """Twelve sentences, where each further sentence of context changes the choice."""
    draw = np.random.RandomState(0)
    rows = [
        [" ".join("".join(draw.choice(list("ab "), draw.randint(4, 9))).split()) for _ in range(4)]
        for _ in range(13)
    ]
    candidates = Candidates(Layout("", DocumentIndex.from_lengths([12, 1])), rows, None, None)
    metric, utility, found = CHRF(), mbr.UTILITIES["chrf"](None), []
    for context in (1, 2, 3, 20):
        own = []
        for place, texts in enumerate(rows):
            before = range(max(place - context, 0), place) if place < 12 else ()
            front = [rows[i][own[i]] for i in before]
            references = [
                " ".join([*(rows[i][rank] for i in before), text])
                for rank, text in enumerate(texts)
            ]
            scores = [expected(" ".join([*front, t]), references, metric) for t in texts]
            own.append(scores.index(max(scores)))
        found.append(own)
        assert mbr.choose(candidates, utility, "context", context) == own
    assert len(set(map(tuple, found))) == 4


def test_the_first_of_equal_candidates_is_chosen():
    """Sums that differ only by rounding are equal."""
    utility = lambda ones, others: [{"a": 0.3, "b": 0.1 + 0.2}[one] for one in ones]  # noqa: E731
    assert mbr.best(["a", "b"], ["a", "b"], utility) == 0


def test_frequent_candidates_count_more():
    utility = mbr.UTILITIES["chrf"](None)
    assert mbr.best(["x y", "a b", "a c"], ["x y", "a b", "a c"], utility) != 0
    assert mbr.best(["x y", "a b", "x y", "x y"], ["x y", "a b", "x y", "x y"], utility) == 0


def test_nbest_lists(files):
    found = read_nbest(*files)
    assert found.texts == ROWS and found.source == ["eins", "zwei", "drei"]
    assert found.scores == [[-(n + 0.5) for n in range(len(texts))] for texts in ROWS]
    assert found.layout.index.starts.tolist() == [0, 2, 3]


def test_nbest_lists_of_several_runs_are_refused(write, files):
    lines = "".join(f"S-{row}\tx\n" + f"H-{row}\t-1\ta\nH-{row}\t-2\tb\n" for row in range(3))
    with pytest.raises(UserError, match="runs has sentence 0 more than once .S-0., as outputs of"):
        read_nbest(write("runs", lines * 2), files[1])


def test_nbest_lists_of_interactive_have_lines_for_blank_lines(write, files):
    texts = [*ROWS[:2], [""], ROWS[2]]
    for empty in ([""], ["", ""]):
        texts[2] = empty
        lines = "".join(f"H-{row}\t-1\t{t}\n" for row, own in enumerate(texts) for t in own)
        assert read_nbest(write("interactive", lines), files[1]).texts == ROWS


def json_lines(**fields):
    """Three segments in two documents, with their texts by field."""
    rows = [dict(zip(fields, texts)) for texts in zip(*fields.values())]
    ids = [("a", 1), ("a", 2), ("b", 1)]
    return "".join(
        json.dumps({"doc_id": name, "segment": number, **row}) + "\n"
        for (name, number), row in zip(ids, rows)
    )


def test_source_and_reference_are_fields_of_records(scoring, write, files, tmp_path):
    """Each is read by its role; records with a source alone are a source."""
    out = tmp_path / "out"
    best = [ROWS[0][2], ROWS[1][1], ROWS[2][2]]
    nbest = write("nbest", NBEST.replace("-3\t", "-2\t"))
    for fields in ({}, {"hyp": [row[0] for row in ROWS]}):
        reference = write("reference", json_lines(ref=best, **fields))
        options = ["--source", write("source", json_lines(src="xyz")), "--out", str(out)]
        scoring("rerank", nbest, *options, "--reference", reference, "--score", "oracle")
        assert out.read_text() == f"{best[0]}\n{best[1]}\n\n{best[2]}\n"
    one, two = (write(name, json_lines(hyp=[f"{name} {n}" for n in range(3)])) for name in "ab")
    scoring("mbr", f"a={one}", f"b={two}", *options)
    assert out.read_text() == "a 0\na 1\n\na 2\n"
    with pytest.raises(UserError, match="is an output of fairseq-generate; give the reference as"):
        scoring("rerank", nbest, *options, "--reference", nbest, "--score", "oracle")


def test_a_source_may_be_a_pipe(scoring, write, tmp_path, pipe):
    flat, out = write("flat", "a\nb\n\nc\n"), str(tmp_path / "out")
    for command in (["mbr"], ["rerank", "--score", "length"]):
        scoring(*command, f"a={flat}", f"b={flat}", "--source", pipe("x\ny\n\nz\n"), "--out", out)
    options = ["--source", pipe("x\ny\n\nz\n"), "--reference", pipe("a\nb\n\nc\n"), "--out", out]
    scoring("rerank", f"a={flat}", f"b={flat}", *options, "--score", "oracle")
    assert (tmp_path / "out").read_text() == "a\nb\n\nc\n"


def test_an_empty_choice_names_the_file_and_is_kept(scoring, write, tmp_path):
    source, text, out = write("source", "1\n2\n"), write("t", "A\n \n"), tmp_path / "out"
    message = f"^{out}: segment 2 of document 1 is empty .*; the translations are in {out}.jsonl,"
    with pytest.raises(UserError, match=message):
        scoring("mbr", f"a={text}", f"b={text}", "--source", source, "--out", str(out))
    kept = [json.loads(line)["text"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert kept == ["A", ""] and not out.exists()


def test_notes_on_how_texts_were_read(scoring, write, tmp_path):
    source, text = write("source", "1\n2\n3\n\n4\n5\n6\n"), write("t", "A\nB\nC\nD\nE\n\n")
    options = ["--source", source, "--to", "jsonl", "--out", str(tmp_path / "out")]
    for command in (["mbr"], ["rerank", "--score", "length"]):
        printed = scoring(*command, f"a={text}", f"b={text}", *options)
        assert "a: 1 blank lines taken for empty translations\nb: 1 blank lines" in printed


def test_candidates_of_a_table_with_several_systems(scoring, write, tmp_path):
    table = write("table", "doc_id\tsource\tone\ttwo\nd\t1\ta\ta b c\nd\t2\tb c\tb\n")
    given = [f"{name}={table}" for name in ("one", "two")]
    options = ["--score", "length", "--source", table, "--out", str(tmp_path / "out")]
    scoring("rerank", *given, *options)
    assert (tmp_path / "out").read_text() == "a b c\nb c\n"


def test_commands(scoring, write, files, tmp_path):
    nbest, source = files
    out = tmp_path / "out"
    options = ["--source", source, "--out", str(out)]
    printed = scoring("mbr", nbest, *options, "--metric", "bleu")
    assert printed.startswith(f"wrote 3 sentences to {out}; ")
    assert out.read_text().count("\n\n") == 1
    one, two = write("one", "a\nb\n\nc\n"), write("two", "a\nd\n\nc\n")
    scoring("mbr", f"one={one}", f"two={two}", *options, "--to", "jsonl", "--by", "context")
    texts = [json.loads(line)["text"] for line in out.read_text().splitlines()]
    assert texts == ["a", "b", "c"]
    # The model's order, the longest, and the one nearest to the reference.
    scoring("rerank", nbest, *options)
    assert out.read_text() == f"{ROWS[0][0]}\n{ROWS[1][0]}\n\n{ROWS[2][0]}\n"
    scoring("rerank", nbest, *options, "--score", "model:0.5", "--score", "length")
    assert out.read_text() == f"{ROWS[0][1]}\n{ROWS[1][0]}\n\n{ROWS[2][0]}\n"
    reference = write("reference", "the dog sat\nit saw him\n\nbye\n")
    oracle = ["--reference", reference, "--score", "oracle"]
    scoring("rerank", nbest, *options, *oracle)
    assert out.read_text() == f"{ROWS[0][2]}\n{ROWS[1][1]}\n\n{ROWS[2][2]}\n"
    listed = tmp_path / "list"
    scoring("rerank", nbest, *options, "--list", str(listed))
    lines = listed.read_text().splitlines()
    assert lines[:2] == ["eins\tthe cat sat", "eins\ta cat sat down"] and len(lines) == 10
    numbers = write("numbers", "".join(f"{n}\n" for n in range(10)))
    scoring("rerank", nbest, *options, "--score", numbers)
    assert out.read_text() == f"{ROWS[0][3]}\n{ROWS[1][2]}\n\n{ROWS[2][2]}\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["mbr", "NBEST"], "candidates need --source or --docids"),
        (["mbr", "a=FLAT", "b=FLAT", "--docids", "IDS"], "of several systems need --source, which"),
        (["mbr", "FLAT", "--source", "SOURCE"], "has no n-best lists; run fairseq-generate with"),
        (["mbr", "SHORT", "--source", "SOURCE"], "lacks 1 of 3 sentences"),
        (["mbr", "NBEST", "--source", "SOURCE", "--context", "0"], "--context must be at least 1"),
        (["mbr", "NBEST", "--source", "SOURCE", "--context", "2"], "--context is for --by context"),
        (["rerank", "NBEST", "--source", "SOURCE", "--beam", "2"], "--beam is for --score lang"),
        (
            ["mbr", "NBEST", "--source", "SOURCE", "--tokenize", "zh"],
            "--tokenize is for --metric b",
        ),
        (["rerank", "NBEST", "--source", "SOURCE", "--score", "oracle"], "needs --reference"),
        (
            ["rerank", "NBEST", "--source", "SOURCE", "--reference", "FLAT", "--score", "length"],
            "--reference is for --score oracle and for the choice among several weights; leave it",
        ),
        (["rerank", "NBEST", "--source", "SOURCE", "--score", "FLAT"], "line 1 is not a finite"),
        (
            ["rerank", "NBEST", "--source", "SOURCE", "--score", "ONE"],
            "has 1 scores, but there are 10",
        ),
        (["rerank", "a=FLAT", "b=FLAT", "--source", "SOURCE"], "--score model needs the H- lines"),
        (["mbr", "a=FLAT", "b=ONE", "--source", "SOURCE"], "align it before with `convert --ref"),
    ],
)
def test_mistakes(scoring, write, files, tmp_path, arguments, message):
    named = {
        "NBEST": files[0],
        "SOURCE": files[1],
        "FLAT": write("flat", "a\nb\n\nc\n"),
        "SHORT": write("short", NBEST[NBEST.index("S-0") :]),
        "ONE": write("one", "1\n"),
        "IDS": write("ids", "p\np\nq\n"),
    }
    for name, path in named.items():
        arguments = [argument.replace(name, path) for argument in arguments]
    out = tmp_path / "out"
    with pytest.raises(UserError, match=message):
        scoring(*arguments, "--out", str(out))
    assert not out.exists()


def test_translations_are_not_printed_among_messages(scoring, files, capsys):
    with pytest.raises(SystemExit):
        scoring("mbr", files[0], "--source", files[1], "--out", "-")
    assert "--out: give a file; standard output has the messages" in capsys.readouterr().err


def test_features():
    assert rerank.parse_feature("a/b:0.5") == ("a/b", (0.5,))
    assert rerank.parse_feature("a:b:0.5,-1") == ("a:b", (0.5, -1.0))
    assert rerank.parse_feature("model") == ("model", (1.0,))
    for text in ("model:", "a:1,", ":1", "a:nan", "a:1,b"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not NAME or NAME:WEIGHT"):
            rerank.parse_feature(text)
    with pytest.raises(argparse.ArgumentTypeError, match="give weights up to 1,000,000,000"):
        rerank.parse_feature("a:1,-1e308")


LISTS = [
    {
        "doc_id": "b",
        "segment": 1,
        "nbest": [{"text": "x", "score": -1}, {"text": "y", "score": -2}],
    },
    {"doc_id": "a", "segment": 2, "nbest": [{"text": "u v", "score": -1}] * 2},
    {
        "doc_id": "a",
        "segment": 1,
        "nbest": [{"text": "a b", "score": -3}, {"text": "c", "score": 0}],
    },
]


def test_lists_in_records(write):
    """Matched by their names, as fairseq-docmt translate --nbest writes them."""
    source = [{"doc_id": d, "segment": n, "source": "s"} for d, n in (("a", 1), ("a", 2), ("b", 1))]
    source = write("source", json.dumps(source))
    found = read_nbest(write("n", json.dumps(LISTS)), source)
    assert found.texts == [["a b", "c"], ["u v", "u v"], ["x", "y"]]
    assert found.scores == [[-3, 0], [-1, -1], [-1, -2]] and found.source == ["s"] * 3
    plain = [
        {"doc_id": r["doc_id"], "segment": r["segment"], "answers": [e["text"] for e in r["nbest"]]}
        for r in LISTS
    ]
    lines = write("m", "".join(json.dumps(record) + "\n" for record in plain))
    found = read_nbest(f"{lines}#answers", source)
    assert found.texts[0] == ["a b", "c"] and found.scores is None
    for path, message in (
        (lines, "line 1 has no list of translations .nbest, candidates, hypotheses, translations"),
        (f"{lines}#no", "line 1 has no list of translations .no.; name its field as FILE#FIELD"),
        (
            write("k", json.dumps([{**LISTS[0], "nbest": [1]}])),
            "a translation of the list is no te",
        ),
        (write("l", json.dumps(LISTS[1:])), "lacks the document b"),
    ):
        with pytest.raises(UserError, match=message):
            read_nbest(path, source)


@pytest.mark.parametrize(
    "kind, counts",
    [("D", "1 D-, 2 H-, 2 P-"), ("H", "2 D-, 1 H-, 2 P-"), ("P", "2 D-, 2 H-, 1 P-")],
)
def test_candidates_that_lack_a_line_are_refused(write, kind, counts):
    """Else they would not take part, or have the scores of others."""
    end = {"H": "\tx", "D": "\tx", "P": " -1"}
    each = [(k, n, c) for n in (0, 1) for c in (1, 2) for k in "HDP"]
    lines = {(k, n, c): f"{k}-{n}\t-{c}{end[k]}\n" for k, n, c in each}
    source = write("source", "a\nb\n")
    assert read_nbest(write("n", "".join(lines.values())), source).texts == [["x", "x"]] * 2
    del lines[kind, 1, 2]
    with pytest.raises(UserError, match=f"n: sentence 1 has {counts}.* lines, but needs"):
        read_nbest(write("n", "".join(lines.values())), source)


def test_lists_without_names_in_the_source_are_noted(scoring, write, tmp_path):
    """As for NAME=FILE: the documents are then matched by their order."""
    options = ["--source", write("s", "1\n\n2\n3\n"), "--out", str(tmp_path / "out")]
    for command in ("mbr", "rerank"):
        said = scoring(command, write("n", json.dumps(LISTS)), *options)
        assert f"n: documents in the order of the file, as {tmp_path}/s has no ids\n" in said
    assert (tmp_path / "out").read_text() == "x\n\nc\nu v\n"
    reference = [{"doc_id": d, "text": d} for d in "ab"]
    reference = write("r", "".join(json.dumps(each) + "\n" for each in reference))
    pair = ["a=" + write("a", "p\n\nq\n"), "b=" + write("b", "b\n\na\n")]
    options[1] = write("s", "1\n\n2\n")
    said = scoring("rerank", *pair, *options, "--reference", reference, "--score", "oracle")
    assert f"{reference}: documents in the order of the file, as {tmp_path}/s has no" in said


def test_records_with_one_translation_have_no_list(scoring, write, tmp_path):
    """As `translate --nbest` writes them: one hypothesis, or one for each line of a document."""
    source = [{"doc_id": d, "segment": n, "source": "s"} for d, n in (("a", 1), ("a", 2))]
    source += [{"doc_id": "c", "source": "s\n\nt"}]
    given = [
        {"doc_id": "a", "segment": 2, "hypothesis": "one"},
        {**LISTS[2], "hypothesis": "a b"},
        {"doc_id": "c", "hypothesis": "l 1\n\nl 2"},
    ]
    nbest, source = write("n", json.dumps(given)), write("source", json.dumps(source))
    found = read_nbest(nbest, source)
    assert found.texts == [["a b", "c"], ["one"], ["l 1"], ["l 2"]]
    assert found.scores == [[-3, 0], [0], [0], [0]]
    options = ["--source", source, "--out", str(tmp_path / "out")]
    for command in ("mbr", "rerank"):
        scoring(command, nbest, *options)
        assert (tmp_path / "out").read_text().split("\n")[1:] == ["one", "", "l 1", "l 2", ""]
    with pytest.raises(UserError, match="record 1 has no list of translations"):
        read_nbest(write("n", json.dumps(given[:1])), source)
    del given[0]["hypothesis"]
    with pytest.raises(UserError, match="record 1 has no list of translations"):
        read_nbest(write("n", json.dumps(given)), source)
    with pytest.raises(UserError, match="n has no n-best lists; make it with --nbest 2 or more"):
        read_nbest(write("n", json.dumps([{**LISTS[2], "nbest": ["a"]}])), source)


def test_scores_must_be_finite(scoring, write, tmp_path):
    """Not a number wins no comparison, and loses none."""
    source = write("s", json.dumps([{"doc_id": "a", "segment": 1, "source": "s"}]))
    options = ["--source", source, "--out", str(tmp_path / "out")]
    for value in ("NaN", "-Infinity", "1" + "0" * 400):
        record = json.dumps({**LISTS[2], "nbest": [{"text": "a", "score": 0}, {"text": "b"}]})
        nbest = write("n", record.replace('"b"', f'"b", "score": {value}'))
        scoring("mbr", nbest, *options)
        shown = float(value.replace("Infinity", "inf"))
        with pytest.raises(
            UserError, match=f"n: line 1: candidate 2 has the --score model {shown}"
        ):
            scoring("rerank", nbest, *options)
    plain = ["--source", write("s", "x\n"), *options[2:]]
    for value, tokens in (("nan", "-1"), ("inf", "-1"), ("-1", "nan"), ("-1", "1e400")):
        nbest = write("n", f"H-0\t-1\ta\nP-0\t-1\nH-0\t{value}\tb\nP-0\t{tokens}\n")
        scoring("rerank", nbest, *plain, "--score", "length")
        with pytest.raises(
            UserError, match="n: H-0: candidate 2 has the --score (model|proposal) "
        ):
            scoring("rerank", nbest, *plain, "--score", "model", "--score", "proposal")
    for tokens in ("-1 word", ""):
        nbest = write("n", f"H-0\t-1\ta\nP-0\t-1\nH-0\t-2\tb\nP-0\t{tokens}\n")
        message = f"n: line 4: P-0 needs the log-probabilities of tokens, not '{tokens}'"
        with pytest.raises(UserError, match=message):
            scoring("rerank", nbest, *plain)


def test_one_system_alone(scoring, write, tmp_path):
    path = write("x", "a\n")
    with pytest.raises(UserError, match="x is alone; give two or more translations as NAME=FILE"):
        scoring("mbr", f"x={path}", "--source", path, "--out", str(tmp_path / "out"))
