"""Scores of segments by other programs, in the forms in which they are published."""

import json

import pytest

from fairseq_docmt.errors import UserError

TEXTS = [["a b c d", "e f g h", "i j k l"], ["m n o p"]]
ONE, TWO = [90.0, 80.5, 70.0, 60.0], [95.0, 80.5, 75.0, 70.0]
NAMES = [("d1", "s1"), ("d1", "s2"), ("d1", "s3"), ("d2", "s1")]


def records(field="score", **more):
    return [
        {"doc_id": document, "segment": segment, "system": name, field: score, **more}
        for name, scores in (("one", ONE), ("two", TWO))
        for (document, segment), score in zip(NAMES, scores)
    ]


def table(rows, mark):
    return "".join(
        f"{mark.join(map(str, row))}\n" for row in [rows[0], *(r.values() for r in rows)]
    )


def by_document():
    """A list of scores for each document, as in WMT25."""
    return [
        {
            "document_id": d,
            "system": name,
            "metric_scores": {"M": scores[:3] if d == "d1" else scores[3:]},
        }
        for name, scores in (("one", ONE), ("two", TWO))
        for d in ("d2", "d1")
    ]


SEGMENTS = "".join(
    f"{name}\t{score}\n"
    for name, scores in (("two", TWO), ("x", ONE), ("one", ONE))
    for score in scores
)
FORMS = {
    "mt-metrics-eval": (SEGMENTS, ""),
    "JSON lines": ("".join(json.dumps(r) + "\n" for r in records()[::-1]), ""),
    "JSON array with the name of the metric": (json.dumps(records("M")), ""),
    "CSV": (table(records(), ","), ""),
    "TSV": (table(records("other"), "\t"), "#other"),
    "lists of documents": (json.dumps(by_document()), "#metric_scores.M"),
}


@pytest.fixture
def arguments(write):
    """Two systems and a reference with names of documents and segments."""
    segments = [text for document in TEXTS for text in document]
    reference = [
        {"doc_id": document, "segment": segment, "text": text}
        for (document, segment), text in zip(NAMES, segments)
    ]
    systems = [f"{name}={write(name, TEXTS)}" for name in ("one", "two")]
    return ["metrics", *systems, "--reference", write("r", json.dumps(reference))]


@pytest.mark.parametrize("form", FORMS)
def test_every_form(scoring, write, arguments, form):
    text, field = FORMS[form]
    options = [
        "--scores",
        f"M={write('scores', text)}{field}",
        "--tests",
        "sign",
        "--format",
        "json",
    ]
    found = json.loads(scoring(*arguments, *options))["metrics"][-1]
    assert found["label"] == "M"
    assert found["scores"] == {"one": pytest.approx(75.125), "two": pytest.approx(80.125)}
    assert found["segments"] == {"one": ONE, "two": TWO}
    sign = found["tests"]["sign"]["two"]
    assert (sign["better"], sign["worse"]) == (3, 0)
    assert found["signature"] == "docs:2|sents:4|unit:sentence|given|better:higher"


def test_numbers_of_segments_with_a_point(scoring, write):
    """A column of whole numbers with gaps is read by pandas as 1.0, 2.0, ..."""
    names = [(document, segment.lstrip("s")) for document, segment in NAMES]
    texts = [text for document in TEXTS for text in document]
    reference = [{"doc_id": d, "segment": n, "text": t} for (d, n), t in zip(names, texts)]
    rows = "".join(f"{d},{n}.0,{score}\n" for (d, n), score in [*zip(names, ONE)][::-1])
    options = ["--reference", write("r", json.dumps(reference)), "--format", "json"]
    scores = f"M={write('scores', 'doc_id,segment,score' + chr(10) + rows)}"
    found = scoring("metrics", f"one={write('one', TEXTS)}", *options, "--scores", scores)
    assert json.loads(found)["metrics"][-1]["segments"] == {"one": ONE}


def test_numbers_of_each_system_and_direction(scoring, write, arguments):
    files = {
        name: write(f"{name}.txt", "".join(f"{score}\n" for score in scores))
        for name, scores in (("one", ONE), ("two", TWO))
    }
    options = [
        option for name, path in files.items() for option in ("--scores", f"X:{name}={path}")
    ]
    options += ["--lower-is-better", "X", "--tests", "sign"]
    printed = scoring(*arguments, *options, "--by-position", "2")
    assert "better:lower" in printed
    rows = [line.split() for line in printed.splitlines()]
    assert ["1-2", "3", "76.83", "81.83"] in rows and ["3-4", "1", "70.00", "75.00"] in rows
    assert "(+0 -3)" in printed


def test_numbers_of_the_only_system(scoring, write, arguments):
    scores = write("one.txt", "".join(f"{score}\n" for score in ONE))
    options = ["--scores", f"M={scores}", "--format", "json"]
    found = json.loads(scoring(*arguments[:2], *arguments[3:], *options))["metrics"][-1]
    assert found["segments"] == {"one": ONE}


def test_numbers_alone_have_no_place_in_a_reordered_test_set(scoring, write, arguments, tmp_path):
    """The numbers may be in the order of the file or in that of documents and segments."""
    reference = json.loads((tmp_path / "r").read_text())
    write("r", json.dumps([reference[n] for n in (0, 3, 1, 2)]))
    texts = [{**each, "text": "x"} for each in reference]
    command = ["metrics", f"one={write('one', json.dumps(texts))}", *arguments[3:], "--scores"]
    with pytest.raises(UserError, match="one has no segment numbers, and the test set does"):
        scoring(*command, f"M={write('scores', '1 2 3 4'.replace(' ', chr(10)))}")
    records = [{**each, "score": score} for each, score in zip(reference, ONE)]
    found = scoring(*command, f"M={write('s.json', json.dumps(records))}", "--format", "json")
    assert json.loads(found)["metrics"][-1]["segments"] == {"one": ONE}


def test_records_without_a_common_document(scoring, write):
    """Also if another file has scores of the same metric."""
    text, records = [["a b"], ["c d"]], [{"doc_id": "d7", "segment": 1, "score": 5}]
    command = ["metrics", f"x={write('x', text)}", "--reference", write("r", text)]
    command += ["--scores", f"M={write('s.json', json.dumps(records))}"]
    command += ["--scores", f"M={write('numbers', '1' + chr(10) + '2' + chr(10))}"]
    with pytest.raises(UserError, match="s.json has the document d7, but the test set 1: they ha"):
        scoring(*command)


def test_a_metric_that_is_computed_too(scoring, write, arguments):
    options = ["--metrics", "s-bleu", "--scores", f"s-BLEU={write('s', FORMS['CSV'][0])}"]
    with pytest.raises(UserError, match="--scores s-BLEU: this metric is computed here; give"):
        scoring(*arguments, *options)


@pytest.mark.parametrize("form", ["mt-metrics-eval", "CSV"])
def test_a_file_of_all_systems_is_read_for_one(scoring, write, arguments, form):
    """The other system has its own file; its scores in the first file do not count."""
    other = write("other.txt", "".join(f"{score + 1}\n" for score in TWO))
    options = ["--scores", f"M:one={write('scores', FORMS[form][0])}"]
    options += ["--scores", f"M:two={other}", "--format", "json"]
    found = json.loads(scoring(*arguments, *options))["metrics"][-1]
    assert found["segments"] == {"one": ONE, "two": [score + 1 for score in TWO]}


def test_segments_that_are_left_out(scoring, write, arguments, tmp_path):
    """The other program has scored them too."""
    reference = json.loads((tmp_path / "r").read_text())
    reference[1]["is_bad_source"] = True
    write("r", json.dumps(reference))
    options = ["--scores", f"M={write('scores', SEGMENTS)}", "--format", "json"]
    found = json.loads(scoring(*arguments, *options))["metrics"][-1]
    assert found["segments"]["one"] == [90, 70, 60]
    options = ["--scores", f"M:one={write('short', '1' + chr(10) + '2')}"]
    with pytest.raises(UserError, match="has 2 scores, but the test set 4 segments, 3 of them eva"):
        scoring(*arguments, *options)


def test_segments_without_names_are_counted_in_the_files(scoring, write):
    """Also behind a segment that is left out."""
    text = [["a b c", "d e f", "g h i"], ["j k l"]]
    lacks = "H-0\t-1\ta b c\nH-2\t-1\tg h i\nH-4\t-1\tj k l\n"
    names = [(1, 1), (1, 2), (1, 3), (2, 1)]
    scores = [
        {"doc_id": str(d), "segment": n, "system": name, "score": 10 * d + n}
        for name in ("one", "two")
        for d, n in names
    ]
    found = scoring(
        *["metrics", f"one={write('one', text)}", f"two={write('two', lacks)}", "--missing"],
        *["skip", "--reference", write("r", text), "--metrics", "chrf", "--format", "json"],
        *["--scores", f"M={write('scores', json.dumps(scores))}"],
    )
    assert json.loads(found)["metrics"][-1]["segments"]["one"] == [11, 13, 21]


@pytest.mark.parametrize(
    "argument, text, message",
    [
        ("M", "", "--scores M: give METRIC=FILE or METRIC:SYSTEM=FILE"),
        ("M:three=FILE", "1", "--scores M:three=.*: no system is called three"),
        ("M=FILE", "1\n2\n3\n4\n", "does not name systems; give --scores M:SYSTEM="),
        ("M:one=FILE", "1\n2\n3\n4\n", "--scores M: scores of two are missing"),
        ("M:one=FILE", "1\n2\n3\n", "one has 3 scores, but the test set 4 segments"),
        ("M:one=FILE", "1\nx\n3\n4\n", "scores: line 2: 'x' is no score; every segment needs a fi"),
        ("M:one=FILE", "1\n\nx\n3\n4\n", "scores: line 3: 'x' is no score"),
        ("M=FILE", SEGMENTS.replace("90.0", "None"), "'None' is no score"),
        ("M=FILE", SEGMENTS.replace("90.0", "nan"), "'nan' is no score"),
        ("M=FILE", SEGMENTS.replace("90.0", "-1e308"), "'-1e308' is no score"),
        ("M=FILE", SEGMENTS.replace("90.0", "9_0"), "'9_0' is no score"),
        ("M=FILE", json.dumps(records()[1:]), "one lacks a score of d1, s1"),
        (
            "M=FILE",
            json.dumps(records() + records()[:1]),
            "one already has a score of this segment",
        ),
        ("M=FILE", json.dumps(records("x")), 'has no "score"; name the field of the score as M=FI'),
        (
            "M=FILE",
            json.dumps([{"doc_id": "d1", "segment": "s1", "system": "one", "score": None}]),
            'record 1: "score" must be a number, not null',
        ),
        ("M=FILE#y", json.dumps(records("x")), 'has no "y"; name the field of the score as M=FILE'),
        (
            "M=FILE#metric_scores.M",
            json.dumps(by_document()).replace("80.5, ", ""),
            "has 2 scores, ",
        ),
        (
            "M=FILE",
            json.dumps([{"doc_id": "d1", "system": "one", "score": 1}]),
            'has no "segment", ',
        ),
        (
            "M=FILE",
            json.dumps([{"doc_id": "d1", "score": 1}]),
            "names no system; give --scores M:SY",
        ),
        ("M=FILE", " \n", "has no scores"),
    ],
)
def test_mistakes(scoring, write, arguments, argument, text, message):
    argument = argument.replace("FILE", write("scores", text))
    with pytest.raises(UserError, match=message):
        scoring(*arguments, "--scores", argument)


def test_other_mistakes(scoring, write, arguments):
    scores = ["--scores", f"M={write('scores', SEGMENTS)}"]
    with pytest.raises(UserError, match="--lower-is-better N: --scores gives no such metric"):
        scoring(*arguments, *scores, "--lower-is-better", "N")
    with pytest.raises(UserError, match="one already has scores of M|two already has scores of M"):
        scoring(*arguments, *scores, *scores)
    whole = [f"x={write('x', [['a b'], ['c']])}", "--metrics", "d-bleu"]
    with pytest.raises(UserError, match="--scores are of segments, which do not match"):
        scoring("metrics", *whole, *arguments[3:], "--scores", f"M:x={write('n', '1')}")


def test_names_of_metrics(scoring, arguments):
    found = json.loads(scoring(*arguments, "--metrics", "chrF2,chrf++,BLEU", "--format", "json"))
    labels = {metric["label"]: metric["signature"] for metric in found["metrics"]}
    assert [*labels] == ["chrF2", "chrF2++", "s-BLEU"]
    assert "|nw:0|" in labels["chrF2"] and "|nw:2|" in labels["chrF2++"]
