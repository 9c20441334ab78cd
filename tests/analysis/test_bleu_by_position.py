"""BLEU by position, from outputs of the stock command."""

import json

import pytest
import sacrebleu
import tiny

from fairseq_docmt.analysis import bleu_by_position as analysis
from fairseq_docmt.errors import UserError


def test_positions_restart_after_a_gap():
    assert analysis.places([5, 0, 1, 2, 4, 8]) == {0: 0, 1: 1, 2: 2, 4: 0, 5: 1, 8: 0}


def test_command(binarised, memory_stream_checkpoint, tmp_path):
    output = tiny.generate(
        binarised, memory_stream_checkpoint, "--task", "sentence_stream_translation"
    )
    # Half of the words right, so that there is something to score.
    wanted, found = tiny.lines_of(output, "T"), {}
    for row, text in wanted.items():
        found[row] = text if row % 2 else "v1 v1 v1"
    lines = [
        f"T-{r}\t{t}\nH-{r}\t-1.5\t{found[r]}\nD-{r}\t-1.5\t{found[r]}\n" for r, t in wanted.items()
    ]
    (tmp_path / "half").write_text("".join(lines))
    (tmp_path / "all").write_text(
        "".join(f"T-{r}\t{t}\nD-{r}\t-0\t{t}\n" for r, t in wanted.items())
    )
    arguments = [f"half={tmp_path / 'half'}", f"all={tmp_path / 'all'}", "--out", str(tmp_path)]
    printed = tiny.run_main(analysis.main, *arguments, "--range", "3")
    results = json.loads((tmp_path / "bleu_by_position.json").read_text())
    rows = tiny.rows_of(tiny.documents((1, 5, 2, 7)))
    starts = [0, 2, 8, 11]
    first_three = [r for r in rows if r - max(s for s in starts if s <= r) < 3]
    bleu = sacrebleu.corpus_bleu(
        [found[r] for r in first_three], [[wanted[r] for r in first_three]]
    )
    assert results["scores"]["half"]["1-3"] == pytest.approx(bleu.score)
    assert results["scores"]["all"] == pytest.approx({"1-3": 100, "4-6": 100, "7-9": 100})
    assert results["signature"] in printed and "tok:13a" in printed
    assert (results["sentences"], results["documents"]) == (len(rows), 4)
    assert results["segments"] == {"1-3": len(first_three), "4-6": 5, "7-9": 1}
    assert f"{len(rows)} sentences in 4 documents\n" in printed
    assert (tmp_path / "bleu_by_position.png").stat().st_size > 0


def test_unknown_words_match_none(tmp_path):
    """Also not those of the reference, which fairseq-generate writes in another way."""
    found = {}
    for name, unknown in (("known", "q"), ("unknown", "<<unk>>")):
        lines = [f"T-{n}\t{unknown} w{n} x y z v\nH-{n}\t-1\t<unk> w{n} x y z v\n" for n in (0, 1)]
        (tmp_path / name).write_text("".join(lines))
        tiny.run_main(analysis.main, f"a={tmp_path / name}", "--out", str(tmp_path / "out"))
        results = json.loads((tmp_path / "out" / "bleu_by_position.json").read_text())
        found[name] = results["scores"]["a"]["1-10"]
    wanted = sacrebleu.corpus_bleu(
        [f"p w{n} x y z v" for n in (0, 1)], [[f"q w{n} x y z v" for n in (0, 1)]]
    ).score
    assert found == pytest.approx({"known": wanted, "unknown": wanted})


def test_mistakes(tmp_path, capsys, monkeypatch):
    with pytest.raises(UserError, match="nowhere"):
        analysis.read_output(str(tmp_path / "nowhere"))
    (tmp_path / "text").write_text("no output\n")
    with pytest.raises(UserError, match="is not an output of fairseq-generate with references"):
        analysis.read_output(str(tmp_path / "text"))
    (tmp_path / "cut").write_text("T-0\tx\nH-0\t-1\tx\nT-7\tx\n")
    with pytest.raises(UserError, match="only a translation or only a reference of sentence 7, as"):
        analysis.read_output(str(tmp_path / "cut"))
    with pytest.raises(UserError, match="give systems as NAME=FILE"):
        tiny.run_main(analysis.main, "file", "--out", str(tmp_path))
    for name, text in (("a", "x"), ("b", "y")):
        (tmp_path / name).write_text(f"T-0\t{text}\nH-0\t-1\tx\n")
    arguments = [f"a={tmp_path / 'a'}", f"b={tmp_path / 'b'}", "--out", str(tmp_path)]
    with pytest.raises(UserError, match="b and a have different references"):
        tiny.run_main(analysis.main, *arguments)
    with pytest.raises(UserError, match="--out .*/a: .*/a is a file; give a folder"):
        tiny.run_main(analysis.main, arguments[0], "--out", str(tmp_path / "a"))
    with pytest.raises(UserError, match="position.json cannot be written: File name too long"):
        tiny.run_main(analysis.main, arguments[0], "--out", str(tmp_path / ("x" * 300)))
    with pytest.raises(SystemExit):
        tiny.run_main(analysis.main, arguments[0], *arguments[2:], "--tokenize", "none at all")
    assert "argument --tokenize: invalid choice: 'none at all'" in capsys.readouterr().err

    def tokenizer(name):
        raise RuntimeError("Install it.")

    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", tokenizer)
    with pytest.raises(UserError, match="tokenizer ko-mecab lacks a package.*: Install it"):
        tiny.run_main(analysis.main, arguments[0], *arguments[2:], "--tokenize", "ko-mecab")
