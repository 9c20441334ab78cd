"""Replacement of unknown words in the output of the stock commands (``--replace-unk``)."""

import shutil

import pytest
import tiny
import torch

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.generation.hypotheses import UnknownWords, attended, read_dictionary

DOCS = tiny.documents((1, 5, 2, 7), 2)
ROWS = tiny.rows_of(DOCS)
WINDOWS = ["--task", "sliding_window_translation"]
STREAM = ["--task", "sentence_stream_translation"]
#: every word of an output is unknown
UNKNOWN = ["--unkpen", "-1000", "--replace-unk", ""]


@pytest.fixture
def with_text(binarised, tmp_path):
    """Data folder with the text of the test set, whose sources end in an unknown word."""
    folder = tmp_path / "data"
    shutil.copytree(binarised, folder)
    source = [[f"{sentence} new{i}" for i, sentence in enumerate(doc)] for doc in DOCS]
    for side, docs in (("src", source), ("tgt", DOCS)):
        (folder / f"test.src-tgt.{side}").write_text(tiny.text_of(docs), encoding="utf-8")
    return folder, dict(zip(ROWS, (sentence for doc in source for sentence in doc)))


def generate(folder, checkpoint, *options):
    output = tiny.generate(folder, checkpoint, *options, *UNKNOWN, "--dataset-impl", "raw")
    return tiny.lines_of(output)


def test_the_word_with_the_most_attention():
    weights = [["0.1", "0.2", "0.7"], ["0.6", "0.1", "0.3"]]
    assert [attended(weights, place, 2) for place in (0, 1)] == [1, 0]
    # a surplus sentence
    assert [attended([[], []], place, 2) for place in (0, 1, 5)] == [0, 1, 1]


def test_a_word_is_translated_or_copied():
    target = tiny.dictionary()
    unknown = UnknownWords("", target)
    unknown.translations = {"b": "B"}
    before = torch.tensor([target.unk(), 5, target.unk(), target.eos()])
    weights = [["0.1", "0.2", "0"], ["1", "0", "0"], ["0.6", "0.1", "0.3"], ["0", "0", "1"]]
    hypothesis = {"tokens": before, "alignment": weights}
    [[found]] = unknown.replaced([[hypothesis]], ["a b"])
    assert target.string(found["tokens"]) == f"B {target[5]} a"
    assert before.tolist() == [target.unk(), 5, target.unk(), target.eos()]


@pytest.mark.parametrize("decoding", ["window", "sequential"])
def test_unknown_words_of_windows_come_from_their_own_sentence(
    with_text, window_checkpoint, decoding
):
    folder, sources = with_text
    found = generate(folder, window_checkpoint, *WINDOWS, "--decoding", decoding)
    assert found.keys() == sources.keys()
    for row, text in found.items():
        assert text and set(text.split()) <= set(sources[row].split())


def test_unknown_words_of_streams(with_text, cache_stream_checkpoint, tmp_path):
    folder, sources = with_text
    words = {word for text in sources.values() for word in text.split()}
    dictionary = tmp_path / "dictionary"
    dictionary.write_text("".join(f"{word} X{word}\n" for word in words if word != "new3"))
    options = [*STREAM, *UNKNOWN[:-1], str(dictionary), "--dataset-impl", "raw"]
    output = tiny.generate(folder, cache_stream_checkpoint, *options)
    for row, text in tiny.lines_of(output).items():
        known = {word if word == "new3" else f"X{word}" for word in sources[row].split()}
        assert text and set(text.split()) <= known


def test_documents_of_several_sentences(with_text, document_checkpoint):
    folder, sources = with_text
    task = ["--task", "full_document_translation", "--decoding", "segment"]
    found = generate(folder, document_checkpoint, *task)
    assert found.keys() == sources.keys()
    for row, text in found.items():
        assert set(text.split()) <= set(sources[row].split())


def test_nothing_changes_without_unknown_words(with_text, window_checkpoint):
    folder, _ = with_text
    options = [*WINDOWS, "--decoding", "sequential", "--dataset-impl", "raw", "--unkpen", "1000"]
    plain = tiny.generate(folder, window_checkpoint, *options)
    replacing = tiny.generate(folder, window_checkpoint, *options, "--replace-unk", "")
    assert tiny.lines_of(plain) == tiny.lines_of(replacing)
    assert tiny.scores_of(plain) == tiny.scores_of(replacing)


def test_typed_lines(binarised, window_checkpoint):
    """Also a line that has <unk> itself."""
    lines = ["w1 new w2", "", "<unk>", "new5"]
    output = tiny.interactive(binarised, window_checkpoint, lines, *WINDOWS, *UNKNOWN)
    found = tiny.lines_of(output)
    for row in (0, 2, 3):
        assert found[row] and set(found[row].split()) <= set(lines[row].split())


def test_the_python_interface_has_no_text(window_checkpoint):
    translator = DocumentTranslator.from_pretrained(str(window_checkpoint))
    with pytest.raises(UserError, match="--replace-unk needs the text of the input; use fairseq-g"):
        translator.translate([["w1"]], replace_unk="")


@pytest.mark.parametrize(
    "text, message",
    [
        ("a b\nc\n", "dictionary: line 2 has 1 words; give a source word and its translation"),
        (b"\xff\xfe a", r"dictionary cannot be read \(.*\); give a text file"),
        (None, r"dictionary cannot be read \(.*\); give a text file"),
    ],
)
def test_damaged_dictionaries(tmp_path, text, message):
    path = tmp_path / "dictionary"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message):
        read_dictionary(str(path))


def test_without_a_dictionary():
    with pytest.raises(
        UserError, match="--replace-unk needs a dictionary; give its file, or --rep"
    ):
        read_dictionary("@@ ")
