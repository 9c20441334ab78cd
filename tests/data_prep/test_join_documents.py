"""Reassembly of documents from numbered lines."""

import join_documents
import pytest
from sacrebleu.metrics import BLEU

OUTPUT = "S-4\tx\nT-4\tr4\nH-4\t-0.1\td\nD-4\t-0.1\tD\nH-0\t-1\ta b\nD-0\t-1\tA B\nT-0\tr0\n"
OUTPUT += "H-1\t-2\tc\nD-1\t-2\tC\nT-1\tr1\n"


def test_gaps_end_documents(tmp_path, monkeypatch):
    output = tmp_path / "generate-test.txt"
    output.write_text(OUTPUT)
    monkeypatch.setattr("sys.argv", ["join_documents.py", str(output), str(tmp_path)])
    join_documents.main()
    assert (tmp_path / "hypothesis.sentences").read_text() == "a b\nc\nd\n"
    assert (tmp_path / "hypothesis.documents").read_text() == "a b c\nd\n"
    assert (tmp_path / "hypothesis.detokenized").read_text() == "A b\nC\nD\n"
    assert (tmp_path / "reference.documents").read_text() == "r0 r1\nr4\n"


def test_of_several_hypotheses_the_first_counts():
    output = "T-0\tr\nH-0\t-0.1\tbest\nH-0\t-0.9\tworst\nH-1\t-1\tonly\n"
    assert join_documents.read_texts(output, "H") == {0: "best", 1: "only"}


def test_entities_become_characters_before_they_are_scored(tmp_path):
    output = "T-0\tdon &apos;t &amp; &quot;\nH-0\t-0.1\tdo n&apos;t &#91; &#124;\n"
    join_documents.write_files(output, tmp_path)
    assert (tmp_path / "reference.sentences").read_text() == "don 't & \"\n"
    assert (tmp_path / "hypothesis.documents").read_text() == "do n't [ |\n"


def test_unknown_words_of_both_sides_do_not_match(tmp_path):
    join_documents.write_files("T-0\ta <<unk>> b\nH-0\t-0.1\ta <unk> b\n", tmp_path)
    sides = [
        [(tmp_path / f"{side}.{unit}").read_text() for side in ("hypothesis", "reference")]
        for unit in ("sentences", "documents")
    ]
    for hypothesis, reference in sides:
        found = BLEU(max_ngram_order=1).sentence_score(hypothesis, [reference])
        assert (found.counts, found.totals) == ([2], [3])


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["none", "."], "error: none cannot be read \\(No such file or directory\\)"),
        (["log", "."], "error: log has no H- lines; give an output of fairseq-generate"),
        (
            ["cut", "."],
            "error: cut: line 2: H-0 needs a score and a text, each after a tab",
        ),
        (["output", "none"], "error: none/.* cannot be written \\(No such file or directory\\)"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").write_text("nothing\n")
    (tmp_path / "output").write_text(OUTPUT)
    (tmp_path / "cut").write_text("T-0\tr\nH-0\t-1\n")
    monkeypatch.setattr("sys.argv", ["join_documents.py", *arguments])
    with pytest.raises(SystemExit, match=message):
        join_documents.main()
    assert {path.name for path in tmp_path.iterdir()} == {"cut", "log", "output"}
