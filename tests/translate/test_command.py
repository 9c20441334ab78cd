"""Translation from files to files.

Covers translate/engine.py, translate/formats.py and translate/journal.py.
"""

import fcntl
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
import tiny
from long_tests import LONG, long_but_for

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.readers import read_input
from fairseq_docmt.translate import command
from fairseq_docmt.translate.engine import running
from fairseq_docmt.translate.formats import Hypothesis
from fairseq_docmt.translate.journal import Finished, Journal

DOCS = tiny.documents((1, 5, 2, 7), 2)
OPTIONS = ["--decoding", "sequential", "--beam", "3", "--max-len-b", "12"]
NAMES = "abcd"


@pytest.fixture
def run(window_checkpoint):
    def translate(*arguments) -> str:
        given = ["--device", "cpu", "--model", window_checkpoint, *arguments, *OPTIONS]
        return tiny.run_main(command_line.main, "translate", *given)

    return translate


@pytest.fixture(scope="module")
def wanted(binarised, window_checkpoint):
    """Lines of the documents as fairseq-generate translates them."""
    output = tiny.generate(
        binarised, window_checkpoint, "--task", "sliding_window_translation", *OPTIONS
    )
    found = tiny.lines_of(output)
    rows = iter(tiny.rows_of(DOCS))
    return [[found[next(rows)] for _ in document] for document in DOCS]


def rows():
    return [(n, i, s) for n, document in zip(NAMES, DOCS) for i, s in enumerate(document, start=1)]


def xml() -> str:
    docs = "".join(
        f'<doc id="{name}"><src><p>'
        + "".join(f'<seg id="{i}">{s}</seg>' for i, s in enumerate(document, start=1))
        + "</p></src></doc>\n"
        for name, document in zip(NAMES, DOCS)
    )
    return f"<dataset>\n{docs}</dataset>"


def sgm() -> str:
    docs = "".join(
        f'<doc docid="{name}">\n'
        + "".join(f'<seg id="{i}"> {s} </seg>\n' for i, s in enumerate(document, start=1))
        + "</doc>\n"
        for name, document in zip(NAMES, DOCS)
    )
    return f'<srcset setid="t" srclang="any">\n{docs}</srcset>\n'


def jsonl() -> str:
    """Segments of three documents, the last first; and the second document in one record."""
    records = [{"doc_id": n, "segment": i, "source": s} for n, i, s in rows() if n != "b"]
    whole = {"doc_id": "b", "source": "\n".join(DOCS[1])}
    # Documents stand in the order of their first record.
    records = [records[0], whole, *reversed(records[1:3]), *reversed(records[3:])]
    return "".join(json.dumps(record) + "\n" for record in records)


def table() -> str:
    lines = ["doc_id\tseg\tsrc", *(f"{n}\t{i}\t{s}" for n, i, s in rows())]
    return "\n".join(lines) + "\n"


FORMATS = {"txt": lambda: tiny.text_of(DOCS), "xml": xml, "jsonl": jsonl, "tsv": table}


@pytest.mark.parametrize("kind", FORMATS)
def test_each_format_has_the_translations_of_the_stock_command(run, wanted, tmp_path, kind):
    given, out = tmp_path / f"in.{kind}", tmp_path / f"out.{kind}"
    given.write_text(FORMATS[kind]())
    run(given, "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == [given.name, out.name]
    if kind == "txt":
        assert out.read_text() == tiny.text_of(wanted)
        return
    found = {d.id: d.segments for d in read_input(str(out), "system").documents}
    assert [found[name] for name in NAMES] == wanted


def test_control_characters_of_translations_in_xml(run, tmp_path, monkeypatch):
    given, out = tmp_path / "in.xml", tmp_path / "out.xml"
    given.write_text(xml())
    monkeypatch.setattr(
        "fairseq_docmt.translate.engine.Engine.translate",
        lambda self, documents: [
            Finished([[Hypothesis("x\x01\uffff\ty", 0.0)]] * len(document.segments), [])
            for document in documents
        ],
    )
    run(given, "--out", out)
    text = out.read_text()
    assert text.count("x\ufffd\ufffd\ty</seg>") == sum(map(len, DOCS))


def test_a_file_that_appears_meanwhile_stays(run, tmp_path, monkeypatch):
    given, out = tmp_path / "in", tmp_path / "out"
    given.write_text("w1\n")

    def translate(self, documents):
        out.write_text("precious")
        return [Finished([[Hypothesis("x", 0.0)]], [])]

    monkeypatch.setattr("fairseq_docmt.translate.engine.Engine.translate", translate)
    with pytest.raises(UserError, match="out is there by now, with other text; move it"):
        run(given, "--out", out)
    for _ in range(2):
        assert out.read_text() == "precious" and (tmp_path / "out.partial").exists()
        with pytest.raises(UserError, match="out is there by now"):
            run(given, "--out", out)
    out.unlink()
    run(given, "--out", out)
    assert out.read_text() == "x\n" and not (tmp_path / "out.partial").exists()


def test_a_table_that_is_quoted_as_csv(run, wanted, tmp_path, monkeypatch):
    """Source and translations have quotation marks."""
    given, out = tmp_path / "in", tmp_path / "out"
    lines = [f'{n}\t{i}\t"w1 ""{s}"""' for n, i, s in rows()]
    blank = '""\t""\t""'  # no segment
    given.write_text("\n".join(["doc_id\tseg\tsrc", lines[0], blank, *lines[1:]]) + "\n")
    monkeypatch.setattr(
        "fairseq_docmt.translate.engine.Engine.translate",
        lambda self, documents: [
            Finished([[Hypothesis(s, 0.0)] for s in document.segments], [])
            for document in documents
        ],
    )
    run(given, "--out", out)
    assert out.read_text().splitlines()[1:] == [
        f"{line}\t{line.split(chr(9))[2]}" for line in lines
    ]
    found = {d.id: d.segments for d in read_input(str(out), "system").documents}
    assert found == {n: [f'w1 "{s}"' for s in d] for n, d in zip(NAMES, DOCS)}


def test_sgm(run, wanted, tmp_path):
    given = tmp_path / "in.sgm"
    given.write_text(sgm())
    text = run(given, "--system", "ours")
    assert '<tstset setid="t" srclang="any" sysid="ours" trglang="tgt">' in text
    assert text.endswith("</tstset>\n")
    lines = [line.split(">")[1].split("<")[0] for line in text.split("\n") if "<seg" in line]
    assert lines == [line for document in wanted for line in document]


def test_sgm_whose_source_names_a_system(run, tmp_path):
    """As in NIST's files; the name is that of the translations, which are then read by it."""
    given, out = tmp_path / "in.sgm", tmp_path / "out.sgm"
    given.write_text(sgm().replace("<doc ", '<doc sysid="ref" ').replace("any", 'any" SysID="x'))
    run(given, "--system", "our 'A&B\">'", "--out", out)
    text = out.read_text()
    written = """sysid="our 'A&amp;B&quot;&gt;'\""""
    assert text.count(written) == 1 + len(DOCS) and "ref" not in text and "SysID" not in text
    assert len(read_input(f"{out}#our 'A&B\">'", "system").documents) == len(DOCS)
    given.write_text(sgm() + sgm().replace("srcset", "refset"))
    with pytest.raises(UserError, match="in.sgm has a refset too; give the source file"):
        run(given)


def test_text_with_document_ids(run, wanted, tmp_path):
    given, ids = tmp_path / "in", tmp_path / "ids"
    given.write_text("".join(f"{s}\n" for _, _, s in rows()))
    ids.write_text("".join(f"{n}\n" for n, _, _ in rows()))
    lines = run(given, "--docids", ids).splitlines()
    assert lines == [line for document in wanted for line in document]


def test_a_folder_has_a_document_in_each_file(run, wanted, tmp_path, capsys):
    for name, document in zip(("1.txt", "more/2.txt", "more/3.txt", "x.txt"), DOCS):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("\n\n".join(document))
    (tmp_path / "in" / ".hidden").write_text("\n")
    run(tmp_path / "in", "--out", tmp_path / "out")
    note = f"note: 3 files have blank lines ({tmp_path}/in/more/2.txt), which do not end documents"
    assert note in capsys.readouterr().err
    found = sorted(p for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert [p.read_text().split("\n\n") for p in found] == wanted
    assert not (tmp_path / "out.partial").exists()


def test_several_translations_of_a_segment(run, binarised, window_checkpoint, tmp_path):
    given = tmp_path / "in.jsonl"
    given.write_text("".join(json.dumps({"doc_id": n, "text": s}) + "\n" for n, _, s in rows()))
    found = [json.loads(line) for line in run(given, "--nbest", "2").splitlines()]
    options = ["--task", "sliding_window_translation", *OPTIONS, "--nbest", "2"]
    output = tiny.generate(binarised, window_checkpoint, *options)
    lines = [line.split("\t") for line in output.splitlines() if line.startswith("H-")]
    wanted = {}
    for number, score, text in lines:
        wanted.setdefault(number, []).append((text, pytest.approx(float(score), abs=1e-4)))
    nbest = [[tuple(each.values()) for each in record["nbest"]] for record in found]
    assert nbest == [wanted[f"H-{row}"] for row in tiny.rows_of(DOCS)]
    assert all(r["hypothesis"] == best[0][0] for r, best in zip(found, nbest))


def test_records_without_several_translations_are_counted(run, tmp_path, capsys):
    given = tmp_path / "in.jsonl"
    records = [{"doc_id": "a", "source": "w1 w2"}, {"doc_id": "b", "source": "w1 w2\nw3"}]
    given.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = [json.loads(line) for line in run(given, "--nbest", "2").splitlines()]
    assert ["nbest" in record for record in found] == [True, False]
    assert "warning: 1 records have no nbest: they are empty, " in capsys.readouterr().err
    given.write_text(json.dumps(records[0]) + "\n")
    run(given, "--nbest", "2")
    assert "have no nbest" not in capsys.readouterr().err


def test_other_fields_of_json_lines_stay_as_they_are(run, tmp_path):
    """Numbers out of range, escapes that are no characters, and other spacing."""
    given = tmp_path / "in.jsonl"
    records = ['{"doc_id": "a", "n":1e400, "x": "\\ud800", "source": "w1 w2" }', '{"source":"w2"}']
    given.write_text("\r\n".join([records[0], records[1].replace("{", '{"doc_id":"b",')]))
    first, second = run(given, "--nbest", "2").splitlines()
    assert first.startswith(records[0][:-1] + ', "hypothesis": "')
    assert second.startswith('{"doc_id":"b","source":"w2", "hypothesis": "')
    assert all(len(json.loads(line)["nbest"]) == 2 for line in (first, second))


@pytest.mark.parametrize("workers", long_but_for(["1"], ["1", "2"]))
def test_samples_can_be_repeated(run, tmp_path, monkeypatch, workers):
    """Also by a run that is interrupted within a group, and goes on with more processes."""
    given, out = tmp_path / "in", tmp_path / "out"
    given.write_text(tiny.text_of(DOCS))
    monkeypatch.setattr(command, "SIZES", {"cpu": (3, 2000, 4000)})
    monkeypatch.setitem(globals(), "OPTIONS", ["--decoding", "sequential"])
    sampled = [given, "--sampling", "--max-len-b", "12"]
    first = run(*sampled)
    assert run(*sampled, "--seed", "1", "--workers", workers) == first
    assert len({first, *(run(*sampled, "--seed", str(seed)) for seed in (2, 3, 2**32 - 1))}) == 4
    dropout = [given, "--retain-dropout", "--attention-dropout", "0.2"]
    assert run(*dropout) == run(*dropout) != run(*dropout, "--seed", "2")
    kept, added = Journal.add, []

    def add(journal, number, document):
        if number == 1:
            raise KeyboardInterrupt
        added.append(number)
        kept(journal, number, document)

    with monkeypatch.context() as patched, pytest.raises(UserError, match="interrupted"):
        patched.setattr(Journal, "add", add)
        run(*sampled, "--out", out)
    with pytest.raises(UserError, match="holds the documents of a run with .*other options"):
        run(*sampled, "--out", out, "--batch-size", "1")
    run(*sampled, "--out", out, "--workers", workers)
    assert added == [0] and out.read_text() == first


@pytest.mark.long
def test_two_processes_give_the_same(run, wanted, tmp_path):
    given = tmp_path / "in"
    given.write_text(tiny.text_of(DOCS))
    assert run(given, "--workers", "2") == tiny.text_of(wanted)


class Fatal:
    """Settings that end the process that reads them."""

    def __reduce__(self):
        return os._exit, (1,)


class Slow:
    """Settings that a process never has read."""

    def __reduce__(self):
        return time.sleep, (600,)


def test_an_interruption_ends_the_processes(monkeypatch):
    """Their pool has no error of its own, which would be shown with a traceback."""
    broken = []
    monkeypatch.setattr(threading, "excepthook", broken.append)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 1)
    try:
        with pytest.raises(KeyboardInterrupt), running(Slow(), 2) as translate:
            list(translate([[(0, DOCS[0])]] * 9))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not multiprocessing.active_children()
    assert not broken


@pytest.mark.long  # a process that imports everything
def test_a_killed_process_is_reported():
    with pytest.raises(UserError, match="a process of --workers was killed"):
        with running(Fatal(), 2) as translate:
            list(translate([[(0, DOCS[0])]]))


def test_lines_and_blanks_come_back(run, tmp_path):
    """A file is one document, and its lines are paragraphs of sentences."""
    first, second = "w1 w2 w3 .", "W4 w5 !"
    given, plain = tmp_path / "in", tmp_path / "plain"
    given.write_text(f"  {first} {second}\n\n\n\t{first}")
    plain.write_text(f"{first}\n{second}\n{first}\n")
    one, two, three = run(plain).splitlines()
    found = run(given, "--split-sentences", "en")
    assert found == f"  {one} {two}\n\n\n\t{three}"


def test_empty_translations_are_named(run, tmp_path, capsys, monkeypatch):
    """Also of pieces that are only spaces; blank lines are no sentences."""
    given = tmp_path / "in"
    given.write_text("w1\n\nw2\n")
    run(given)
    assert "is empty" not in capsys.readouterr().err
    monkeypatch.setattr(DocumentTranslator, "_translation", lambda *_: Hypothesis(" ", 0.0))
    run(given)
    found = [line for line in capsys.readouterr().err.splitlines() if "is empty" in line]
    named = [f"warning: {given}: line {number}: the translation is empty" for number in (1, 3)]
    assert found == named
    given.write_text(
        "".join(json.dumps({"doc_id": "a", "segment": n, "text": "w1" * n}) + "\n" for n in (0, 1))
    )
    run(given)
    assert capsys.readouterr().err.count("is empty") == 1


def test_a_sentence_that_is_too_long_is_cut(run, tmp_path, capsys):
    given = tmp_path / "in"
    half = " ".join(["w1"] * 900)
    given.write_text(f"w2\n{half}, {half}\n")
    assert len(run(given, "--beam", "1").splitlines()) == 2
    assert "line 2: too long for the model; cut and put together again" in capsys.readouterr().err


def test_a_run_goes_on_where_it_was(run, tmp_path, monkeypatch):
    """Killed after two documents, while it wrote the third."""
    given, out, partial = tmp_path / "in", tmp_path / "out", tmp_path / "out.partial"
    given.write_text(tiny.text_of(DOCS))
    run(given, "--out", out)
    whole = out.read_text()
    out.unlink()
    added = []

    def add(journal, number, document):
        if len(added) == 2:
            raise KeyboardInterrupt
        added.append(number)
        kept(journal, number, document)

    kept = Journal.add
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add", add)
        with pytest.raises(UserError, match="interrupted; run the same command again to continue"):
            run(given, "--out", out)
    assert not out.exists()
    with open(partial, "a") as stream:
        stream.write('0123456789abcdef {"document": 2, "fou')
    with pytest.raises(UserError, match="another model, other options or other input; remove it"):
        run(given, "--out", out, "--lenpen", "0.5")
    shorter, ids = tmp_path / "shorter", tmp_path / "ids"
    shorter.write_text(tiny.text_of(DOCS[:-1]))
    ids.write_text("".join(f"{n // 2}\n" for n in range(given.read_text().count("\n"))))
    for others in ([shorter], [given, "--docids", ids]):
        with pytest.raises(UserError, match="another model, other options or other input; remove"):
            run(*others, "--out", out)
    good = partial.read_bytes()
    for changed in (good.replace(b'"found"', b'"lost"', 1), good.replace(b"v", b"w", 1)):
        partial.write_bytes(changed)
        with pytest.raises(UserError, match="out.partial: line 2 is damaged; remove the file to "):
            run(given, "--out", out)
    partial.write_bytes(good)
    with open(partial, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="out.partial is in use; another run writes this outp"):
            run(given, "--out", out)
    run(given, "--out", out)
    assert out.read_text() == whole
    assert not partial.exists()
    partial.mkdir()
    out.unlink()
    with pytest.raises(UserError, match="out.partial is no file; remove it to begin anew"):
        run(given, "--out", out)


def test_a_full_disk_loses_only_the_document_that_did_not_fit(tmp_path):
    path, (soft, hard) = str(tmp_path / "out.partial"), resource.getrlimit(resource.RLIMIT_FSIZE)
    document = Finished([[Hypothesis("w1", -1.0)]], [])
    journal = Journal(path, "run")
    journal.add(0, document)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(path) + 9, hard))
        with pytest.raises(UserError, match="out.partial cannot be written: File too large; run "):
            journal.add(1, document)
        journal.close(keep=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    again = Journal(path, "run")
    assert again.found == {0: document}
    again.close(keep=False)


@pytest.mark.parametrize("path", ["new/" + "x" * 300, "x" * 300 + "/out.partial"])
def test_a_journal_that_cannot_be_written_leaves_no_folder(tmp_path, path):
    with pytest.raises(UserError, match="cannot be written: File name too long"):
        Journal(str(tmp_path / path), "run")
    assert not list(tmp_path.iterdir())


def test_an_empty_value_is_no_input(run, tmp_path):
    """Also before another option, where the inputs could end."""
    (tmp_path / "in").write_text("w1\n")
    with pytest.raises(UserError, match="--replace-unk has no effect in translate; use fairseq"):
        run("--replace-unk", "", "--beam", "2", tmp_path / "in")


@pytest.mark.parametrize("name", ["in", "in/out", "in/../in/new/out", "link/out"])
def test_outputs_among_the_inputs_are_refused(run, tmp_path, name):
    """A second run would translate them."""
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "a").write_text("w1\n")
    with pytest.raises(UserError, match="is in .*/in, whose files are translated; give another"):
        run(tmp_path / "in", "--out", tmp_path / name)
    assert [*(tmp_path / "in").iterdir()] == [tmp_path / "in" / "a"]
    run(tmp_path / "in", "--out", tmp_path / "in2")


MISTAKES = {
    "no text": ("\n\n", [], "has no text to translate"),
    "several files to standard output": ("w1\n", ["FILE"], "several files need --out FOLDER"),
    "several files to a file": (
        "w1\n",
        ["FILE", "--out", "FILE"],
        "/in is a file; several files n",
    ),
    "two files of one name": ("w1\n", ["FILE", "--out", "FOLDER/o"], "have the same name"),
    "docids of records": (
        '{"doc_id": "a", "source": "w1"}',
        ["--docids", "FILE"],
        "--docids is for plain text, and .* names its documents; leave it out",
    ),
    "docids of a table": (
        "doc_id\tsource\na\tw1\n",
        ["--docids", "FILE"],
        "--docids is for plain text, and .* names its documents; leave it out",
    ),
    "docids of JSON without objects": ('"w1"\n"w2"', ["--docids", "IDS"], "seems to be JSON lines"),
    "subtitles": (
        "1\n00:00:01,000 --> 00:00:02,000\nw1 w2\n",
        [],
        "in seems to be subtitles with times; give its text alone, or give --input-format text",
    ),
    "subtitles as text": (
        "1\n00:00:01,000 --> 00:00:02,000\nw1 w2\n",
        ["--input-format", "text"],
        None,
    ),
    "a part of HTML": ("<p>w1</p>\n\n<p>w2</p>\n", [], "in seems to be mark-up without documents"),
    "documents of one id": (
        '{"doc_id": "a", "text": "w1\\nw2"}\n{"doc_id": "a", "text": "w1"}\n',
        [],
        "line 1 has a line break, but is one of 2 records of document a; give each document an id",
    ),
    "segments of a document apart": (
        '{"doc_id": 1, "text": "w1"}\n{"doc_id": 2, "text": "w1"}\n{"doc_id": 1, "text": "w2"}\n',
        [],
        "line 3 is of document 1, which other documents have followed; number the segments",
    ),
    "numbered segments of a document apart": (
        '{"doc_id": 1, "seg": 1, "text": "w1"}\n{"doc_id": 2, "seg": 1, "text": "w1"}\n'
        '{"doc_id": 1, "seg": 2, "text": "w2"}\n',
        [],
        None,
    ),
    "rows of a document apart": (
        "doc_id\tsrc\na\tw1\nb\tw1\nb\tw2\na\tw1\n",
        [],
        "line 5 is of document a, which other documents have followed; number the segments",
    ),
    "line breaks in a table": (
        'doc_id\tsrc\na\tw1\nb\t"w1\nw2"\n',
        [],
        "line 3 has a cell with a line break; write the table as JSON lines by `fairseq-docmt co",
    ),
    "documents of one id in SGM": (
        sgm().replace(f'docid="{NAMES[1]}"', f'docid="{NAMES[0]}"'),
        [],
        f"the file already has a document {NAMES[0]}; rename one",
    ),
    "a comment in SGM": (
        sgm().replace("<seg", "<!-- <seg", 1).replace("</seg>", "</seg> -->", 1),
        [],
        "line 3: the comment has a <seg>; remove it",
    ),
    "XML of another kind": (
        "<tmx>\n<tu><seg>w1</seg></tu>\n</tmx>",
        [],
        "in seems to be mark-up without documents and segments",
    ),
    "a table of Excel": (
        "sep=;\ndoc_id;src\na;w1\n",
        [],
        "in seems to be a table below Excel's line sep=, which must be removed; give its text",
    ),
    "line breaks in numbered segments": (
        '{"doc_id": "a", "segment": 1, "text": "w1\\nw2"}\n'
        '{"doc_id": "a", "segment": 2, "text": "w1"}\n',
        [],
        None,
    ),
    "half of a character": (
        r'{"doc_id": "a", "x": "\ud801", "source": "w1 \ud800"}',
        [],
        r"line 1: '.ud800' is half of a character, which UTF-8 cannot hold",
    ),
    "a list of texts": (
        '{"doc_id": "a", "source": ["w1", "w2"]}',
        [],
        '"source" has 2 texts; for the sentences of a document, give one text with line breaks',
    ),
    "two sources in XML": (
        '<dataset>\n<doc id="a"><src lang="en"><seg id="1">w1</seg></src><src lang="cs">'
        '<seg id="1">w2</seg></src></doc></dataset>',
        [],
        "document a has several src elements without a name; leave one",
    ),
    "repeated segments of XML": (
        '<dataset>\n<doc id="a"><src><p><seg id="1">w1</seg>\n<seg id="1">w2</seg></p></src></doc>'
        "</dataset>",
        [],
        "in: line 3: document a already has a segment 1",
    ),
    "repeated segments of SGM": (
        '<srcset setid="t">\n<doc docid="a">\n<seg id="1">w1</seg>\n<seg id="1">w2</seg>\n</doc>\n'
        "</srcset>",
        [],
        "in: line 4: document a already has a segment 1",
    ),
    "texts in different fields": (
        '{"doc_id": "a", "source": "w1", "text": "w2"}\n{"doc_id": "b", "text": "w3"}',
        [],
        'line 2 has its text in "text", but .*line 1 in "source"; rename the fields',
    ),
    "segments of XML in another order": (
        '<dataset>\n<doc id="a"><src><p><seg id="2">w1</seg>\n<seg id="1">w2</seg></p></src></doc>'
        "</dataset>",
        [],
        "in: line 3: segment 1 follows segment 2; put segments in the order of their numbers",
    ),
    "a compressed output": ("w1\n", ["--out", "FILE.gz"], "translations are not compressed; leav"),
    "no name": ("w1\n", ["--out", ""], "--out is empty; give a file or a value"),
    "an output that is there": ("w1\n", ["--out", "FILE"], "is already there; remove it"),
    "a misspelt option": ("w1\n", ["--lenpan", "1"], "unknown option lenpan; do you mean lenpen?"),
    "subwords to join": ("w1\n", ["--remove-bpe"], "--remove-bpe has no effect in translate, wh"),
    "sizes by another name": ("w1\n", ["--max-sentences", "1"], None),
    "constraints": ("w1\n", ["--constraints"], "no effect in translate; use fairseq-interactive"),
    "a value": ("w1\n", ["--min-len", "few"], "min_len must be a whole number, got 'few'"),
    "a word too many": ("w1\n", ["--lenpen", "1", "--seed", "1", "x"], "x belongs to no option"),
    "n-best of text": ("w1\n", ["--nbest", "2"], "--nbest 2 needs JSON lines as input"),
    "document ids": ("w1\n", ["--docids", "FILE"], None),
    "other ids": ("w1\nw2\n", ["--docids", "IDS"], "--docids has 1 lines, but .* has 2"),
    "JSON lines whose first line is cut": (
        '{"doc_id": "a", "source": "w1"\n{"doc_id": "a", "source": "w1"}\n',
        [],
        r"in: line 1 is not valid JSON \(Expecting ',' delimiter\); correct it",
    ),
    **{
        f"JSON lines after {first!r}": (
            first + '\n{"doc_id": "a", "source": "w1"}\n',
            [],
            rf"in: line 1 is {what}.*; correct it, or give --input-format text",
        )
        for first, what in (
            ("{", "not valid JSON"),
            ("{'source': 'w1'}", "not valid JSON"),
            (' {"source": "w1\t"}', "not valid JSON"),
            ("w1 w2", "not valid JSON"),
            ("null", "no JSON object, but line 2 is"),
            ("[1]", "no JSON object, but line 2 is"),
        )
    },
    "no seed": ("w1\n", ["--no-seed-provided"], "no effect in translate; give another --seed for"),
    "damaged JSON over several lines": (
        '[{"source": "w1",\n "doc_id": x}]',
        [],
        r"in: line 2 is not valid JSON \(Expecting value\); correct it",
    ),
    "damaged JSON": (
        '{"doc_id": "a", "source": "w1\t"}\n{"doc_id": "a", "source": "w1"}\n',
        [],
        r"in: line 1 is not valid JSON \(Invalid control char.*; correct it, or give --input-form",
    ),
    "JSON array": ('[{"source": "w1"}]', [], "seems to be JSON in another form"),
    "JSON strings": ('"w1"\n"w2"\n', [], "seems to be JSON lines without objects, or text with"),
    "a field that is taken": (
        '{"doc_id": "a", "source": "w1", "hypothesis": "v1"}',
        [],
        'line 1 already has the field "hypothesis"; remove or rename it',
    ),
    "a list that is taken": (
        '{"doc_id": "a", "source": "w1", "nbest": []}',
        [],
        'line 1 already has the field "nbest"; remove or rename it',
    ),
    "overrides": (
        "w1\n",
        ["--model-overrides", "{}"],
        "--model-overrides has no effect in translate; give the options of the model themselves",
    ),
    "a colon": ("w1\n", ["--model", "a:"], "--model a: has an empty path; leave out the : beside"),
    "drafts": ("w1\n", ["--drafts", "x"], "--drafts has no effect in .*; use fairseq-generate"),
    "no long sentences": (
        "w1\n",
        ["--skip-invalid-size-inputs"],
        "has no effect in translate, which cuts sentences that are too long for the model into",
    ),
    "a seed": (
        "w1\n",
        ["--seed", "3"],
        "--seed is for --sampling and --retain-dropout; leave it out",
    ),
    "a seed below 0": (
        "w1\n",
        ["--sampling", "--seed", "-3"],
        "--seed must be from 0 to 4294967295, got -3",
    ),
    "an option of fairseq's commands": (
        "w1\n",
        ["--num-workers", "2"],
        "num_workers is for fairseq's commands and has no effect here; leave it out",
    ),
    "cut sentences": ("w1\n", ["--truncate-source"], "--truncate-source has no effect in transl"),
    "another task": (
        "w1\n",
        ["--task", "full_document_translation"],
        "--task has no effect in translate, which translates with the task of training; leave it",
    ),
    "a package that is not there": ("w1\n", ["--user-dir", "nowhere"], "user_dir nowhere not foun"),
    "fields of other names": (
        '{"id": "a", "source": "w1"}',
        [],
        "no .doc_id., only id, source; rename the fields to doc_id and source, or convert the file",
    ),
    "a text of another name": (
        '{"doc_id": "a", "words": "w1"}',
        [],
        "none of the fields source, .*; rename the fields to doc_id and source, or convert",
    ),
    "a symbol": ("w1\nw2 <sep>\n", [], "line 2.*reserved for a symbol of the model"),
    "workers": ("w1\n", ["--workers", "0"], "--workers must be 1, or on a CPU more; got 0 on cpu"),
    "a language": ("w1\n", ["--split-sentences", "klingon"], "spaCy has no such language"),
    "a name for nothing": ("w1\n", ["--system", "x"], "--system names the system in XML and SGM"),
    "a blank name": ("<srcset><doc docid=a><seg>w1</seg>", ["--system", " "], "give a name"),
    "a name to control": ("<srcset><doc docid=a><seg>w1</seg>", ["--system", "\1"], "give a name"),
    "an option of another command": (
        "w1\n",
        ["--gen-subset", "x"],
        "--gen-subset has no effect in",
    ),
    **{
        f"replacement of unknown words, {name}": (
            "w1\n",
            ["--replace-unk", *value],
            "--replace-unk has no effect in translate; use fairseq-generate or fairseq-interactive",
        )
        for name, value in (("no file", []), ("a file", [__file__]))
    },
    "no tokens in a batch": (
        "w1\n",
        ["--max-tokens", "0"],
        "--max-tokens must be at least 1, got 0",
    ),
    "padding": ("w1\n", ["--left-pad-source", "True"], "--left-pad-source has no effect in transl"),
    "a device": ("w1\n", ["--device", "cuda:7"], "device cuda:7 cannot be used"),
}


@pytest.mark.parametrize("form", ["sgm", "xml"])
def test_another_source_language(run, tmp_path, capsys, form):
    for declared, says in (("cze", True), ("SRC-x", False), ("cs", False)):
        text = sgm().replace("any", declared) if form == "sgm" else xml()
        (tmp_path / "in").write_text(text.replace("<src>", f'<src lang="{declared}">'))
        run(tmp_path / "in")
        note = f"in declares its source as {declared}, but the model translates src"
        assert (note in capsys.readouterr().err) == says


@pytest.mark.parametrize(
    "codes, differ",
    [(("cs", "en"), True), (("en-US", "en_XX"), False), (("eng", "en"), False)],
)
def test_codes_of_languages(codes, differ):
    assert command._differ(*codes) == command._differ(*codes[::-1]) == differ
    assert not command._differ(codes[0], None)


def test_languages_that_a_checkpoint_stores(monkeypatch):
    stored = SimpleNamespace(settings={"task": {"source_lang": "de", "target_lang": "en"}})
    monkeypatch.setattr("fairseq_docmt.checkpoint_file.read_translation_model", lambda path: stored)
    assert command._languages(SimpleNamespace(model="x", data="")) == ("de", "en")


def test_lines_of_a_document_that_are_apart(run, tmp_path):
    (tmp_path / "in").write_text("w1\nw2\nw3\nw4\n")
    (tmp_path / "ids").write_text("a\na\nb\na\n")
    with pytest.raises(UserError, match="ids: line 4 goes on with document a, which ended before"):
        run(tmp_path / "in", "--docids", tmp_path / "ids")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(run, tmp_path, name):
    text, options, message = MISTAKES[name]
    given, ids = tmp_path / "in", tmp_path / "ids"
    given.write_text(text)
    ids.write_text("a\n")
    names = {"FILE": given, "IDS": ids, "FOLDER/o": tmp_path / "o"}
    options = [names.get(option, option) for option in options]
    if message is None:
        run(given, *options)
        return
    with pytest.raises(UserError, match=message):
        run(given, *options)
    assert given.read_text() == text


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=LONG)])
@pytest.mark.parametrize("out", ["out", "new/folder/out"])
def test_a_refused_option_leaves_no_file(run, tmp_path, workers, out):
    (tmp_path / "in").write_text(tiny.text_of(DOCS))
    with pytest.raises(UserError, match="unknown option lenpan"):
        run(tmp_path / "in", "--out", tmp_path / out, "--lenpan", "1", "--workers", workers)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_pipe_is_read_once(run, tmp_path):
    (tmp_path / "in").write_bytes(tiny.text_of(DOCS).replace("\n", "\r\n").encode())
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(f"cat {tmp_path}/in > {tmp_path}/pipe", shell=True):
        run(str(tmp_path / "pipe"), "--out", str(tmp_path / "piped"))
    run(str(tmp_path / "in"), "--out", str(tmp_path / "out"))
    assert (tmp_path / "piped").read_bytes() == (tmp_path / "out").read_bytes()


@pytest.mark.parametrize("ends", ["\r\n", "\n"])
def test_line_ends_come_back(run, wanted, tmp_path, ends):
    given, out = tmp_path / "in.txt", tmp_path / "out.txt"
    given.write_bytes(tiny.text_of(DOCS).replace("\n", ends).encode())
    run(str(given), "--out", str(out))
    text = "\n\n".join("\n".join(document) for document in wanted) + "\n"
    assert out.read_bytes().decode().rstrip() == text.replace("\n", ends).rstrip()


def test_inputs_may_follow_the_options_of_fairseq(window_checkpoint, run, tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text(tiny.text_of(DOCS))
    monkeypatch.chdir(tmp_path)
    wanted = run("in.txt", "--no-repeat-ngram-size", "2", "--unnormalized")
    found = tiny.run_main(
        command_line.main,
        *["translate", "--device", "cpu", "--model", window_checkpoint, "--no-repeat-ngram-size"],
        *["2", *OPTIONS, "--unnormalized", "in.txt"],
    )
    assert found == wanted != run("in.txt")


def test_files_of_options_are_no_inputs(window_checkpoint, tmp_path):
    (tmp_path / "in").write_text("w1\n")
    given = ["translate", "--device", "cpu", "--model", window_checkpoint, "--lm-weight", "0.3"]
    with pytest.raises(UserError, match="only fairseq-generate loads --lm-path"):
        tiny.run_main(
            command_line.main, *given, "--lm-path", window_checkpoint, str(tmp_path / "in")
        )
