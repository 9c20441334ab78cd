"""Readers of published corpora, on small files of the same format, and recipes that use them."""

import gzip
import io
import json
import os
import random
import runpy
import shlex
import subprocess
import sys
import tarfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import marked_documents
import named_documents
import opus_documents
import pytest
import sentence_groups
import tab_separated
import tagged_documents
import tiny
from check_documents import CorpusError
from commands import Shell
from documents import LeftOut, lines_of, paired_lines, select
from long_tests import LONG

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


SGM = """<refset setid="newstest2018" srclang="any" trglang="de">
<doc sysid="ref" docid="bbc.1" genre="news" origlang="en">
<p>
<seg id="1">{0}</seg>
</p>
<p>
<seg id="2">{1}
</seg>
</p>
</doc>
<DOC sysid="ref" docid="bbc.2" genre="news" origlang="en">
<hl><SEG id="1">{2}</SEG></hl>
</DOC>
</refset>
"""
IDS = "de/1990/12/{0}.xml.gz\ten/1990/12/{1}.xml.gz\t{2}\t{2}\n"


def write(folder, **texts):
    """Write files into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode("utf-8"))
    return [str(folder / name) for name in texts]


def run_script(module, *arguments):
    """Run a program of data_prep in this process and return its output and exit status."""
    program = str(tiny.ROOT / "data_prep" / f"{module}.py")
    output, errors, status = io.StringIO(), io.StringIO(), 0
    with mock.patch("sys.argv", [program, *map(str, arguments)]):
        with redirect_stdout(output), redirect_stderr(errors):
            try:
                runpy.run_path(program, run_name="__main__")
            except SystemExit as stop:
                status = stop.code or 0
    if isinstance(status, str):  # python prints it to the standard error
        errors.write(f"{status}\n")
        status = 1
    return subprocess.CompletedProcess(program, status, output.getvalue(), errors.getvalue())


@pytest.fixture(scope="module")
def run_recipe(tmp_path_factory):
    """Function that runs the script of a recipe in bash."""
    shell = Shell(tmp_path_factory.mktemp("recipes"))

    def run(script, *arguments):
        command = ["bash", f"examples/{script}", *map(str, arguments)]
        done = shell.run(shlex.join(command))
        assert done.returncode == 0, done.stderr

    yield run
    shell.close()


# ---- lines and documents -------------------------------------------------------------------------


def test_lines_end_at_line_feeds_alone(tmp_path):
    path, packed = tmp_path / "a", tmp_path / "a.gz"
    text = "\ufeffa\r\n\tb\rc\u2028d \n\n".encode()
    path.write_bytes(text)
    packed.write_bytes(gzip.compress(text, mtime=0))
    assert list(lines_of(str(path))) == ["a ", "\tb c d ", ""] == list(lines_of(str(packed)))


@pytest.mark.parametrize(
    "name, data, message",
    [
        ("a", b"a\nb\xff\n", r"a: line 2 is not valid UTF-8"),
        ("a.gz", b"a\n", r"a.gz: cannot be read \(Not a gzipped file"),
        (
            "a.gz",
            gzip.compress(100 * b"a\n", mtime=0)[:-9],
            r"a.gz: cannot be read \(Compressed file ended",
        ),
        (
            "a.gz",
            gzip.compress(b"a\n", mtime=0)[:10] + b"\xff" + 20 * b"a",
            r"a.gz: cannot be read \(Error -3 while decompressing",
        ),
        ("a", None, r"a: cannot be read \(No such file"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, data, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        list(lines_of(str(tmp_path / name)))


def test_lines_that_belong_together(tmp_path):
    one, two, more = write(tmp_path, one="a\n", two="b", more="c\nd\n")
    assert list(paired_lines(one, two)) == [("a", "b")]
    with pytest.raises(CorpusError, match=r"/two ends after line 1, but .*/more continues"):
        list(paired_lines(more, two))


@pytest.mark.parametrize(
    "options, kept, documents, pairs",
    [
        ({}, ["ab", "c", "ef"], 1, 1),
        ({"min_sentences": 2}, ["ab", "ef"], 2, 0),
        ({"complete_documents": True}, ["ab", "ef"], 2, 0),
    ],
)
def test_documents_that_are_left_out(options, kept, documents, pairs):
    given = [
        [("a", "x"), (" b ", "\ty")],
        [],
        [("", " ")],
        [("c", "x"), ("d", " ")],
        [("", "x")],
        [("e", "x"), ("", ""), ("f", "x")],
    ]
    left_out = LeftOut()
    found = list(select(given, left_out, **options))
    assert ["".join(source for source, _ in document) for document in found] == kept
    assert (left_out.documents, left_out.pairs) == (documents, pairs)


# ---- readers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [TAGS, SET, SGM], ids=["train", "set", "sgm"])
def test_tagged_documents(tmp_path, form):
    sides = ["a & b", "c\u0085c", " d"], ["A &amp; &lt;B", "", "D"]
    source, target = write(tmp_path, s=form.format(*sides[0]), t=form.format(*sides[1]))
    pairs = [[("a & b", "A & <B"), ("c c", "")], [("d", "D")]]
    found = list(tagged_documents.read_documents([source, source], [target, target]))
    assert [[(a.strip(), b.strip()) for a, b in document] for document in found] == 2 * pairs


@pytest.mark.parametrize("form", [TAGS, SET, SGM], ids=["train", "set", "sgm"])
@pytest.mark.parametrize("entity", ["&#10;", "&#13;", "&#13;&#10;", "&#8232;", "&#x2029;"])
def test_entities_of_line_breaks_become_spaces(tmp_path, form, entity):
    source, target = write(
        tmp_path, s=form.format(f"a{entity}b", "c", "d"), t=form.format("A", "B", "D")
    )
    out = [tmp_path / "o.s", tmp_path / "o.t"]
    done = run_script("tagged_documents", "--source", source, "--target", target, "--out", *out)
    assert done.returncode == 0, done.stderr
    assert out[0].read_text().replace("  ", " ") == "a b\nc\n\nd\n"
    assert out[1].read_text() == "A\nB\n\nD\n"


def test_text_that_begins_like_a_tag():
    """A line is metadata only as a whole, and only before or after the text of its talk."""
    header = ["<url>x</url>", "<content-type>t</content-type>"]
    lines = [*header, "<i>a</i> b", "<laugh> c", "</doc>", "", "<url>y</url>", "d"]
    wanted = [["<i>a</i> b", "<laugh> c", ""], ["d"]]
    assert tagged_documents.segments_of(lines, "f") == wanted
    for tag in ("<b>e</b>", "<laugh>", "</doc>"):
        lines = ["<url>x</url>", "a", tag, "b"]
        with pytest.raises(CorpusError, match="f: line 3 is a tag between lines of text; remove"):
            tagged_documents.segments_of(lines, "f")


def test_segments_belong_to_the_nearest_document():
    text = "<doc>\n<seg id=1>a\nc</seg>\n<doc>\n<seg id=1>b</seg>\n</doc>\n"
    assert tagged_documents.segments_of(text.splitlines(), "s") == [["a c"], ["b"]]


@pytest.mark.parametrize(
    "source, target, message",
    [
        ("<url>\na\n", "<url>\nx\n<url>\ny\n", "s has 1 documents, .*/t has 2"),
        ("<url>\na\n<url>\nb\nc", "<url>\nx\n<url>\ny", "number 2 has 2 segments .* and 1 in"),
        ("<doc>\n</doc>\n\n<seg>a</seg>", "x", "/s: line 4 has a segment outside of a <doc>"),
        (
            "<doc>\n<seg>a <b</seg>\n<seg>c</seg>\n</doc>",
            "x",
            "/s: line 2 has a tag inside a segment, or an unescaped <",
        ),
        (
            "<doc>\n<seg>a </b> c</seg>\n</doc>",
            "x",
            "/s: line 2 has a tag inside a segment, or an unescaped <",
        ),
        (
            "<doc>\n<seg>a\nb</p></seg>\n<seg>c</seg>\n</doc>",
            "x",
            "/s: line 3 has a tag inside a segment, or an unescaped <",
        ),
        (
            "<url>x\n<talkid>1</talkid>\na\n<url>y\n<talkid>2</talkid>\nb\n",
            "<url>z\n<talkid>1</talkid>\na\n<url>u\n<talkid> 3 </talkid>\nb\n",
            "document 2 of .*/s is 3 in .*/t; give the two sides of the same set",
        ),
        (
            '<doc docid="1" genre="x">\na\n<doc docid="2" genre="x">\nb\n',
            '<doc docid="2" genre="x">\na\n<doc docid="1" genre="x">\nb\n',
            "document 1 of .*/s is 2 in .*/t; give the two sides of the same set",
        ),
        (
            "<url>x</url><talkid>1</talkid>\na\n",
            "<url>x</url><talkid>2</talkid>\na\n",
            "document 1 of .*/s is 2 in .*/t; give the two sides of the same set",
        ),
        (
            "<doc>\n<src><seg>a</seg></src>\n<ref><seg>b</seg></ref>\n</doc>",
            "x",
            "/s: line 3: the document has several texts .*src, ref.*convert --role source",
        ),
        ("<doc>\n<seg>a</seg>\n<seg>b", "x", "/s: <seg> in line 3 has no end; give the whole fi"),
        ("<doc>\n<seg>a</seg>\n<seg>b</s", "x", "/s: <seg> in line 3 has no end"),
        ("<doc>\n<seg>a</seg>\n", "x", "/s: <doc> in line 1 has no end"),
        ("<refset>\n<doc>\n<seg>a</seg>\n</doc>", "x", "/s: <refset> in line 1 has no end"),
        ("<url>\n", "x", "/s: the file has no document"),
        ("", "x", "/s: the file has no document"),
        ("a\n\nb\n", "x\n\ny\n", "/s: the file has no document"),
    ],
)
def test_tagged_documents_with_faults(tmp_path, source, target, message):
    source, target = write(tmp_path, s=source, t=target)
    with pytest.raises(CorpusError, match=message):
        list(tagged_documents.read_documents([source], [target]))


def test_tagged_documents_need_pairs_of_files():
    with pytest.raises(CorpusError, match="2 source files, but 1 target files"):
        list(tagged_documents.read_documents(["a", "b"], ["c"]))


def test_sentence_groups(tmp_path):
    source, target = write(
        tmp_path, s="a _eos b\nd _eos  _eos e\nf\n", t="x _eos y\n1 _eos 2 _eos 3\nz\n"
    )
    done = run_script(
        "sentence_groups", source, target, "--out", tmp_path / "o.s", tmp_path / "o.t"
    )
    assert done.stdout == (
        "2 documents, 3 sentence pairs; left out: documents 1, pairs with an empty side 0\n"
    )
    assert (tmp_path / "o.s").read_text() == "a\nb\n\nf\n"
    assert (tmp_path / "o.t").read_text() == "x\ny\n\nz\n"


@pytest.mark.parametrize(
    "source, target, written",
    [
        ("_eos b", "_eos y", "b\n\n"),
        ("a _eos", "x _eos", "a\n\n"),
        ("a _eos _eos b", "x _eos _eos y", "a\nb\n\n"),
        ("_eos b", "x _eos y", ""),
        ("a _eos _eos b", "x _eos y _eos z", ""),
        ("a _eos", " _eos y", ""),
        ("_eos", "x _eos y", ""),
    ],
)
def test_empty_sentences_of_groups_may_have_lost_their_spaces(tmp_path, source, target, written):
    paths = write(tmp_path, s=f"{source}\nc_eos _eosd\n", t=f"{target}\nz\n")
    done = run_script("sentence_groups", *paths, "--out", tmp_path / "o.s", tmp_path / "o.t")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.s").read_text() == f"{written}c_eos _eosd\n"
    assert done.stderr.count("/s: line 2 has the mark _eos within a word, where it is read as") == 1


def test_marks_without_spaces_may_touch_words(tmp_path):
    source, target = write(tmp_path, s="a|||b ||| c\n", t="x|||y|||z\n")
    (found,) = sentence_groups.read_groups(source, target, "|||")
    assert [(a.strip(), b) for a, b in found] == [("a", "x"), ("b", "y"), ("c", "z")]


def test_groups_that_do_not_fit(tmp_path):
    source, target = write(tmp_path, s="a\na _eos b _eos c\n", t="x\nx _eos y\n")
    with pytest.raises(CorpusError, match="/s: line 2 has 3 sentences, but 2 in .*/t"):
        list(sentence_groups.read_groups(source, target, " _eos "))
    with pytest.raises(CorpusError, match="--mark is blank"):
        list(sentence_groups.read_groups(source, target, " "))


def test_marked_documents(tmp_path):
    source, target = write(tmp_path, s="\ufeff<d>\na\n\n<d>\n<d>\nb\n", t="<d>\nx\ny\n<d> \n<d>\nz")
    for mark in ("<d>", " <d> "):
        found = [d for d in marked_documents.read_documents(source, target, mark) if d]
        assert found == [[("a", "x"), ("", "y")], [("b", "z")]]


@pytest.mark.parametrize(
    "script, option",
    [
        ("marked_documents", "--mark"),
        ("sentence_groups", "--min-sentences"),
        ("hold_out", "--seed"),
        ("prepare", "--destdir"),
    ],
)
def test_two_dashes_are_no_value(tmp_path, script, option):
    """argparse of Python 3.8 to 3.12 takes them for a list."""
    source, target = write(tmp_path, s="--\na\n", t="--\nA\n")
    out = [tmp_path / "o.s", tmp_path / "o.t"]
    done = run_script(script, source, target, f"{option}=--", "--out", *out)
    assert done.stderr == "error: an option has the value --; give another\n"
    assert not out[0].exists()


def test_marks_that_do_not_fit(tmp_path):
    source, target = write(tmp_path, s="<d>\na\n", t="<d>\n<d>\n")
    with pytest.raises(CorpusError, match="/t: line 2 is <d>, but not on the other side"):
        list(marked_documents.read_documents(source, target, "<d>"))
    for blank in ("", " "):
        with pytest.raises(CorpusError, match="--mark is blank; give the line that begins a doc"):
            list(marked_documents.read_documents(source, target, blank))


def test_documents_named_line_by_line(tmp_path):
    paths = write(tmp_path, s="a\nb\nc\nd\n", t="x\n\nz\nu\n", ids="1\n1\nx\t2\n3\n")
    done = run_script(
        "named_documents",
        *paths[:2],
        "--docids",
        paths[2],
        "--out",
        tmp_path / "o.s",
        tmp_path / "o.t",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.s").read_text() == "a\n\nc\n\nd\n"
    assert (tmp_path / "o.t").read_text() == "x\n\nz\n\nu\n"
    assert "3 documents, 3 sentence pairs" in done.stdout
    paths = write(tmp_path, s="a\nb\n", t="x\ny\n", ids="1\n1\n")  # one document alone
    pairs = [("a", "x"), ("b", "y")]
    assert [*filter(None, named_documents.documents_of_lines(*paths))] == [pairs]


def test_documents_in_folders(tmp_path):
    for side in ("de", "en"):
        (tmp_path / side / "b").mkdir(parents=True)
        (tmp_path / side / "b" / f"2.{side}").write_text(f"c {side}\n")
        (tmp_path / side / f"10.{side}").write_text(f"a {side}\nb {side}\n")
        (tmp_path / side / ".hidden").write_text("x\ny\n")
    folders = [tmp_path / side for side in ("de", "en")]
    done = run_script("named_documents", *folders, "--out", tmp_path / "o.s", tmp_path / "o.t")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.s").read_text() == "a de\nb de\n\nc de\n"
    assert (tmp_path / "o.t").read_text() == "a en\nb en\n\nc en\n"


@pytest.mark.parametrize("leads_to", ["talks", "nothing"])
def test_links_in_folders_that_lead_to_no_file(tmp_path, leads_to):
    """Their documents would be missing on both sides."""
    for side in ("de", "en"):
        (tmp_path / side).mkdir()
        (tmp_path / "talks").mkdir(exist_ok=True)
        (tmp_path / "talks" / "1").write_text("b\n")
        (tmp_path / side / "2").symlink_to(tmp_path / "talks" / "1")
        (tmp_path / side / ".old").symlink_to(tmp_path / "none")
    folders = [str(tmp_path / side) for side in ("de", "en")]
    assert list(named_documents.documents_of_files(*folders)) == [[("b", "b")]]
    for folder in folders:
        (Path(folder) / "talks").symlink_to(tmp_path / leads_to)
    args = named_documents.parse_args([*folders, "--out", "a", "b"])
    with pytest.raises(CorpusError, match="/de/talks is a link to a folder or to nothing, which"):
        list(named_documents.read(args))


@pytest.mark.parametrize(
    "names, message",
    [
        ("1\n2\n", "ids names the documents of 2 lines, but .*/s has more; give files of the same"),
        ("1\n1\n1\n1\n", "ids names the documents of 4 lines, but .*/s has 3; give files of the"),
        ("1\n2\n1\n", "ids: line 3 goes on with document 1, which ended before; sort all f"),
        ("1\n\n1\n", "ids: line 2 has no document id"),
    ],
)
def test_names_that_do_not_fit(tmp_path, names, message):
    source, target, ids = write(tmp_path, s="a\nb\nc\n", t="x\ny\nz\n", ids=names)
    args = named_documents.parse_args([source, target, "--docids", ids, "--out", "a", "b"])
    with pytest.raises(CorpusError, match=message):
        list(named_documents.read(args))


def test_named_documents_that_do_not_fit(tmp_path):
    for name in ("de/1.de", "en/2.en", "fr/1.fr", "fr/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n")
    (tmp_path / "empty").mkdir()

    def read(*arguments):
        found = named_documents.parse_args([*map(str, arguments), "--out", "a", "b"])
        return list(named_documents.read(found))

    de, en, fr, empty = (tmp_path / name for name in ("de", "en", "fr", "empty"))
    for arguments, message in (
        ((de, en), r"de/1.de has no counterpart in .*/en; documents must have the same names"),
        ((de, fr), r"fr/1.fr and .*fr/1.txt are both document 1; rename one of them"),
        ((de, empty), "empty has no files; give the folder with the documents"),
        ((de, de / "1.de"), "give two files or two folders"),
        ((de, de, "--docids", "x"), "--docids is for files, not for folders; leave it out"),
        ((de / "1.de", de / "1.de"), "files need --docids, the file with the document of each"),
    ):
        with pytest.raises(CorpusError, match=message):
            read(*arguments)


def test_tab_separated_documents(tmp_path):
    (path,) = write(tmp_path, s='a "\tx\n\ty\n\t\nb\tz\n\n\n')
    found = [document for document in tab_separated.read_documents(path) if document]
    assert found == [[('a "', "x"), ("", "y")], [("b", "z")]]


@pytest.mark.parametrize("row, tabs", [("c", 0), ("c\td\te", 2)])
def test_rows_without_two_columns(tmp_path, row, tabs):
    (path,) = write(tmp_path, s=f"a\tx\n\n{row}\n")
    with pytest.raises(
        CorpusError, match=f"/s: line 3 has {tabs} tabs; expected a sentence, one tab"
    ):
        list(tab_separated.read_documents(path))


def opus(folder, ids="", contrapro=None):
    """Return the documents of a small OPUS corpus whose German files are 1, 2 and 1, as text."""
    ids = ids or "".join(IDS.format(*row) for row in ((1, 5, 1), (1, 5, 2), (2, 6, 1), (1, 7, 3)))
    source, target, ids = write(folder, en="a a\nb\nc\nd\n", de="x\ny\n\nu\n", ids=ids)
    left_out = None
    if contrapro is not None:
        (path,) = write(folder, **{"contrapro.json": contrapro})
        left_out = opus_documents.ContraPro(path)
    documents = opus_documents.read_documents(source, target, ids, left_out)
    return [[f"{src}:{tgt}" for src, tgt in document] for document in documents]


def test_opus_documents(tmp_path):
    assert opus(tmp_path) == [["a a:x", "b:y"], ["c:"], ["d:u"]]
    names = "de a\ten 1\nde a\ten 1\nde a\ten 2\nde b\ten 2\n"
    assert opus(tmp_path, ids=names) == [["a a:x", "b:y"], ["c:"], ["d:u"]]


def item(document="1990_12_1.de", line=1, text="a  a"):
    return json.dumps({"document id": document, "segment id": line, "src segment": text})


def test_segments_of_contrapro_are_left_out(tmp_path):
    # Lines are numbered per German file, over all its documents, as in ContraPro's scripts.
    found = opus(tmp_path, contrapro=f"[{item()}, {item()}, {item(line=3, text='d')}]")
    assert found == [["b:y"], ["c:"], []]


@pytest.mark.parametrize(
    "contrapro, message",
    [
        (f"[{item(text='b')}]", "line 1 of 1990_12_1.de is 'a a', but 'b' in .*json; give"),
        (f"[{item(line=4)}]", "json names line 4 of 1990_12_1.de, which is not in .*/ids"),
        (f"[{item(document='1990_12_9.de')}]", "names line 1 of 1990_12_9.de, which is not in"),
        ("[\n{", "json: line 2 is not valid JSON"),
        ('[{"document id": "a"}]', 'json: an item has no "document id", "segment id" or'),
        ("[1]", 'json: an item has no "document id"'),
        ("[]", "contrapro.json has no items; check the download"),
        ("{}", "contrapro.json has no items; check the download"),
        ("[" * 99999, 'json: an item has no "document id"'),
        (f"[{item(line='b')}]", 'json: an item has no "document id"'),
        (f"[{item(line=2.9)}]", 'json: an item has no "document id"'),
        (f"[{item(line=True)}]", 'json: an item has no "document id"'),
        (f"[{item(line=float('inf'))}]", 'json: an item has no "document id"'),
        (f"[{item(text=3)}]", 'json: an item has no "document id"'),
    ],
)
def test_segments_of_contrapro_that_do_not_fit(tmp_path, contrapro, message):
    with pytest.raises(CorpusError, match=message):
        opus(tmp_path, contrapro=contrapro)


def test_opus_documents_with_faults(tmp_path):
    with pytest.raises(
        CorpusError, match="/ids: line 2 does not have two names separated by a tab"
    ):
        opus(tmp_path, ids=IDS.format(1, 5, 1) + 3 * "de/1990/12/1.xml.gz\n")
    with pytest.raises(CorpusError, match="/ids ends after line 1, but .*/en continues"):
        opus(tmp_path, ids=IDS.format(1, 5, 1))
    with pytest.raises(CorpusError, match="none.json: cannot be read"):
        opus_documents.ContraPro(str(tmp_path / "none.json"))


# ---- held-out documents --------------------------------------------------------------------------


def test_documents_are_held_out(tmp_path):
    sentences = [f"{document}.{i}" for document in range(9) for i in range(3)]
    text = "".join(f"{s}\n" + (s[-1] == "2") * "\n" for s in sentences)
    source, target = write(tmp_path, **{"a.en": text, "a.de": text.upper()})
    arguments = [source, target, "--valid", 2, "--test", 3, "--out"]
    done = run_script("hold_out", *arguments, tmp_path / "one")
    assert done.stdout.startswith("train: 4 documents, 12 sentence pairs\nvalid: 2 documents, 6 ")
    parts = {name: (tmp_path / f"one/{name}.en").read_text() for name in ("train", "valid", "test")}
    found = [line for part in parts.values() for line in part.split()]
    assert sorted(found) == sentences and parts["valid"].split() == sorted(parts["valid"].split())
    assert (tmp_path / "one" / "test.de").read_text() == parts["test"].upper()
    run_script("hold_out", *arguments, tmp_path / "two")
    run_script("hold_out", *arguments, tmp_path / "three", "--seed", 2)
    assert (tmp_path / "two" / "test.en").read_text() == parts["test"]
    assert (tmp_path / "three" / "test.en").read_text() != parts["test"]


@pytest.mark.parametrize(
    "target, numbers, message",
    [
        ("a.de", (1, 1, "--seed", -1), "--seed must not be negative, got -1"),
        ("a.de", (1, 1), "holding out 2 of 2 documents leaves none"),
        ("a.de", (0, 1), "--valid and --test must be at least 1"),
        ("b/a.en", (1, 1), "both files end in '.en'"),
        ("c.de", (1, 1), "c.de: cannot be read"),
    ],
)
def test_documents_that_cannot_be_held_out(tmp_path, target, numbers, message):
    write(tmp_path, **{"a.en": "a\n\nb\n", "a.de": "x\n\ny\n"})
    out = tmp_path / "out"
    arguments = ["--valid", numbers[0], "--test", *numbers[1:], "--out", out]
    done = run_script("hold_out", tmp_path / "a.en", tmp_path / target, *arguments)
    assert done.returncode == 1 and done.stderr.startswith("error: ") and message in done.stderr
    assert not out.exists()


def test_all_parts_are_written_or_none(tmp_path):
    source, target = write(tmp_path, **{"a.en": "a\n\nb\n\nc\n", "a.de": "x\n\ny\n\nz\n"})
    folder = tmp_path / "out" / "test.de"
    folder.mkdir(parents=True)
    arguments = ["--valid", 1, "--test", 1, "--out", folder.parent]
    done = run_script("hold_out", source, target, *arguments)
    assert done.returncode == 1 and not done.stdout
    assert "test.de cannot be written (Is a directory)" in done.stderr
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_held_out_documents_do_not_replace_the_corpus(tmp_path, part):
    files = {f"{part}.en": "a\n\nb\n\nc\n", f"{part}.de": "x\n\ny\n\nz\n"}
    write(tmp_path / "corpus", **files)
    (tmp_path / "link").symlink_to("corpus")
    arguments = ["--valid", 1, "--test", 1, "--out", tmp_path / "link"]
    done = run_script("hold_out", *(tmp_path / "corpus" / name for name in files), *arguments)
    assert done.returncode == 1
    assert f"{part}.en is the text to split; give another --out" in done.stderr
    assert {p.name: p.read_text() for p in (tmp_path / "corpus").iterdir()} == files


# ---- recipes -------------------------------------------------------------------------------------


def news_files(folder):
    write(
        folder,
        **{
            "newstest2015-ende-src.en.sgm": SGM.format("Valid.", "Two.", "New."),
            "newstest2015-ende-ref.de.sgm": SGM.format("Gültig.", "Zwei.", "Neu."),
            "newstest2018-ende-src.en.sgm": SGM.format("Test & co.", "Two.", "New."),
            "newstest2018-ende-ref.de.sgm": SGM.format("Test &amp; Co.", "Zwei.", "Neu."),
        },
    )
    rows = "Eins.\tOne.\nZwei.\tTwo.\n\t\nNeu.\tNew.\n"
    packed = folder / "news-commentary-v14.de-en.tsv.gz"
    packed.write_bytes(gzip.compress(rows.encode()))
    return {
        "train": ("One.\nTwo.\n\nNew.\n", "Eins.\nZwei.\n\nNeu.\n"),
        "valid": ("Valid.\nTwo.\n\nNew.\n", "Gültig.\nZwei.\n\nNeu.\n"),
        "test": ("Test & co.\nTwo.\n\nNew.\n", "Test & Co.\nZwei.\n\nNeu.\n"),
    }


def ted_files(folder):
    sets = {}
    for name, pairs in (
        ("dev2010", ("en-it", "en-it")),
        ("tst2010", ("en-it", "en-it")),
        ("tst2017.mltlng", ("en-it", "it-en")),
    ):
        for language, pair in zip(("en", "it"), pairs):
            text = SET.format(f"{name} {language}", "b", "c")
            sets[f"IWSLT17.TED.{name}.{pair}.{language}.xml"] = text
    tags = {
        f"train.tags.en-it.{side}": TAGS.format("one a one", side, "c") for side in ("en", "it")
    }
    write(folder, **sets, **tags)
    return {
        "train": ("one a one\nen\n\nc\n", "one a one\nit\n\nc\n"),
        "valid": tuple(
            f"dev2010 {side}\nb\n\nc\n\ntst2010 {side}\nb\n\nc\n" for side in ("en", "it")
        ),
        "test": tuple(f"tst2017.mltlng {side}\nb\n\nc\n" for side in ("en", "it")),
    }


def os_files(folder):
    english, german, ids = "", "", ""
    for document in range(12):
        for line in (1, 2):
            english += f"{document} is line {line}\n"
            german += f"{document} ist Zeile {line}\n"
            ids += IDS.format(document, document + 100, line)
    names = {"OpenSubtitles.de-en.en": english, "OpenSubtitles.de-en.de": german}
    removed = item(document="1990_12_0.de", line=2, text="0 is line 2")
    write(folder, **names, **{"OpenSubtitles.de-en.ids": ids, "contrapro.json": f"[{removed}]"})
    return {}


@pytest.mark.parametrize(
    "corpus, languages, files",
    [
        pytest.param("news", "en-de", news_files, marks=LONG),
        pytest.param("ted", "en-it", ted_files, marks=LONG),
        ("os", "en-de", os_files),
    ],
)
def test_herold2023_is_prepared(run_recipe, tmp_path, corpus, languages, files):
    """The recipe turns small files in the published format into binarised data."""
    expected = files(tmp_path / "downloads")
    script = "herold2023_window_attention/prepare.sh"
    options = ("--corpus", corpus, "--bpe-operations", "5")
    run_recipe(script, tmp_path / "downloads", tmp_path / "work", *options)
    texts, sides = tmp_path / "work" / "corpus", languages.split("-")
    found = {
        name: tuple((texts / f"{name}.{side}").read_text(encoding="utf-8") for side in sides)
        for name in ("train", "valid", "test")
    }
    for name, text in expected.items():
        assert found[name] == text
    if corpus == "os":
        assert [found[name][0].count("\n\n") for name in found] == [1, 4, 4]
        lines = "\n".join(english for english, _ in found.values()).split("\n")
        assert "0 is line 1" in lines and "0 is line 2" not in lines
    binarised = tmp_path / "work" / "data" / "bin"
    assert all((binarised / f"test.{languages}.{side}.bin").exists() for side in sides)


def test_feng2022_is_prepared(run_recipe, tmp_path):
    """The recipe turns small files in the published format into binarised data."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split in ("train", "dev", "test"):
        for side in ("en", "de"):
            text = f"<d>\nThis is {side} .\nAnd this .\n<d>\nThe end in {side} .\n"
            (corpus / f"concatenated_en2de_{split}_{side}.txt").write_text(text)
    run_recipe("feng2022_memory/prepare.sh", corpus, tmp_path / "work", "--bpe-operations", "40")
    assert (tmp_path / "work" / "data" / "bin" / "test.en-de.de.bin").exists()
    text = (tmp_path / "work" / "corpus" / "valid.de").read_text()
    assert text == "This is de .\nAnd this .\n\nThe end in de .\n"


def refusal(script, *arguments):
    """Run the script of a recipe, which fails; return what it says."""
    command = ["bash", str(tiny.ROOT / "examples" / script), *map(str, arguments)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    return done.stderr


def test_maruf2018_checks_the_text_that_is_given(tmp_path):
    write(tmp_path, **{"train.de": "A\n", "train.en": "B\n", "valid.de": "A\n"})
    said = refusal("maruf2018_memnet/prepare.sh", tmp_path, tmp_path / "work")
    assert said == f"error: {tmp_path}/valid.en: cannot be read (No such file or directory)\n"


@pytest.mark.parametrize("share", [0, 0.5, 0.9])
def test_a_cut_archive_of_iwslt15_is_refused(tmp_path, share):
    text = tmp_path / "zh-en/train"
    text.parent.mkdir()
    text.write_bytes(bytes(random.Random(0).choices(range(256), k=9000)))
    packed = [tmp_path / "2015-01/texts/zh/en/zh-en.tgz", tmp_path / "2015-01.tgz"]
    packed[0].parent.mkdir(parents=True)
    for archive, name in zip(packed, ("zh-en", "2015-01")):
        with tarfile.open(archive, "w:gz") as opened:
            opened.add(tmp_path / name, name)
    os.truncate(packed[1], int(share * packed[1].stat().st_size))
    said = refusal("wu2022_rfa/prepare_iwslt15.sh", packed[1], tmp_path / "work")
    wanted = f"error: {packed[1]} cannot be unpacked into {tmp_path}/work; if it is incomplete"
    assert said.splitlines()[-1].startswith(wanted)


def test_two_sides_need_two_files(tmp_path):
    source, target = write(tmp_path, s="a\n", t="b\n")
    for other in ("o", "./o"):
        out = [f"{tmp_path}/o", f"{tmp_path}/{other}"]
        done = run_script("marked_documents", source, target, "--out", *out)
        assert (
            done.returncode == 1 and "is the file of both sides; give each its own" in done.stderr
        )
    assert not (tmp_path / "o").exists()


def test_a_fault_is_one_sentence_and_writes_nothing(tmp_path):
    source, target = write(tmp_path, s="a _eos b\n", t="x\n")
    done = run_script(
        "sentence_groups", source, target, "--out", tmp_path / "o.s", tmp_path / "o.t"
    )
    assert done.returncode == 1 and done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr and not (tmp_path / "o.s").exists()


def test_a_side_that_cannot_be_written_leaves_the_other_as_it_was(tmp_path):
    (path,) = write(tmp_path, s="a\tx\n")
    write(tmp_path, old="before\n")
    (tmp_path / "folder").mkdir()
    done = run_script("tab_separated", path, "--out", tmp_path / "old", tmp_path / "folder")
    assert done.returncode == 1 and "folder cannot be written (Is a directory)" in done.stderr
    assert (tmp_path / "old").read_text() == "before\n"
    assert {p.name for p in tmp_path.iterdir()} == {"s", "old", "folder"}


def test_files_that_are_read_are_not_written(tmp_path):
    (path,) = write(tmp_path, s="a\tx\n")
    done = run_script("tab_separated", path, "--out", tmp_path / "o", f"{tmp_path}/./s")
    assert done.returncode == 1 and done.stderr.endswith(
        "/./s is read; give another file to write\n"
    )
    source, target = write(tmp_path, de="<url>\na\n", en="<url>\nx\n")
    out = [tmp_path / "o", source]
    done = run_script("tagged_documents", "--source", source, "--target", target, "--out", *out)
    assert done.returncode == 1 and done.stderr.endswith(
        "/de is read; give another file to write\n"
    )
    assert (tmp_path / "s").read_text() == "a\tx\n" and not (tmp_path / "o").exists()


def test_nothing_is_left_to_write(tmp_path):
    (path,) = write(tmp_path, s="a\tx\n\nb\t\n")
    out = [tmp_path / "o.s", tmp_path / "o.t"]
    done = run_script("tab_separated", path, "--min-sentences", "2", "--out", *out)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: nothing to write: the input is empty, or every document lack"
    )


def test_files_without_marks(tmp_path):
    source, target = write(tmp_path, s="a\n\nb\n", t="x\n\ny\n")
    with pytest.raises(CorpusError, match="/s has no line <d>, which begins a document; give the"):
        list(marked_documents.read_documents(source, target, "<d>"))
    with pytest.raises(CorpusError, match="/s: no line has the mark _eos; give the separator"):
        list(sentence_groups.read_groups(source, target, " _eos "))


def test_an_output_without_a_name(tmp_path):
    (path,) = write(tmp_path, s="a\tx\n")
    done = run_script("tab_separated", path, "--out", tmp_path / "o", "")
    assert done.returncode == 1
    assert done.stderr == "error: an output has no name; give a file to write\n"
