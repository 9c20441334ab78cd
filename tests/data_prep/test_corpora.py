"""Corpora with marks of their own, on small files in their form."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from check_documents import CorpusError
from marked_documents import split_documents
from sentence_groups import split_groups
from ted_talks import convert, pair_talks, read_talks

TAGS = """<url>http://www.ted.com/talks/a</url>
<keywords>talks, science</keywords>
<speaker>Someone</speaker>
<talkid>1</talkid>
<title>A: title</title>
<description>TED Talk Subtitles and Transcript: ...</description>
{0}
{1}
<reviewer></reviewer>
<translator href="http://x">Someone</translator>
<url>http://www.ted.com/talks/b</url>
<title>B</title>
{2}
"""
SET = """<?xml version="1.0" encoding="UTF-8"?>
<mteval>
<srcset setid="dev2010" srclang="chinese">
<doc docid="535" genre="lectures">
<url>http://www.ted.com/talks/c</url>
<description>With & without</description>
<seg id="1"> {0} </seg>
<seg id="2"> {1} </seg>
</doc>
<doc docid="531" genre="lectures">
<seg id="1"> {2} </seg>
</doc>
</srcset>
</mteval>
"""


def files(folder, form, source, target):
    paths = folder / "s", folder / "t"
    for path, sentences in zip(paths, (source, target)):
        path.write_text(form.format(*sentences), encoding="utf-8")
    return [str(path) for path in paths]


@pytest.mark.parametrize("form", [TAGS, SET], ids=["train", "set"])
def test_talks(tmp_path, form):
    source, target = files(tmp_path, form, ["a & b", "c\u0085c", "d"], ["A &amp; B", "C", "D"])
    assert read_talks(source) == [["a & b", "c c"], ["d"]]
    assert read_talks(target) == [["A & B", "C"], ["D"]]
    out = [tmp_path / "corpus" / "o.s", tmp_path / "corpus" / "o.t"]
    convert([source, source], [target, target], out)
    assert out[0].read_text() == "a & b\nc c\n\nd\n\na & b\nc c\n\nd\n"
    assert out[1].read_text() == "A & B\nC\n\nD\n\nA & B\nC\n\nD\n"


def test_pairs_with_an_empty_side_are_dropped():
    sides = pair_talks([["a", ""], ["b", "c"]], [["", "x"], ["y", "z"]], ("s", "t"))
    assert sides == (["b", "c"], ["y", "z"])


@pytest.mark.parametrize(
    "source, target, message",
    [
        ([["a"]], [["x"], ["y"]], "s has 1 talks, t has 2"),
        ([["a"], ["b", "c"]], [["x"], ["y"]], "talk 2 has 2 segments in s and 1 in t"),
    ],
)
def test_sides_that_do_not_fit(source, target, message):
    with pytest.raises(CorpusError, match=message):
        pair_talks(source, target, ("s", "t"))


def test_groups():
    source = ["\ufeffa _eos b", "d _eos  _eos e", "c\u2028c"]
    target = ["x _eos y", "x _eos y _eos z", "z"]
    sides, dropped = split_groups(source, target, " _eos ", ["s", "t"])
    assert sides == [["a", "b", "", "c c"], ["x", "y", "", "z"]] and dropped == 1


@pytest.mark.parametrize(
    "source, target, message",
    [
        (["a"], ["x", "y"], "s has 1 lines, t has 2"),
        (["a", "b _eos c"], ["x", "y"], "s: line 2 has 2 sentences, but 1 in t"),
    ],
)
def test_groups_that_do_not_fit(source, target, message):
    with pytest.raises(CorpusError, match=message):
        split_groups(source, target, " _eos ", ["s", "t"])


def test_marked_documents():
    source = ["\ufeff<d>", "a", "", "b\u2028b", "<d>", "<d>", "c", "<d>"]
    target = ["<d>", "x", "y", "z", "<d> ", "<d>", "u", "<d>"]
    sides, dropped = split_documents(source, target, "<d>", ["s", "t"])
    assert sides == [["a", "b b", "", "c"], ["x", "z", "", "u"]] and dropped == 1


@pytest.mark.parametrize(
    "source, target, message",
    [
        (["<d>"], ["<d>", "y"], "s has 1 lines, t has 2"),
        (["<d>", "a"], ["<d>", "<d>"], "t: line 2 is <d>, but not on the other side"),
    ],
)
def test_marks_that_do_not_fit(source, target, message):
    with pytest.raises(CorpusError, match=message):
        split_documents(source, target, "<d>", ["s", "t"])


def test_feng2022_is_prepared(tmp_path):
    """The recipe's script on small files of the same form."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split in ("train", "dev", "test"):
        for side in ("en", "de"):
            text = f"<d>\nThis is {side} .\nAnd this .\n<d>\nThe end in {side} .\n"
            (corpus / f"concatenated_en2de_{split}_{side}.txt").write_text(text)
    script = tiny.ROOT / "examples" / "feng2022_memory" / "prepare.sh"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(script), str(corpus), str(tmp_path / "work")],
        env={**os.environ, "PATH": path, "BPE": "5"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "data" / "bin" / "test.en-de.de.bin").exists()
    text = (tmp_path / "work" / "corpus" / "valid.de").read_text()
    assert text == "This is de .\nAnd this .\n\nThe end in de .\n"


def test_a_fault_is_one_sentence_and_writes_nothing(tmp_path):
    (tmp_path / "s").write_text("a _eos b\n")
    (tmp_path / "t").write_text("x\n")
    out = [str(tmp_path / "o.s"), str(tmp_path / "o.t")]
    script = str(tiny.ROOT / "data_prep" / "sentence_groups.py")
    command = [sys.executable, script, str(tmp_path / "s"), str(tmp_path / "t"), "--out", *out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr and not (tmp_path / "o.s").exists()
