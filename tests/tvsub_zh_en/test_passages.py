"""Passages in which context decided, chosen from outputs and gains of single sentences."""

import json

import passages
import pytest

REFERENCES = [
    ["a cat sat here", "she saw it", "no"],
    ["he ran home", "good night then", "yes"],
    ["so"],
]
#: bits that the own context is worth more than another document's: memory-both and han-both
GAINS = {"memory-both": [0, 3, 9, 5, 6, 1, 8], "han-both": [0, 1, 0, 0, 7, 2, 0]}
#: row -> translation that differs from "x"
OUTPUTS = {
    "base": {4: "good night"},
    "control": {1: "it", 2: "no", 3: "he ran"},
    "memory-both": {0: "a cat sat here", 1: "she saw it", 2: "no", 3: "he ran home"},
    "han-both": {4: "good"},
}
DECODINGS = {"base": "window", "control": "window", "memory-both": "stream", "han-both": "stream"}


@pytest.fixture
def work(tmp_path):
    raw = tmp_path / "data" / "text" / "raw"
    raw.mkdir(parents=True)
    documents = ["\n".join(sentences) for sentences in REFERENCES]
    (raw / "test.en").write_text("\n\n".join(documents) + "\n")
    (raw / "test.zh").write_text("\n\n".join(text.upper() for text in documents) + "\n")
    lines = [0, 1, 2, 4, 5, 6, 8]
    for name, decoding in DECODINGS.items():
        folder = tmp_path / name / decoding / "test-4"
        folder.mkdir(parents=True)
        outputs = [OUTPUTS[name].get(row, "x") for row in range(7)]
        text = "".join(f"D-{n}\t-0.5\t{output}\n" for n, output in zip(lines, outputs))
        (folder / "generate-test.txt").write_text(text)
    for name, gains in GAINS.items():
        found = [
            {"words": ["w"], "without": [-9, -9], "3": [x - 20, -1], "other-document:3": [-20, -5]}
            for x in gains
        ]
        (tmp_path / name / "scores").mkdir()
        (tmp_path / name / "scores" / "usage.json").write_text(json.dumps({"sentences": found}))
    return tmp_path


def test_where_context_decided(work):
    """Context is worth nothing in row 0, the control has row 2 and the base most of row 4.

    Nobody has row 6.
    """
    passages.main(work, ["memory-both", "han-both"])
    first, second = json.loads((work / "passages.json").read_text())
    assert (first["place"], second["place"]) == ("1, 2", "2, 1")
    assert first["before"] == ["A CAT SAT HERE"] and first["source"] == "SHE SAW IT"
    assert second["before"] == []
    assert first["reference"] == "she saw it"
    outputs = {"base": "x", "control": "it", "memory-both": "she saw it", "han-both": "x"}
    assert first["outputs"] == outputs
    assert first["gains"] == {"memory-both": 3, "han-both": 1}


def test_two_sentences_before_at_most(work):
    gains = [{"3": [x, 0], "other-document:3": [0, 0]} for x in (0, 0, 0, 0, 0, 8, 0)]
    (work / "han-both" / "scores" / "usage.json").write_text(json.dumps({"sentences": gains}))
    output = work / "han-both" / "stream" / "test-4" / "generate-test.txt"
    output.write_text(output.read_text().replace("D-6\t-0.5\tx", "D-6\t-0.5\tyes"))
    passages.main(work, ["han-both"])
    (found,) = json.loads((work / "passages.json").read_text())
    assert found["place"] == "2, 3" and found["before"] == ["HE RAN HOME", "GOOD NIGHT THEN"]
