import argparse
import os

import prepare
import pytest
import stages
import tokenizers
from check_documents import CorpusError
from fairseq.data import Dictionary, data_utils, encoders

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


def options(corpus, *extra):
    return [
        *["--source-lang", "zh", "--target-lang", "en", "--workers", "1"],
        *["--train", str(corpus / "train"), "--valid", str(corpus / "valid")],
        *["--test", str(corpus / "test"), str(corpus / "more")],
        *["--destdir", str(corpus / "out"), "--bpe-operations", "20", *extra],
    ]


def binarised(corpus, name, language):
    folder = corpus / "out" / "bin"
    dictionary = Dictionary.load(str(folder / f"dict.{language}.txt"))
    data = data_utils.load_indexed_dataset(str(folder / f"{name}.zh-en.{language}"))
    return [dictionary.string(data[i]) for i in range(len(data))]


def test_from_raw_text_to_binarised_documents(corpus):
    prepare.main(options(corpus))
    for name in ("train", "valid", "test", "test1"):
        for language in TEXT:
            subwords = (corpus / "out/text/subwords" / f"{name}.{language}").read_text().split("\n")
            assert binarised(corpus, name, language) == subwords[:-1]
            blank = [not line for line in subwords[:-1]]
            assert blank == [not line for line in (TEXT[language] * 3).split("\n")[:-1]]
    tokenized = (corpus / "out/text/tokenized/test.en").read_text().split("\n")
    assert tokenized[0] == "Hello , world !"
    assert (corpus / "out/codes").exists()


def test_separate_subwords_and_truecasing(corpus):
    prepare.main(options(corpus, "--separate-bpe", "--truecase"))
    names = {path.name for path in (corpus / "out").iterdir()}
    assert {"codes.zh", "codes.en", "truecase.en"} <= names
    assert (corpus / "out/text/truecased/train.en").exists()


def test_without_subwords_and_with_one_dictionary(corpus):
    prepare.main(options(corpus, "--bpe-operations", "0", "--joined-dictionary"))
    folder = corpus / "out/bin"
    assert (folder / "dict.zh.txt").read_text() == (folder / "dict.en.txt").read_text()
    assert not (corpus / "out/text/subwords").exists()


def modified(corpus):
    return {
        str(path): path.stat().st_mtime_ns
        for path in (corpus / "out").rglob("*")
        if path.is_file() and ".stamps" not in path.parts
    }


def test_a_second_run_does_nothing_and_a_change_redoes_what_it_touches(corpus):
    prepare.main(options(corpus))
    before = modified(corpus)
    prepare.main(options(corpus))
    assert modified(corpus) == before
    with open(corpus / "valid.en", "a", encoding="utf-8") as stream:
        stream.write("One more.\n")
    with open(corpus / "valid.zh", "a", encoding="utf-8") as stream:
        stream.write("再来。\n")
    prepare.main(options(corpus))
    after = modified(corpus)
    changed = {os.path.relpath(p, corpus / "out") for p in after if after[p] != before.get(p)}
    assert "text/tokenized/valid.en" in changed and "bin/dict.en.txt" in changed
    assert "text/tokenized/train.en" not in changed and "codes" not in changed
    assert binarised(corpus, "valid", "en")[-1]


def test_an_interruption_leaves_nothing_half_written_and_is_resumed(corpus, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare.main(options(corpus))
    assert not (corpus / "out/bin").exists()
    before = modified(corpus)
    prepare.main(options(corpus))
    after = modified(corpus)
    assert all(after[path] == before[path] for path in before)
    assert binarised(corpus, "test", "en")[0]


def test_a_stage_that_fails_keeps_its_old_result_out_of_sight(tmp_path):
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
    with pytest.raises(RuntimeError):  # other options: it is made anew, or not there as finished
        runner.run("s", [source], result, {"n": 2}, half)
    runner.run("s", [source], result, {"n": 2}, lambda path: path.write_text("new"))
    assert result.read_text() == "new"


@pytest.mark.parametrize(
    "break_it, message",
    [
        (lambda c: (c / "train.en").unlink(), r"error: .*train\.en: cannot be read"),
        (lambda c: (c / "test.en").write_text("x\n"), r"error: .*test"),
        (lambda c: (c / "more.zh").write_bytes(b"\xff\n"), r"error: .*more\.zh: line 1 is not"),
    ],
)
def test_bad_input_gets_one_sentence_and_nothing_is_binarised(corpus, break_it, message):
    break_it(corpus)
    with pytest.raises(SystemExit, match=message):
        prepare.main(options(corpus))
    assert not (corpus / "out/bin").exists()


def test_bad_options_get_one_sentence(corpus):
    with pytest.raises(SystemExit, match="are both 'en'"):
        prepare.main(options(corpus, "--source-lang", "en"))
    with pytest.raises(SystemExit, match="--bpe-operations must not be negative"):
        prepare.main(options(corpus, "--bpe-operations", "-1"))


def test_a_sentence_that_a_stage_empties_is_refused():
    def build():
        return lambda line: line.replace("x", "")

    assert stages.map_lines(["ax", "", "b"], build, (), "step", 1) == ["a", "", "b"]
    with pytest.raises(CorpusError, match=r"step: line 3 \('xx'\) has nothing left"):
        stages.map_lines(["a", "", "xx"], build, (), "step", 1)


def test_several_processes_give_the_same():
    lines = ["Hello, world!", "", "It's fine - isn't it?"] * 50
    results = [
        stages.map_lines(lines, tokenizers.tokenizer, ("moses", "en"), "t", workers)
        for workers in (1, 2)
    ]
    assert results[0] == results[1]


@pytest.mark.parametrize("name, language", [("moses", "en"), ("jieba", "zh")])
def test_raw_text_meets_the_same_tokens_in_fairseq(name, language):
    import fairseq_docmt  # noqa: F401  (registers the jieba tokenizer)

    args = argparse.Namespace(tokenizer=name, source_lang=language, target_lang="en")
    encoder = encoders.build_tokenizer(args)
    ours = tokenizers.tokenizer(name, language)
    for line in TEXT[language].split("\n"):
        if line:
            assert encoder.encode(line) == ours(line)


def test_real_subtitles_are_in_order(shared_data):
    prefix = str(shared_data / "tvsub-zhen" / "zpdev")
    counts = prepare.check_lines(
        prepare.read_lines(f"{prefix}.zh"), prepare.read_lines(f"{prefix}.en"), "zh", "en"
    )
    assert counts == (15, 1049)
