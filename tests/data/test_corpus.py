"""Documents, sentences and lines of a split, from small datasets in memory and on disk.

Covers document_index.py.
"""

import numpy as np
import pytest
import torch
from fairseq.data import (
    AppendTokenDataset,
    ConcatDataset,
    Dictionary,
    LanguagePairDataset,
    ListDataset,
    StripTokenDataset,
    TruncateDataset,
    indexed_dataset,
)

from fairseq_docmt.data import DocumentCorpus, DocumentIndex, open_corpus, target_ratio
from fairseq_docmt.errors import UserError


def side(sizes):
    """Return lines of the given numbers of tokens, end symbol included."""
    lines = [torch.tensor([5] * (size - 1) + [2]) for size in sizes]
    return ListDataset(lines, np.array(sizes))


def pairs(src, tgt=None):
    target = (None, None) if tgt is None else (tgt, tgt.sizes)
    words = [Dictionary(), None if tgt is None else Dictionary()]
    return LanguagePairDataset(src, src.sizes, words[0], *target, words[1])


def test_sizes_leave_out_blank_lines():
    corpus = DocumentCorpus("name", pairs(side([3, 1, 4, 5]), side([2, 1, 7, 3])))
    assert corpus.name == "name"
    assert corpus.index.starts.tolist() == [0, 1, 3]
    assert corpus.src_sizes.tolist() == [3, 4, 5]
    assert corpus.tgt_sizes.tolist() == [2, 7, 3]
    assert target_ratio(corpus) == 1.0
    assert target_ratio(DocumentCorpus("x", pairs(side([4, 1, 4]), side([6, 1, 6])))) == 1.5


def test_the_checksum_is_of_both_sides():
    texts = [
        ([3, 1, 4], [2, 1, 5]),
        ([3, 1, 4], [2, 1, 6]),
        ([4, 1, 3], [2, 1, 5]),
        ([3, 4], [2, 5]),
        ([3, 1, 4, 5], [2, 1, 5, 6]),
    ]
    found = [DocumentCorpus("c", pairs(*map(side, text))).checksum for text in texts]
    assert len({*found}) == len(texts)
    words = DocumentCorpus("c", pairs(*map(side, texts[0])))
    words.pairs.tgt.dataset[2][0] = 6
    assert words.checksum not in found
    assert DocumentCorpus("d", pairs(*map(side, texts[0]))).checksum == found[0]


@pytest.mark.parametrize("stock", [False, True])
def test_long_sources_are_cut(stock):
    """fairseq's own cutting, which counts one token more for blank lines, is undone."""
    src = side([3, 1, 6, 4])
    if stock:
        stripped = StripTokenDataset(src, 2)
        src = AppendTokenDataset(TruncateDataset(stripped, 3), 2)
        assert src.sizes.tolist() == [4, 2, 4, 4]
    together = ConcatDataset([src, src]) if stock else src
    corpus = DocumentCorpus("name", pairs(together, None), longest_source=4)
    assert corpus.index.starts.tolist() == ([0, 1, 3, 4, 6] if stock else [0, 1, 3])
    assert corpus.src_sizes.tolist()[:3] == [3, 4, 4]
    assert [corpus.pairs.src[line].tolist() for line in (1, 2)] == [[2], [5, 5, 5, 2]]


def test_a_corpus_without_target():
    corpus = DocumentCorpus("name", pairs(side([3, 1, 4])))
    assert corpus.tgt_sizes is None and target_ratio(corpus) is None


@pytest.mark.parametrize(
    "src, tgt, message",
    [
        ([3, 4, 1], [3, 1, 1], "name: line 2 is blank on the target side only"),
        ([1, 4, 2], [2, 3, 1], "name: line 1 is blank on the source side only"),
        ([1, 1], [1, 1], "name holds no sentence"),
    ],
)
def test_different_or_empty_sides_are_refused(src, tgt, message):
    with pytest.raises(UserError, match=message):
        DocumentCorpus("name", pairs(side(src), side(tgt)))


def test_documents_end_where_splits_are_put_together():
    """Two sentences repeated three times, then one sentence, then two: five documents."""
    parts = [side([3, 4]), side([5]), side([6, 7])]
    together = ConcatDataset(parts, [3, 1, 1])
    corpus = DocumentCorpus("name", pairs(together, together))
    assert corpus.index.starts.tolist() == [0, 2, 4, 6, 7, 9]


def write(path, lines):
    builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=100)
    for line in lines:
        builder.add_item(torch.tensor(line))
    builder.finalize(f"{path}.idx")
    return indexed_dataset.make_dataset(str(path), "mmap")


@pytest.mark.parametrize("position", [0, 1])
def test_a_file_one_byte_short_is_truncated(tmp_path, position):
    """In any part of a concatenated split; the last line has three tokens of two bytes."""
    files = [write(tmp_path / name, [[5, 6, 2], [5, 5, 2]]) for name in ("a", "b")]
    together = ConcatDataset(files, [1, 1])
    assert DocumentCorpus("name", pairs(together)).index.num_sentences == 4
    short = tmp_path / f"{'ab'[position]}.bin"
    size = short.stat().st_size
    with open(short, "r+b") as file:
        file.truncate(size - 1)
    with pytest.raises(UserError, match=rf"\.bin is truncated: {size - 1} bytes.* needs {size}"):
        DocumentCorpus("name", pairs(together))


def failing(error):
    def load():
        raise error

    return load


@pytest.mark.parametrize(
    "error, message",
    [
        (FileNotFoundError(), r"bin/valid.de-en.\* not found"),
        (AssertionError("magic number"), r"damaged binarised file \(magic number\)"),
        (ValueError("buffer"), r"damaged binarised file \(buffer\)"),
        (EOFError("end"), r"damaged binarised file \(end\)"),
        (UserError("as it is"), "^as it is$"),
    ],
)
def test_errors_of_fairseq_become_one_sentence(error, message):
    with pytest.raises(UserError, match=message):
        open_corpus("bin/valid.de-en", failing(error))


def test_different_numbers_of_lines_are_counted_where_they_can_be(tmp_path):
    error = AssertionError("Source and target must contain the same number of examples")
    name = str(tmp_path / "valid.de-en")
    with pytest.raises(UserError, match="different numbers of lines; run"):
        open_corpus(name, failing(error))
    write(f"{name}.de", [[5, 2], [6, 2]])
    with pytest.raises(UserError, match="different numbers of lines; run"):
        open_corpus(name, failing(error))
    write(f"{name}.en", [[5, 2], [6, 2], [7, 2]])
    with pytest.raises(UserError, match=r"different numbers of lines \(de 2, en 3\); run"):
        open_corpus(name, failing(error))


@pytest.mark.parametrize(
    "sizes, joints, rows, starts",
    [
        ([3, 4, 1, 5], [], [0, 1, 3], [0, 2, 3]),
        ([1, 1, 3, 1, 1, 4, 1], [], [2, 5], [0, 1, 2]),  # blanks at both ends and repeated
        ([3, 4, 5], [], [0, 1, 2], [0, 3]),  # one document
        ([3, 4, 5, 6], [0, 2], [0, 1, 2, 3], [0, 2, 4]),  # a joint without a blank line
        ([3, 1, 4, 5], [1], [0, 2, 3], [0, 1, 3]),  # a joint at a blank line opens one document
        ([3, 4, 1], [2], [0, 1], [0, 2]),  # a joint after the last sentence
        ([1, 1], [], [], [0]),
        ([], [], [], [0]),
    ],
)
def test_from_sizes(sizes, joints, rows, starts):
    index = DocumentIndex.from_sizes(sizes, joints)
    assert index.line_ids.tolist() == rows
    assert index.starts.tolist() == starts


def test_positions_and_documents():
    index = DocumentIndex.from_lengths([2, 1, 3])
    assert index.line_ids.tolist() == [0, 1, 3, 5, 6, 7]
    assert index.document.tolist() == [0, 0, 1, 2, 2, 2]
    assert index.position.tolist() == [0, 1, 0, 0, 1, 2]
    assert (index.num_documents, index.num_sentences) == (3, 6)


def test_without_drops_sentences_and_documents_left_empty():
    index = DocumentIndex.from_lengths([2, 1, 3])
    kept = index.without(np.array([False, True, True, False, True, False]))
    assert kept.line_ids.tolist() == [0, 5, 7]
    assert kept.starts.tolist() == [0, 1, 3]
    assert kept.document.tolist() == [0, 1, 1]
    assert (index.numbers.tolist(), kept.numbers.tolist()) == ([0, 1, 2], [0, 2])
    assert kept.without(np.array([True, False, False])).numbers.tolist() == [2]
    first = index.without(np.array([False, False, True, True, True, True]))
    assert (first.line_ids.tolist(), first.starts.tolist()) == ([0, 1], [0, 2])


def test_agrees_with_a_plain_loop_on_random_corpora():
    for seed in range(20):
        generator = np.random.RandomState(seed)
        sizes = generator.choice([1, 1, 3, 7], size=40)
        documents, current = [], []
        for row, size in enumerate(sizes):
            if size == 1 and current:
                documents.append(current)
                current = []
            elif size > 1:
                current.append(row)
        documents += [current] if current else []
        index = DocumentIndex.from_sizes(sizes)
        found = np.split(index.line_ids, index.starts[1:-1])
        assert [part.tolist() for part in found] == documents
