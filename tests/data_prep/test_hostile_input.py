"""Corpora that are not what they seem, in every script that reads one; what is not written."""

import gzip
import os
import runpy
import sys
from pathlib import Path

import opus_documents
import pytest
import supporting_words
import tab_separated
import tagged_documents
import tiny
from check_documents import CorpusError, check_files
from documents import lines_of, run_reader
from stages import write_whole


def write(folder, **texts):
    """Write files, and return their paths."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [str(folder / name) for name in texts]


def one_set(kind, documents):
    text = "".join(
        f'<doc docid="{name}">' + "".join(f"<seg id={n}>t{n}</seg>\n" for n in numbers) + "</doc>\n"
        for name, numbers in documents
    )
    return f"<{kind} setid=x>\n{text}</{kind}>\n"


@pytest.mark.parametrize(
    "documents, message",
    [
        ([("a", [1, 2]), ("b", [1])], None),
        ([("b", [1]), ("a", [1, 2])], "document number 1 has 2 segments"),
        ([("a", [1, 2]), ("c", [1])], "document b of .*/s is c in .*/t; give the two sides of the"),
        ([("a", [2, 1]), ("b", [1])], "document a: segment 1 of .*/s is 2 in .*/t; give the two"),
    ],
)
def test_sides_of_a_set_have_the_same_ids(tmp_path, documents, message):
    given = one_set("srcset", [("a", [1, 2]), ("b", [1])])
    source, target = write(tmp_path, s=given, t=one_set("refset", documents))
    read = lambda: list(tagged_documents.read_documents([source], [target]))  # noqa: E731
    if message is None:
        assert read() == [[("t1", "t1"), ("t2", "t2")], [("t1", "t1")]]
        return
    with pytest.raises(CorpusError, match=message):
        read()


def test_documents_of_opus_are_in_one_piece(tmp_path):
    names = "de/1.xml\ten/1.xml\nde/2.xml\ten/2.xml\nde/1.xml\ten/1.xml\n"
    paths = write(tmp_path, s="a\nb\nc\n", t="x\ny\nz\n", ids=names)
    with pytest.raises(CorpusError, match="/ids: the lines of de/1.xml are apart; sort the text"):
        list(opus_documents.read_documents(*paths))


def run(tmp_path, text, **options):
    """Run tab_separated.py on a text, and return its outputs."""
    (path,) = write(tmp_path, s=text)
    out = [str(tmp_path / name) for name in ("out.de", "out.en")]
    args = tab_separated.parse_args([path, "--out", *out])
    vars(args).update(options)
    run_reader(lambda args: tab_separated.read_documents(args.file), args)
    return out


def test_readers_warn_as_the_check_does(tmp_path, capsys):
    run(tmp_path, "".join(f"satz {n}\tsentence {n}\n" for n in range(2100)))
    assert "2,100 sentences form 1 document(s); put a blank line" in capsys.readouterr().err
    run(tmp_path, "a\ta\nb\tb\n")
    assert "are the same text; one should be the translation" in capsys.readouterr().err
    run(tmp_path, "a\tb\nc\td </s> e\n")
    assert "out.en: line 2 has the word </s>, which is reserved" in capsys.readouterr().err
    run(tmp_path, "a\tb\n")
    assert capsys.readouterr().err == ""


def test_values_of_readers(tmp_path):
    with pytest.raises(SystemExit, match="--min-sentences must be at least 1, got -4"):
        run(tmp_path, "a\tb\n", min_sentences=-4)
    with pytest.raises(SystemExit, match="nothing to write: the input is empty, or every document"):
        run(tmp_path, "")


def test_gzip_is_found_by_its_content(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert list(lines_of(str(path))) == ["a", "b"]
    with pytest.raises(CorpusError, match="text is compressed by gzip; unpack it with gunzip"):
        check_files(str(path), str(path))


def test_links_are_followed_and_other_files_stay(tmp_path):
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    target.write_text("before\n")
    link.symlink_to(target)
    write_whole({str(link): ["after"]})
    assert link.is_symlink() and target.read_text() == "after\n"
    os.mkfifo(pipe)
    with pytest.raises(CorpusError, match="pipe is no file; give a file to write"):
        write_whole({str(target): ["x"], str(pipe): ["x"]})
    with pytest.raises(CorpusError, match="x.gz: text is written as it is; leave out .gz"):
        write_whole({str(target): ["x"], str(tmp_path / "x.gz"): ["x"]})
    assert target.read_text() == "after\n" and pipe.is_fifo()


def test_marks_without_counterparts_are_counted(tmp_path, capsys):
    source = "I saw <hon>the cat .\n<p>It</p> ran .\n"
    target = "Ich sah <hon>die Katze<hoff> .\n<p>Sie</p> lief <hoff>.\n"
    paths = write(tmp_path, s=source, t=target)
    out = [str(tmp_path / name) for name in ("o.en", "o.de")]
    supporting_words.main(["strip", *paths, "--out", *out])
    assert "warning: 2 of 8 marks have no counterpart and mark nothing" in capsys.readouterr().err
    plain = write(tmp_path, p="It ran .\n", q="Sie lief .\n")
    with pytest.raises(SystemExit, match="/p has no marks such as <p> and <hon>; give the marked"):
        supporting_words.main(["strip", *plain, "--out", *out])


@pytest.mark.parametrize(
    "path", sorted(Path(tiny.ROOT, "data_prep").glob("*.py")), ids=lambda p: p.stem
)
def test_a_module_is_a_command_or_says_that_it_is_none(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which standard_streams.py replaces
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    if end.value.code:
        message = f"error: {path.name} is no command; data_prep/README.md lists the commands"
        assert end.value.code == message
    else:
        assert capsys.readouterr().out.startswith("usage: ")
