import subprocess
import sys
import time

import check_documents
import pytest
from check_documents import CorpusError, check_files


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
        ("a\n \t\u3000\u00a0\nb\n", "x\n\ny\n", 2, 2),  # blank to fairseq too
        ("\ufeffa\n", "x\n", 1, 1),
    ],
)
def test_what_is_in_order(tmp_path, src, tgt, documents, sentences):
    assert check_files(*write(tmp_path, src, tgt)) == (documents, sentences)


@pytest.mark.parametrize(
    "src, tgt, message",
    [
        ("a\n\nb\n", "x\ny\nz\n", r"c\.src: line 2 is blank, but not in .*c\.tgt"),
        ("a\nb\n", "x\n\n", r"c\.tgt: line 2 is blank, but not in .*c\.src"),
        ("a\nb\n", "x\n", r"c\.src has 2 lines but .*c\.tgt has 1"),
        ("a\n\n", "x\n", r"c\.src has 2 lines but .*c\.tgt has 1"),
        ("\n \n", "\n\n", r"c\.src: no sentence in it"),
        ("", "", r"c\.src: no sentence in it"),
        (b"a\nb\xff\n", "x\ny\n", r"c\.src: line 2 is not valid UTF-8"),
        ("a\n", b"x\xe4", r"c\.tgt: line 1 is not valid UTF-8"),
        ("a\nb\u2028c\n", "x\ny\n", r"c\.src: line 2 holds the line break U\+2028"),
        ("a\n", "x\x0cy\n", r"c\.tgt: line 1 holds the line break U\+000C"),
    ],
)
def test_the_first_fault_is_named(tmp_path, src, tgt, message):
    with pytest.raises(CorpusError, match=message):
        check_files(*write(tmp_path, src, tgt))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorpusError, match="nowhere: cannot be read"):
        check_files(str(tmp_path / "nowhere"), str(tmp_path / "nowhere"))


def test_the_command(tmp_path):
    command = [sys.executable, check_documents.__file__]
    good = subprocess.run(
        [*command, *write(tmp_path, "a\n\nb\n", "x\n\ny\n")], capture_output=True, text=True
    )
    assert (good.returncode, good.stdout) == (0, "2 documents, 2 sentence pairs: in order\n")
    bad = subprocess.run(
        [*command, *write(tmp_path, "a\n", "x\ny\n")], capture_output=True, text=True
    )
    assert bad.returncode == 1
    assert bad.stderr.startswith("error: ") and len(bad.stderr.splitlines()) == 1


def test_a_million_lines_take_seconds(tmp_path):
    text = "one two three four five six seven eight\n" * 9 + "\n"
    paths = write(tmp_path, text * 100_000, text * 100_000)
    start = time.perf_counter()
    assert check_files(*paths).sentences == 900_000
    assert time.perf_counter() - start < 20
