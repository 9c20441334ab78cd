"""The rule for words that are symbols, by name, by token and over binarised files; files.

Covers symbols.py.
"""

import io

import numpy as np
import pytest
import tiny
import torch
from fairseq.data import Dictionary, indexed_dataset

from fairseq_docmt.data import text_checks
from fairseq_docmt.data.sequence_format import insert_symbols
from fairseq_docmt.data.text_checks import (
    Symbols,
    check_binarised,
    check_side,
    check_split,
    tokens_of,
)
from fairseq_docmt.errors import UserError
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS, RESERVED, first_reserved

WORDS = tiny.dictionary()  # <s> <pad> </s> <unk> w0 … w11 <sep> <bod>
LINES = [[4, 5, 2], [2], [6, 3, 2], [15, 2]]


def written(folder, lines, impl="mmap"):
    path = str(folder / "text")
    builder = indexed_dataset.make_builder(f"{path}.bin", impl, vocab_size=20)
    for line in lines:
        builder.add_item(torch.tensor(line))
    builder.finalize(f"{path}.idx")
    return indexed_dataset.make_dataset(path, impl, fix_lua_indexing=True)


def loaded(text):
    return Dictionary.load(io.StringIO(text))


def test_words_by_name():
    assert first_reserved("a </s> b <s>".split()) == "</s>"
    assert first_reserved("<unk> a</s> <S> <sep".split()) is None
    assert RESERVED == {"<s>", "<pad>", "</s>", *DOCUMENT_SYMBOLS}


@pytest.mark.parametrize("token", [0, 1, 2, 16, 17])
def test_tokens(token):
    with pytest.raises(UserError, match=f"^here has the word {WORDS[token]}, which is reserved"):
        Symbols.of(WORDS).check([4, token, 5], "here")
    Symbols.of(WORDS).check([3, 4, 15], "here")
    Symbols.of(WORDS).check([], "here")


def test_tags_are_symbols_only_where_they_were_added():
    tags = ["__de__", "__en__"]
    words = loaded("__de__ 4\na 3\n")
    insert_symbols(words, [*tags, *DOCUMENT_SYMBOLS])
    symbols = Symbols.of(words, (*tags, *DOCUMENT_SYMBOLS))
    symbols.check([words.index("__de__"), words.index("a")], "here")  # a word of the text
    with pytest.raises(UserError, match="the word __en__"):
        symbols.check([words.index("__en__")], "here")


def test_a_separator_among_the_words_is_a_word():
    words = loaded("<sep> 4\na 3\n")
    Symbols.of(words, ()).check([4, 5], "here")
    Symbols.of(loaded("a 3\n<sep> 4\n"), ()).check([4, 5], "here")


def test_a_dictionary_may_overwrite_a_symbol():
    words = loaded("a 3\n<s> 4 #fairseq:overwrite\n")
    found = tokens_of("a <s>", str, Symbols.of(words))
    assert found.tolist() == [4, 5, 2]


def test_sentences():
    symbols = Symbols.of(WORDS)
    assert tokens_of("w0 x", str, symbols).tolist() == [4, 3, 2]
    assert tokens_of("A", lambda text: "w1", symbols).tolist() == [5, 2]
    with pytest.raises(UserError, match="^the sentence 'w0 <s>' has the word <s>"):
        tokens_of("w0 <s>", str, symbols)
    with pytest.raises(UserError, match=r"^the sentence 'w0 \\udcff' is not UTF-8"):
        tokens_of("w0 \udcff", str, symbols)
    # What counts is the text that the model reads.
    assert tokens_of("</s>", lambda text: "&lt;/s&gt;", symbols).tolist() == [3, 2]


@pytest.mark.parametrize("impl", ["mmap", "lazy"])
@pytest.mark.parametrize("block", [1, 2, 4, 100])
@pytest.mark.parametrize("line", range(4))
@pytest.mark.parametrize(
    "tokens, message",
    [
        ([4, 0, 2], "has the word <s>, which"),
        ([1, 2], "has the word <pad>, which"),
        ([2, 2], "has the word </s>, which"),
        ([4, 5, 16, 2], "has the word <sep>, which"),
        ([17, 5, 2], "has the word <bod>, which"),
        ([4, 18, 2], "has words that are not in the dictionary, which has 18;"),
        ([4, 5], "does not end with the end symbol"),
    ],
)
def test_binarised_lines(tmp_path, monkeypatch, impl, block, line, tokens, message):
    monkeypatch.setattr(text_checks, "BLOCK", block)
    check_binarised("f", written(tmp_path, LINES, impl), Symbols.of(WORDS))
    wrong = [*LINES[:line], tokens, *LINES[line + 1 :]]
    with pytest.raises(UserError, match=f"^f: line {line + 1} {message}"):
        check_binarised("f", written(tmp_path, wrong, impl), Symbols.of(WORDS))


def test_lines_that_do_not_follow_one_another(tmp_path):
    dataset = written(tmp_path, [[4, 2], [5, 2], [6, 0, 2]])
    dataset._index._pointers = np.array([4, 0, 8])  # of bytes, two a token
    with pytest.raises(UserError, match="line 3 has the word <s>"):
        check_binarised("f", dataset, Symbols.of(WORDS))


def test_lines_are_not_read_one_by_one(tmp_path, monkeypatch):
    """Two million lines take 0.13 seconds."""
    dataset = written(tmp_path, LINES)
    monkeypatch.setattr(indexed_dataset.MMapIndexedDataset, "__getitem__", None)
    check_binarised("f", dataset, Symbols.of(WORDS))


PAIR = ("de", "en")


def write(path, kind="mmap", lines=3):
    builder = indexed_dataset.make_builder(f"{path}.bin", kind, vocab_size=20)
    for _ in range(lines):
        builder.add_item(torch.tensor([7, 2]))
    builder.finalize(f"{path}.idx")


@pytest.fixture
def split(tmp_path):
    """Sides of ``train`` and ``train1``, the latter named in the other order."""
    for name in ("train.de-en", "train1.en-de"):
        for side in PAIR:
            write(tmp_path / f"{name}.{side}")
    return tmp_path


def test_complete_splits_pass(split):
    check_split(split, "train", PAIR, combined=True)
    check_split(split, "train", PAIR[::-1], combined=True)
    check_split(split, "valid", PAIR)


def test_a_part_after_a_missing_one_is_named(split):
    for side in PAIR:
        write(split / f"train3.de-en.{side}")
    check_split(split, "train", PAIR)
    check_split(split, "train", ("fr", "en"), combined=True)
    with pytest.raises(UserError, match=r"/train3.de-en.de.idx would be ignored, .* train2; num"):
        check_split(split, "train", PAIR, combined=True)


@pytest.mark.parametrize("kind", ["mmap", "cached"])
def test_sources_alone_pass_in_any_format(tmp_path, kind):
    write(tmp_path / "test.de-en.de", kind)
    check_split(tmp_path, "test", PAIR)


def test_a_damaged_index_is_named(split):
    (split / "train.de-en.en.idx").write_bytes(b"no index")
    with pytest.raises(UserError, match=r"/train\.de-en\.en\.idx is damaged; copy the data folder"):
        check_split(split, "train", PAIR)


@pytest.mark.parametrize("suffix", ["bin", "idx"])
@pytest.mark.parametrize("name", ["train.de-en.de", "train.de-en.en", "train1.en-de.en"])
def test_each_missing_file_is_named(split, name, suffix):
    (split / f"{name}.{suffix}").unlink()
    with pytest.raises(UserError, match=rf"/{name}\.{suffix} not found, but "):
        check_split(split, "train", PAIR, combined=True)


def test_a_side_without_the_other(split):
    for path in split.glob("train1.en-de.en.*"):
        path.unlink()
    check_split(split, "train", PAIR)
    with pytest.raises(UserError, match=r"train1\.en-de\.en\.idx not found, but .*\.de\.idx;"):
        check_split(split, "train", PAIR, combined=True)


@pytest.mark.parametrize("left", [1, 8, 9, 25, 26, 61])
def test_a_cut_index(split, left):
    index = split / "train.de-en.de.idx"
    whole = index.read_bytes()
    assert len(whole) == 26 + 3 * 12
    index.write_bytes(whole[:left])
    with pytest.raises(UserError, match=f"is truncated: {left} bytes, but it needs "):
        check_side(str(index)[:-4])
