"""Preparation of a corpus, from raw text to binarised data.

Covers text_form.py.
"""

import argparse
import errno
import functools
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import line_functions
import prepare
import pytest
import stages
import subwords
import tiny
from check_documents import CorpusError, check_lines
from fairseq.data import Dictionary, data_utils, encoders
from fairseq_cli import preprocess
from long_tests import LONG, long_but_for

TEXT = {
    "en": "Hello, world!\nIt's a test - isn't it?\n\nSecond-rate document & more.\nFine.\n",
    "zh": "你好，世界！\n这是一个测试 不是吗\n\n第二个文件。\n好的。\n",
}


@pytest.fixture
def corpus(tmp_path):
    for split in ("train", "valid", "test", "more"):
        for language, text in TEXT.items():
            (tmp_path / f"{split}.{language}").write_text(text * 3, encoding="utf-8")
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """Record the commands instead of running fairseq-preprocess, which is slow."""
    commands = []

    def run(command, folder):
        commands.append(command)
        destination = Path(command[command.index("--destdir") + 1])
        destination.mkdir(exist_ok=True)
        (destination / "binarised").write_text(str(len(commands)))

    monkeypatch.setattr(prepare, "_run", run)
    return commands


@pytest.fixture
def here(monkeypatch):
    """Run fairseq-preprocess in this process, which has imported everything."""
    monkeypatch.setattr(prepare, "_run", tiny.binarise_here)


def options(corpus, *extra, out="out"):
    return [
        *["--source-lang", "zh", "--target-lang", "en", "--workers", "1"],
        *["--train", str(corpus / "train"), "--valid", str(corpus / "valid")],
        *["--test", str(corpus / "test"), str(corpus / "more")],
        *["--destdir", str(corpus / out), "--bpe-operations", "20", *extra],
    ]


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def binarised(folder, name, language):
    dictionary = Dictionary.load(str(folder / f"bin/dict.{language}.txt"))
    data = data_utils.load_indexed_dataset(str(folder / f"bin/{name}.zh-en.{language}"))
    return data.sizes, [dictionary.string(data[i]) for i in range(len(data))]


# ---- results -------------------------------------------------------------------------------------


def test_from_raw_text_to_binarised_documents(corpus):
    folder = corpus / "out, with a comma"
    prepare.main(options(corpus, out=folder.name))
    for name in ("train", "valid", "test", "test1"):
        for language in TEXT:
            subwords = lines_of(folder / f"text/subwords/{name}.{language}")
            sizes, lines = binarised(folder, name, language)
            assert lines == subwords
            blank = [not line for line in lines_of(folder / f"text/raw/{name}.{language}")]
            assert blank == [not line for line in (TEXT[language] * 3).split("\n")[:-1]]
            assert (sizes == 1).tolist() == blank
    assert lines_of(folder / "text/tokenized/test.en")[0] == "Hello , world !"
    assert (folder / "codes").exists()


def test_without_subwords_and_with_one_dictionary(corpus, here, capfd):
    prepare.main(options(corpus, "--bpe-operations", "0", "--joined-dictionary", "--workers", "3"))
    printed = capfd.readouterr()
    assert "train: 4 documents, 12 sentence pairs" in printed.out
    assert not any(level in printed.err for level in ("INFO", "DEBUG", "WARNING"))
    folder = corpus / "out"
    assert (folder / "bin/dict.zh.txt").read_text() == (folder / "bin/dict.en.txt").read_text()
    assert not (folder / "text/subwords").exists()
    assert binarised(folder, "test", "en")[1] == lines_of(folder / "text/tokenized/test.en")


def test_dictionaries_of_the_most_frequent_words(corpus, here, capfd):
    plain = ("--bpe-operations", "0", "--source-tokenizer", "none", "--target-tokenizer", "none")
    prepare.main(options(corpus, *plain, "--words", "2"))
    words = lines_of(corpus / "out" / "text" / "raw" / "train.en")
    counts = Counter(word for line in words for word in line.split())
    known = [line.split()[0] for line in lines_of(corpus / "out" / "bin" / "dict.en.txt")]
    assert [counts[word] for word in known[:2]] == sorted(counts.values(), reverse=True)[:2]
    assert all(word.startswith("madeupword") for word in known[2:])
    assert re.search(
        r"en: [\d.]+% of the training words are not among the 2 ", capfd.readouterr().out
    )
    prepare.main(options(corpus, *plain))  # all words: another dictionary
    assert len(lines_of(corpus / "out" / "bin" / "dict.en.txt")) > len(known)


def test_separate_subwords_and_truecasing(corpus, quick):
    for split in ("train", "valid"):
        (corpus / f"{split}.en").write_text("He is here.\nHere he is.\n\nIs he?\nHe is.\n" * 3)
    prepare.main(options(corpus, "--separate-bpe", "--truecase"))
    folder = corpus / "out"
    assert {"codes.zh", "codes.en", "truecase.en"} <= {path.name for path in folder.iterdir()}
    truecased = lines_of(folder / "text/truecased/train.en")
    assert truecased[:4] == ["he is here .", "here he is .", "", "is he ?"]
    assert lines_of(folder / "text/truecased/train.zh") == lines_of(
        folder / "text/tokenized/train.zh"
    )


@pytest.mark.parametrize("tokenizer, language", [("jieba", "zh"), ("moses", "en")])
def test_fairseq_takes_raw_text_there_and_back(corpus, quick, tokenizer, language):
    """``--tokenizer moses --bpe subword_nmt``, as fairseq-interactive and -generate use them."""
    import fairseq_docmt  # noqa: F401  (registers the jieba tokenizer)

    prepare.main(options(corpus, "--separate-bpe"))
    args = argparse.Namespace(
        tokenizer=tokenizer,
        source_lang=language,
        target_lang="en",
        bpe="subword_nmt",
        bpe_codes=str(corpus / f"out/codes.{language}"),
        bpe_separator="@@",
    )
    cut, segment = encoders.build_tokenizer(args), encoders.build_bpe(args)
    raw = lines_of(corpus / f"out/text/raw/test.{language}")
    subwords = lines_of(corpus / f"out/text/subwords/test.{language}")
    assert [segment.encode(cut.encode(line)) if line else "" for line in raw] == subwords
    if language == "en":
        assert [cut.decode(segment.decode(line)) for line in subwords] == raw


def test_line_ends_and_outer_blanks_are_made_uniform(corpus, quick):
    for language in TEXT:
        text = "\u3000\r\n" + TEXT[language].replace("\n", " \r\n")
        (corpus / f"test.{language}").write_bytes(text.encode())
    prepare.main(options(corpus))
    raw = (corpus / "out/text/raw/test.en").read_bytes()
    assert raw == b"\n" + TEXT["en"].encode()


def test_merges_equal_those_of_subword_nmt(tmp_path):
    from subword_nmt.learn_bpe import learn_bpe

    source, ours, theirs = tmp_path / "text", tmp_path / "ours", tmp_path / "theirs"
    source.write_text("the other one then\n\nother then others\n" * 5)
    subwords.learn_codes([source], ours, 8)
    with open(source) as text, open(theirs, "w") as codes:
        learn_bpe(text, codes, 8)
    assert ours.read_text() == theirs.read_text()


def written(folder):
    """Contents of all files but fairseq's log, which has the time."""
    return {
        os.path.relpath(path, folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".stamps" not in path.parts and path.name != "preprocess.log"
    }


def random_corpus(folder, documents=60):
    """Corpus of several blocks of lines, with documents of 1 to 9 sentences of 1 to 9 words."""
    draw = random.Random(1)
    words = {"en": ["Mr.", "isn't", "a-b", "5,300", "naïve", "&", "(x)", "the", "of"]}
    words["zh"] = ["你好", "世界", "，", "测试", "第二个", "。", "3.5%", "的", "文件"]
    for split, size in (("train", documents), ("valid", 9), ("test", 9), ("more", 1)):
        lengths = [[draw.randint(1, 9) for _ in range(draw.randint(1, 9))] for _ in range(size)]
        for language in TEXT:
            between = " " if language == "en" else ""
            sentences = (
                "\n".join(between.join(draw.choices(words[language], k=n)) for n in document)
                for document in lengths
            )
            (folder / f"{split}.{language}").write_text("\n\n".join(sentences) + "\n", "utf-8")


@LONG
def test_workers_do_not_change_a_byte(tmp_path, monkeypatch, here):
    random_corpus(tmp_path, documents=15)
    monkeypatch.setattr(stages, "CHUNK", 7)
    for workers in "13":
        more = ["--separate-bpe", "--truecase", "--workers", workers]
        prepare.main(options(tmp_path, *more, out=workers))
    one, three = (written(tmp_path / workers) for workers in "13")
    assert one == three and "bin/train.zh-en.zh.idx" in one


@pytest.mark.parametrize("joined", [False, True])
def test_dictionaries_are_those_of_fairseq(tmp_path, here, joined):
    """Made anew by fairseq-preprocess, they and the data have the same bytes."""
    random_corpus(tmp_path)
    prepare.main(options(tmp_path, *["--joined-dictionary"][:joined]))
    text, own, theirs = (tmp_path / name for name in ("out/text/subwords", "out/bin", "theirs"))
    command = ["-s", "zh", "-t", "en", "--trainpref", text / "train", "--destdir", theirs]
    command += ["--workers", "2", *["--joined-dictionary"][:joined]]
    tiny.run_main(preprocess.cli_main, *command)
    names = {path.name for path in theirs.iterdir()} - {"preprocess.log"}
    assert len(names) == 6
    assert all((own / name).read_bytes() == (theirs / name).read_bytes() for name in names)


# ---- resuming ------------------------------------------------------------------------------------


def modified(corpus):
    return {
        os.path.relpath(path, corpus / "out"): path.stat().st_mtime_ns
        for path in (corpus / "out").rglob("*")
        if path.is_file() and ".stamps" not in path.parts
    }


def test_a_second_run_does_nothing_and_a_change_redoes_what_it_touches(corpus, quick):
    prepare.main(options(corpus))
    before = modified(corpus)
    prepare.main(options(corpus))
    assert modified(corpus) == before and len(quick) == 1
    for language, line in (("en", "One more.\n"), ("zh", "再来。\n")):
        with open(corpus / f"valid.{language}", "a", encoding="utf-8") as stream:
            stream.write(line)
    prepare.main(options(corpus))
    after = modified(corpus)
    changed = {path for path in after if after[path] != before.get(path)}
    kinds = ("raw", "tokenized", "subwords")
    text = {f"text/{kind}/valid.{language}" for kind in kinds for language in TEXT}
    dictionaries = {f"bin/dict.{language}.txt" for language in TEXT}
    assert changed == text | dictionaries | {"bin/binarised", "bin/codes", "bin/text_form.json"}


@pytest.mark.parametrize("damaged", ["text/subwords/train.en", "codes", "bin/binarised"])
def test_a_result_that_was_changed_is_made_again(corpus, quick, capsys, damaged):
    """Also if the size of the file stays the same."""
    prepare.main(options(corpus))
    path = corpus / "out" / damaged
    whole = path.read_bytes()
    for change in (whole + b"one more line\n", b"?" + whole[1:]):
        path.write_bytes(change)
        capsys.readouterr()
        prepare.main(options(corpus))
        said = f"{path} has changed since it was written; making it again"
        assert said in capsys.readouterr().err.splitlines()
        assert path.read_bytes().strip() in (whole.strip(), b"2", b"3")


def test_two_preparations_of_one_folder(corpus, quick, monkeypatch):
    """The second process is refused and changes nothing; later the folder is free again."""
    refused = []
    run = prepare._run

    def run_and_try_again(*arguments):
        with pytest.raises(SystemExit) as stop:
            prepare.main(options(corpus))
        refused.append(stop.value.code)
        run(*arguments)

    monkeypatch.setattr(prepare, "_run", run_and_try_again)
    prepare.main(options(corpus))
    assert refused == [
        f"error: another preparation is writing to {corpus / 'out'}; wait for it, or give another "
        "--destdir"
    ]
    prepare.main(options(corpus))


@pytest.mark.parametrize("name", ["text/raw/train.zh", "text/tokenized/test.en", "codes"])
def test_a_full_disk_is_named(corpus, quick, monkeypatch, name):
    class Full(io.StringIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def writelines(self, lines):
            list(map(self.write, lines))

    def fill(path, *arguments, **keywords):
        return (
            Full()
            if stages.PARTIAL.sub("", str(path)).endswith(name) and "partial" in str(path)
            else open(path, *arguments, **keywords)
        )

    for module in (subwords, stages):
        monkeypatch.setattr(module, "open", fill, raising=False)
    with pytest.raises(SystemExit) as stop:
        prepare.main(options(corpus))
    assert stop.value.code == (
        f"error: {corpus / 'out' / name}: No space left on device; free some space and run the "
        "same command again"
    )
    assert not (corpus / "out" / name).exists() and not quick


def test_the_binarised_folder_says_how_its_text_was_made(corpus, quick):
    prepare.main(options(corpus, "--separate-bpe", "--truecase"))
    assert json.loads((corpus / "out/bin/text_form.json").read_text()) == {
        "zh": {"tokenizer": "jieba", "truecaser": "truecase.zh", "bpe_codes": "codes.zh"},
        "en": {"tokenizer": "moses", "truecaser": "truecase.en", "bpe_codes": "codes.en"},
    }
    for name in ("truecase.zh", "codes.en"):
        assert (corpus / "out/bin" / name).read_text() == (corpus / "out" / name).read_text()
    prepare.main(options(corpus, "--bpe-operations", "0", "--target-tokenizer", "none"))
    assert json.loads((corpus / "out/bin/text_form.json").read_text()) == {
        "zh": {"tokenizer": "jieba", "truecaser": None, "bpe_codes": None},
        "en": {"tokenizer": "none", "truecaser": None, "bpe_codes": None},
    }


@pytest.mark.parametrize(
    "extra, changed",
    [
        (["--bpe-operations", "30"], {"codes", "text/subwords/train.en"}),
        (["--target-tokenizer", "none"], {"codes", "text/tokenized/train.en"}),
        (["--joined-dictionary"], {"bin/binarised"}),
    ],
)
def test_other_options_redo_what_depends_on_them(corpus, quick, extra, changed):
    prepare.main(options(corpus))
    before = modified(corpus)
    prepare.main(options(corpus, *extra))
    after = modified(corpus)
    assert changed <= {path for path in after if after[path] != before.get(path)}
    assert after["text/tokenized/train.zh"] == before["text/tokenized/train.zh"]
    assert len(quick) == 2


@pytest.mark.parametrize(
    "module, function", [(prepare, "_run"), (prepare, "learn_codes"), (stages, "_map")]
)
def test_an_interruption_is_said_and_resumed(corpus, quick, monkeypatch, capsys, module, function):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, function, interrupted)
        with pytest.raises(SystemExit) as stop:
            prepare.main(options(corpus))
    assert stop.value.code == 130
    assert "run the same command again" in capsys.readouterr().err
    assert not (corpus / "out/bin").exists()
    before = {path: t for path, t in modified(corpus).items() if "partial" not in path}
    prepare.main(options(corpus))
    after = modified(corpus)
    assert all(after[path] == before[path] for path in before)
    assert "bin/binarised" in after and not any("partial" in path for path in after)


@pytest.mark.parametrize("how", long_but_for([signal.SIGKILL], [signal.SIGINT, signal.SIGKILL]))
def test_a_killed_preparation_is_resumed(tmp_path, quick, how):
    """Its workers end with it and leave the folder unlocked; the result is that of one go."""
    random_corpus(tmp_path, documents=600)
    arguments = options(tmp_path, "--separate-bpe", "--workers", "3")
    command = [sys.executable, prepare.__file__, *arguments]
    # Programs that a shell runs in the background ignore SIGINT, and so do those they start.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    partial = tmp_path / f"out/text/tokenized/train.en.{process.pid}.partial"
    while process.poll() is None and not (partial.exists() and partial.stat().st_size):
        time.sleep(0.001)
    process.send_signal(how)
    process.communicate(timeout=30)  # all processes that hold its output have ended
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    done = {name: t for name, t in modified(tmp_path).items() if "partial" not in name}
    assert "text/raw/train.zh" in done
    prepare.main(arguments)
    after = modified(tmp_path)
    assert all(after[name] == t for name, t in done.items())
    prepare.main([*arguments, "--workers", "1", "--destdir", str(tmp_path / "one")])
    resumed, one = (written(tmp_path / name) for name in ("out", "one"))
    assert {**resumed, "bin/binarised": b"2"} == one


def test_binarising_ends_with_a_killed_preparation(tmp_path):
    """Else it would go on, and write to the folder of the next run."""
    (tmp_path / "fairseq_cli").mkdir()
    (tmp_path / "fairseq_cli/__init__.py").touch()
    (tmp_path / "fairseq_cli/preprocess.py").write_text(
        "import os, time\n"
        "def cli_main():\n"
        "    open('pid', 'w').write(f'{os.getpid()}\\n')\n"
        "    time.sleep(600)\n"
    )
    script = "import prepare, sys; prepare._run([sys.executable, '-c', prepare.PREPROCESS], '.')"
    environment = {**os.environ, "PYTHONPATH": str(Path(prepare.__file__).parent)}
    command, pid = [sys.executable, "-c", script], tmp_path / "pid"
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as parent:
        while not (pid.exists() and pid.read_text().endswith("\n")):
            assert parent.poll() is None
            time.sleep(0.01)
        parent.kill()
    for _ in range(200):
        try:
            os.kill(int(pid.read_text()), 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("it goes on")


def test_what_a_killed_run_has_not_finished_is_removed(tmp_path):
    runner = stages.Stages(tmp_path)
    source, result = tmp_path / "in", tmp_path / "result"
    source.write_text("a")
    old, other = tmp_path / "result.1.partial", tmp_path / "result.de.1.partial"
    for folder in (old, other):
        folder.mkdir()
        (folder / "half").write_text("b")

    def work(path):
        assert path.name == f"result.{os.getpid()}.partial" and not old.exists()
        path.write_text("c")

    runner.run("stage", [source], result, {}, work)
    assert result.read_text() == "c" and other.exists()


def test_a_stage_that_fails_leaves_nothing_half_written(tmp_path):
    runner = stages.Stages(tmp_path)
    source, result = tmp_path / "in", tmp_path / "result"
    source.write_text("a")

    def half(path):
        path.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        runner.run("s", [source], result, {}, half)
    assert not result.exists()
    runner.run("s", [source], result, {}, lambda path: path.write_text("whole"))
    assert result.read_text() == "whole"
    with pytest.raises(RuntimeError):
        runner.run("s", [source], result, {"n": 2}, half)
    assert result.read_text() == "whole"  # the old one, which no stamp vouches for
    runner.run("s", [source], result, {}, lambda path: path.write_text("again"))
    assert result.read_text() == "again"
    (tmp_path / ".stamps/s.json").write_text("{")  # a stamp that cannot be read
    runner.run("s", [source], result, {}, lambda path: path.write_text("once more"))
    assert result.read_text() == "once more"


# ---- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "break_it, message",
    [
        (lambda c: (c / "train.en").unlink(), r"error: .*train\.en: cannot be read"),
        (lambda c: (c / "test.en").write_text("x\n"), r"error: .*test\.zh: line 2 has no count"),
        (lambda c: (c / "more.zh").write_bytes(b"\xff\n"), r"error: .*more\.zh: line 1 is not"),
        (lambda c: (c / "out").write_text("a file"), r"error: --destdir .*out is a file; give"),
    ],
)
def test_bad_input_gets_one_sentence_and_nothing_is_binarised(corpus, quick, break_it, message):
    break_it(corpus)
    with pytest.raises(SystemExit, match=message):
        prepare.main(options(corpus))
    assert not quick


def test_the_copies_of_a_split_are_not_another_split(corpus, quick):
    prepare.main(options(corpus))
    before, raw = written(corpus / "out"), corpus / "out" / "text" / "raw"
    message = "raw/test.zh is given as another split, but test is written there; copy it elsewhere"
    with pytest.raises(SystemExit, match=message):
        prepare.main(options(corpus, "--test", str(raw / "test1"), str(raw / "test")))
    assert written(corpus / "out") == before
    prepare.main(options(corpus, "--test", str(raw / "test"), str(raw / "test1")))
    assert written(corpus / "out") == before


@pytest.mark.parametrize(
    "extra, message",
    [
        (["--source-lang", "en"], "are both 'en'"),
        (["--bpe-operations", "-1"], "--bpe-operations must not be negative"),
        (["--bpe-operations", "0", "--words", "0"], "--words must be at least 1, got 0"),
        (["--words", "9"], "--words limits dictionaries of words; give it with --bpe-operations 0"),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--train", "train.en"], "--train takes the name without the language: train"),
        (["--vocabulary-size", "0"], "--vocabulary-size must be at least 1, got 0"),
        (["--vocabulary-size", "99"], "--vocabulary-size is for --subword sentencepiece, which le"),
        (
            ["--bpe-operations", "0", "--separate-bpe"],
            "--separate-bpe is for subwords; leave it ou",
        ),
        (["--bpe-operations", "0", "--bpe-total-symbols"], "--bpe-total-symbols is for subwords; "),
        (
            ["--subword", "sentencepiece", "--bpe-operations", "9"],
            "--bpe-operations is for --subword bpe; leave it out with SentencePiece",
        ),
        (
            ["--sentencepiece-model", "m", "--vocabulary-size", "9"],
            "--bpe-operations is for --subword bpe; leave it out with SentencePiece",
        ),
    ],
)
def test_bad_options_get_one_sentence(corpus, extra, message):
    with pytest.raises(SystemExit, match=message):
        prepare.main(options(corpus, *extra))


@pytest.mark.parametrize(
    "text, message",
    [
        (b"hello 3\nworld\n", r"dict: line 2 \('world'\) must be a word, a space and its count"),
        (b"hello 3\nworld 2\nhello 1\n", r"dict: line 3 repeats the word 'hello'; remove it"),
        (b"hello 3\n\xff 2\n", "dict: line 2 is not valid UTF-8"),
        (b"", "dict: the file has no words"),
    ],
)
def test_a_bad_dictionary_is_refused_before_all_stages(corpus, text, message):
    (corpus / "dict").write_bytes(text)
    with pytest.raises(SystemExit, match=message):
        prepare.main(options(corpus, "--dictionary", str(corpus / "dict")))
    assert not (corpus / "out").exists()


def test_words_that_are_symbols_are_refused(corpus, quick):
    text = TEXT["en"].replace("Fine.", "a <sep> b")
    (corpus / "test.en").write_text(text * 3, encoding="utf-8")
    prepare.main(options(corpus, "--bpe-operations", "0"))  # Moses writes < and > in another way
    with pytest.raises(SystemExit, match=r"test\.en: line 5 has the word <sep>, which is reserved"):
        prepare.main(options(corpus, "--bpe-operations", "0", "--target-tokenizer", "none"))


def test_error_messages_of_fairseq_are_printed(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # output may come after the error
    for program, message in (
        ("print('one'); raise ValueError('two')", r"failed \(status 1\): ValueError: two$"),
        ("print('one'); exit(3)", r"failed \(status 3\): one$"),
        ("exit(1)", "no message"),
    ):
        with pytest.raises(CorpusError, match=message):
            prepare._run([sys.executable, "-c", program], tmp_path)


def test_the_vocabulary_has_the_size_asked_for(tmp_path):
    from subword_nmt.apply_bpe import BPE

    random.seed(0)
    paths = [tmp_path / "de", tmp_path / "en"]
    for path, letters in zip(paths, ("abcdefgh", "efghijkl")):
        words = ["".join(random.choices(letters, k=random.randint(1, 4))) for _ in range(1200)]
        path.write_text(" ".join(words) + "\n", encoding="utf-8")

    def vocabulary(**options):
        subwords.learn_codes(paths, tmp_path / "codes", 60, **options)
        with open(tmp_path / "codes", encoding="utf-8") as codes:
            segmenter = BPE(codes)
        return {word for path in paths for word in segmenter.process_line(path.read_text()).split()}

    assert len(vocabulary(total_symbols=True)) == 60
    assert len(vocabulary()) == 60 + 2 * 12  # letters at the end of words and before it


def test_more_characters_than_symbols_are_refused(tmp_path):
    (tmp_path / "text").write_text("xyc xyd\n", encoding="utf-8")  # x, y inside; c, d at the end
    with pytest.raises(CorpusError, match="4 symbols of one character; give more"):
        subwords.learn_codes([tmp_path / "text"], tmp_path / "codes", 4, total_symbols=True)
    subwords.learn_codes([tmp_path / "text"], tmp_path / "codes", 5, total_symbols=True)
    assert (tmp_path / "codes").read_text().splitlines()[1:] == ["x y"]


@pytest.mark.parametrize(
    "text, message",
    [("a b\n", "no word of two characters"), ("ab cd\n", "no character pair occurs twice")],
)
def test_text_without_merges_is_refused(tmp_path, text, message):
    (tmp_path / "text").write_text(text)
    with pytest.raises(CorpusError, match=f"{message}.* use --bpe-operations 0"):
        subwords.learn_codes([tmp_path / "text"], tmp_path / "codes", 5)


# ---- line functions ------------------------------------------------------------------------------


def remover():
    return lambda line: line.replace("x", "")


@pytest.mark.parametrize("workers", [1, 3])
def test_a_sentence_that_a_stage_empties_is_refused(workers):
    lines = ["ax", "", "b"] * stages.CHUNK
    assert list(stages.map_lines(lines, remover, (), "t", "f", workers))[-3:] == ["a", "", "b"]
    message = rf"f: line {3 * stages.CHUNK + 2} \('xx'\) is empty after the step"
    with pytest.raises(CorpusError, match=message):
        list(stages.map_lines([*lines, "", "xx", "x"], remover, (), "t", "f", workers))


def test_several_processes_give_the_same():
    lines = ["Hello, world!", "", "It's fine - isn't it?"] * 1000
    arguments = (lines, line_functions.tokenizer, ("moses", "en"), "t", "f")
    one, two = (list(stages.map_lines(*arguments, workers)) for workers in (1, 2))
    assert one == two and two[1] == ""


def test_few_blocks_wait_in_memory():
    read = iter(range(10**9))
    lines = (f"line {next(read)}" for _ in range(100 * stages.CHUNK))
    mapped = stages.map_lines(lines, line_functions.tokenizer, ("none", "en"), "t", "f", 2)
    assert next(mapped) == "line 0" and next(read) <= 8 * stages.CHUNK
    assert sum(1 for _ in mapped) == 100 * stages.CHUNK - 1


def failing():
    raise CorpusError("the file x is damaged")


def test_the_error_of_a_process_is_raised_here():
    works = [functools.partial(os.getpid), failing]
    for workers in (1, 2):
        with pytest.raises(CorpusError, match="the file x is damaged"):
            stages.run_together(works, workers)


@pytest.mark.parametrize(
    "call",
    [
        "stages.run_together([functools.partial(os._exit, 1)] * 2, 2)",
        "list(stages.map_lines(['a'] * 2500 + ['die'], killer, (), 't', 'f', 2))",
    ],
)
def test_a_worker_that_dies_does_not_hang_the_rest(call):
    """In an interpreter of its own: one that has threads of torch is better not forked to die."""
    script = f"""
import functools, os, stages
def killer():
    return lambda line: os._exit(1) if line == "die" else line
try:
    {call}
except stages.CorpusError as error:
    print(error)
"""
    command = [sys.executable, "-c", script]
    folder = Path(stages.__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert "run the command again with fewer --workers" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "name, language, wanted",
    [
        ("auto", "zh", "jieba"),
        ("auto", "zh_CN", "jieba"),
        ("auto", "en", "moses"),
        ("none", "zh", "none"),
        ("moses", "zh", "moses"),
    ],
)
def test_choice_of_tokenizer(name, language, wanted):
    assert line_functions.choose_tokenizer(name, language) == wanted


def test_without_tokenizer_only_white_space_is_made_uniform():
    assert line_functions.tokenizer("none", "en")("a\tb\u00a0 c's") == "a b c's"


ODD = (
    "Mr. Smith's 5,300 e-mails... <b>\"A|B\"</b> [x] & http://a.b/c?d=e — naïve\u00a0café 3.5% 'tis"
)


def assert_same_as_fairseq(name, language, lines):
    import fairseq_docmt  # noqa: F401  (registers the jieba tokenizer)

    args = argparse.Namespace(tokenizer=name, source_lang=language, target_lang="en")
    encoder = encoders.build_tokenizer(args)
    ours = stages.map_lines(lines, line_functions.tokenizer, (name, language), "t", "f", 1)
    assert list(ours) == [encoder.encode(line.strip()) if line.strip() else "" for line in lines]


@pytest.mark.parametrize("name, language", [("moses", "en"), ("moses", "de"), ("jieba", "zh")])
def test_raw_text_meets_the_same_tokens_in_fairseq(name, language):
    assert_same_as_fairseq(name, language, [*TEXT["en"].split("\n"), *TEXT["zh"].split("\n"), ODD])


@pytest.mark.parametrize("name, language", [("moses", "en"), ("jieba", "zh")])
def test_real_subtitles_meet_the_same_tokens_in_fairseq(shared_data, name, language):
    path = str(shared_data / "tvsub-zhen" / f"zpdev.{language}")
    assert_same_as_fairseq(name, language, list(prepare.iterate_lines(path)))


def test_real_subtitles_are_in_order(shared_data):
    prefix = str(shared_data / "tvsub-zhen" / "zpdev")
    src, tgt = (prepare.iterate_lines(f"{prefix}.{language}") for language in ("zh", "en"))
    assert check_lines(src, tgt, "zh", "en") == (15, 1049)
