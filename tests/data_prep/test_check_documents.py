"""Checks of the text of a corpus: each error names file and line."""

import os
import re
import subprocess
import sys
import time

import check_documents
import pytest
from check_documents import CorpusError, check_files, read_lines


def write(folder, src, tgt):
    paths = folder / "c.src", folder / "c.tgt"
    for path, data in zip(paths, (src, tgt)):
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    "src, tgt, documents, sentences",
    [
        ("a\nb\n\nc\n", "x\ny\n\nz\n", 2, 3),
        ("a\nb\n\nc", "x\ny\n\nz\n", 2, 3),  # no line end after the last line
        ("\n\na\n\n\nb\n\n", "\n\nx\n\n\ny\n\n", 2, 2),  # blanks at both ends and repeated
        ("a\r\n\r\nb\r\n", "x\n\ny\n", 2, 2),
        ("a\r\rb\r", "x\n\ny\n", 2, 2),
        ("a\n \t\u3000\u00a0\x1f\nb\n", "x\n\ny\n", 2, 2),  # blank to fairseq too
        ("\u200b\n", "x\n", 1, 1),  # not white space to fairseq, and kept by tokenizers
        ("a\x07b\n", "\x00x\n", 1, 1),
    ],
)
def test_valid_corpora(tmp_path, src, tgt, documents, sentences):
    assert check_files(*write(tmp_path, src, tgt)) == (documents, sentences)


@pytest.mark.parametrize(
    "src, tgt, message",
    [
        ("a\n\nb\n", "x\ny\nz\n", "c.src: line 2 is blank, but not in {tgt}; blank lines end"),
        ("a\nb\n", "x\n\n", "c.tgt: line 2 is blank, but not in {src};"),
        ("a\n\nb\n", "x\ny\n", "c.src: line 2 is blank, but not in {tgt} (3 lines against 2);"),
        (
            "a\nb\n",
            "x\n",
            "c.src: line 2 has no counterpart, {tgt} ends before it (2 lines against 1)",
        ),
        (
            "a\n",
            "x\n\n",
            "c.tgt: line 2 has no counterpart, {src} ends before it (1 lines against 2)",
        ),
        ("\n \n", "\n\n", "c.src: the file has no sentences"),
        ("", "", "c.src: the file has no sentences"),
        (b"a\nb\xff\n", "x\ny\n", "c.src: line 2 is not valid UTF-8; convert the file"),
        (b"a\rb\r\r\nc\xff", "x\ny\n", "c.src: line 4 is not valid UTF-8"),
        ("a\n", b"x\xe4", "c.tgt: line 1 is not valid UTF-8"),
        (b"a\xed\xa0\x80\n", "x\n", "c.src: line 1 is not valid UTF-8"),  # half of a surrogate pair
        ("a\n", "x\ny\rz\n", "c.tgt: line 2 ends with a carriage return alone, other lines with"),
        ("\ufeffa\n", "x\n", "c.src: line 1 begins with a byte order mark"),
        ("\ufeff\na\n", "\nx\n", "c.src: line 1 begins with a byte order mark"),
        ("a\n", '<DOC docid="a">\n', "c.tgt: line 1 is mark-up (<DOC), not text; make text of"),
        ("<!-- a -->\n", "x\n", "c.src: line 1 is mark-up (<!--), not text"),
        ("a\n\x01\x02 \nb\n", "x\ny\nz\n", "c.src: line 2 has only control characters"),
        # the first of several faults
        ("a\n\nb\nc\x0cd\n", "x\ny\nz\nz\n", "c.src: line 2 is blank"),
        ("a\nb\x0cb\n\n", "x\ny\nz\n", "c.src: line 2 has the line break U+000C"),
        ("a\nb\nc\x0c\n", "x\ny\u2028\nz\n", "c.tgt: line 2 has the line break U+2028"),
    ],
)
def test_the_first_fault_is_named(tmp_path, src, tgt, message):
    paths = write(tmp_path, src, tgt)
    message = message.format(src=paths[0], tgt=paths[1])
    with pytest.raises(CorpusError, match=re.escape(message)):
        check_files(*paths)


ODD_CHARACTERS = "\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029\u00a0\u3000\u200b\u0001"


@pytest.mark.parametrize("character", ODD_CHARACTERS, ids=lambda c: f"U+{ord(c):04X}")
def test_lines_and_blank_lines_are_read_as_by_fairseq(tmp_path, character):
    """Accepted files have the lines and document ends that fairseq reads; others are refused."""
    from fairseq.file_chunker_utils import Chunker, find_offsets
    from fairseq.tokenizer import tokenize_line

    text = f"a{character}b\n{character}\nc\n"
    path = write(tmp_path, text, "x\n\ny\n")[0]
    begin, end = find_offsets(path, 1)
    with Chunker(path, begin, end) as lines:
        words = [tokenize_line(line) for line in lines]
    ours = read_lines(path)
    assert len(ours) == len(words) == 3
    assert [not line.strip() for line in ours] == [not line for line in words]
    if len(text.splitlines()) > 3:
        with pytest.raises(CorpusError, match=re.escape(f"line break U+{ord(character):04X}")):
            check_files(path, str(tmp_path / "c.tgt"))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"nowhere: cannot be read \(No such file"):
        check_files(str(tmp_path / "nowhere"), str(tmp_path / "nowhere"))
    with pytest.raises(CorpusError, match=r"cannot be read \(Is a directory"):
        check_files(str(tmp_path), str(tmp_path))


def test_pipes_are_refused(tmp_path):
    path = write(tmp_path, "a\n", "x\n")[0]
    reading, writing = os.pipe()
    os.write(writing, b"x\n")
    os.close(writing)
    message = "is a pipe, which can be read only once; write the text to a file"
    with pytest.raises(CorpusError, match=f"/dev/fd/{reading} {message}"):
        check_files(path, f"/dev/fd/{reading}")
    os.close(reading)


def run_command(folder, src, tgt):
    command = [sys.executable, check_documents.__file__, *write(folder, src, tgt)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_command(tmp_path):
    good = run_command(tmp_path, "a\n\nb\n", "x\n\ny\n")
    assert (good.returncode, good.stdout) == (0, "2 documents, 2 sentence pairs: in order\n")
    bad = run_command(tmp_path, "a\n", "x\ny\n")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.startswith("error: ") and len(bad.stderr.splitlines()) == 1


def test_many_lines_take_seconds(tmp_path):
    text = "one two three four five six seven eight\n" * 9 + "\n"
    paths = write(tmp_path, text * 20_000, text * 20_000)
    start = time.perf_counter()
    assert check_files(*paths).sentences == 180_000
    assert time.perf_counter() - start < 10  # measured: 0.15 s


def test_lines_longer_than_any_sentence_are_refused(tmp_path):
    fits, long = "a" * check_documents.LONGEST, "a" * (check_documents.LONGEST + 1)
    assert check_files(*write(tmp_path, f"b\n{fits}\n", "x\ny\n")).sentences == 2
    for number, sides in enumerate(((f"b\n{long}\n", "x\ny\n"), ("b\na\n", f"x\n{long}\n"))):
        path = write(tmp_path, *sides)[number]
        with pytest.raises(CorpusError, match=f"{path}: line 2 has 500,001 characters, and lines"):
            check_files(*write(tmp_path, *sides))
    with pytest.raises(CorpusError, match="src: line 1 has 500,001 characters"):
        check_documents.check_lines([long], ["x"], "src", "tgt")
