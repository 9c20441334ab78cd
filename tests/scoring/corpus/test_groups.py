"""Scores by a field of the test set (``--by``), equal to scores of its parts alone."""

import json
import re

import pytest

from fairseq_docmt.errors import UserError

ROWS = [
    ("a", 1, "news", "one two three four", "one two three five"),
    ("a", 2, "news", "six seven eight nine", "six seven eight nine"),
    ("b", 1, "talks", "a b c d e", "a b x d e f"),
    ("c", 1, "news", "k l m n", "k l m o"),
    ("c", 2, "talks", "p q r s", "p q r s"),
]
FIELDS = ("doc_id", "segment", "domain", "reference", "hypothesis")
RECORDS = [dict(zip(FIELDS, row)) for row in ROWS]
XML = (
    "<dataset>"
    + "".join(
        f'<doc id="{name}" domain="{domain}">'
        + "".join(
            f"<{tag}>"
            + "".join(f'<seg id="{r[1]}">{r[column]}</seg>' for r in ROWS if r[0] == name)
            + f"</{tag}>"
            for tag, column in (("ref", 3), ("hyp", 4))
        )
        + "</doc>"
        for name, domain in (("a", "news"), ("b", "talks"))
    )
    + "</dataset>"
)


def groups(scoring, reference, system, *options):
    arguments = ["metrics", f"x={system}", "--reference", reference, "--by", "domain", *options]
    found = json.loads(scoring(*arguments, "--format", "json"))["metrics"]
    return {metric["label"]: metric["groups"] for metric in found}


def test_groups_of_segments_and_documents(scoring, write):
    path = write("x.json", json.dumps(RECORDS[::-1]))
    found = groups(scoring, path, path)
    for group, count in (("news", 3), ("talks", 2)):
        part = write("part.json", json.dumps([r for r in RECORDS if r["domain"] == group]))
        alone = json.loads(
            scoring("metrics", f"x={part}", "--reference", part, "--format", "json")
        )["metrics"]
        scores = {metric["label"]: metric["scores"]["x"] for metric in alone}
        for label in ("s-BLEU", "chrF2"):
            assert found[label][group] == {"segments": count, "x": pytest.approx(scores[label])}
    # The last document has segments of both.
    counts = {name: each["segments"] for name, each in found["d-BLEU"].items()}
    assert counts == {"several": 1, "talks": 1, "news": 1}
    with pytest.raises(UserError, match="the number of segments is called segments; rename"):
        scoring("metrics", f"segments={path}", "--reference", path, "--by", "domain")
    printed = scoring("metrics", f"x={path}", "--reference", path, "--by", "domain")
    assert "s-BLEU by domain" in printed
    lines = [line.split() for line in printed.splitlines()]
    assert ["domain", "sentences", "x"] in lines
    assert ["news", "3", f"{found['s-BLEU']['news']['x']:.2f}"] in lines


def test_attributes_of_documents(scoring, write):
    path = write("x.xml", XML)
    as_sgm = (
        XML.replace("dataset>", "refset>")
        .replace("doc id", "doc docid")
        .replace("seg id", "SEG ID")
    )
    as_sgm = re.sub("<hyp>.*?</hyp>|</?ref>", "", as_sgm).replace(" domain", " DOMAIN")
    for text in (path, write("x.sgm", as_sgm)):
        found = groups(scoring, text, text)["s-BLEU"]
        assert {name: each["segments"] for name, each in found.items()} == {"news": 2, "talks": 1}


def test_the_field_of_the_source_and_gaps(scoring, write):
    """A segment without the field, and one that is left out."""
    source = [{**r, "source": "s"} for r in RECORDS]
    del source[0]["domain"]
    source[2]["is_bad_source"] = True
    lines = ["one two three five", "six seven eight nine", "", "a b", "", "k l m o", "p q r s"]
    text = write("text", "\n".join(lines) + "\n")
    arguments = ["--source", write("s.json", json.dumps(source))]
    found = groups(scoring, text, text, *arguments)["s-BLEU"]
    assert {name: each["segments"] for name, each in found.items()} == {
        "-": 1,
        "news": 2,
        "talks": 1,
    }
    with pytest.raises(UserError, match="--by domain: neither reference nor source has this field"):
        groups(scoring, text, text)
