"""Source alignments, with values computed by hand; positions are source columns."""

import pytest
import torch

from fairseq_docmt.modules.window.alignment import SourcePointer, SourceSentences, align_references

PAD, EOS, SEP = 1, 2, 9
# a b <sep> c d e <sep> f </s>   and, left-padded,   a <sep> b c </s>
SOURCE = torch.tensor([[4, 4, SEP, 5, 5, 5, SEP, 6, EOS], [PAD] * 4 + [4, SEP, 5, 5, EOS]])


@pytest.fixture
def source():
    padding = SOURCE.eq(PAD)
    return SourceSentences.of(SOURCE.eq(SEP), padding)


def test_where_sentences_start(source):
    assert source.starts.tolist() == [[0, 3, 7], [4, 6, 6]]
    assert source.first.tolist() == [0, 4] and source.last.tolist() == [8, 8]


def test_without_padding():
    sentences = SourceSentences.of(SOURCE[:1].eq(SEP), None)
    assert sentences.starts.tolist() == [[0, 3, 7]] and sentences.last.tolist() == [8]


def test_sentence_by_sentence(source):
    """A separator moves to its source sentence, backward or forward, never past the end."""
    tokens = torch.tensor([[EOS, 4, SEP, 5, 5, 5, 5, 5, 5, SEP, 6, 6, 6, 6]]).repeat(2, 1)
    got = align_references(tokens, source, SEP, PAD, "sentence")
    assert got[0].tolist() == [0, 1, 3, 4, 5, 6, 7, 8, 8, 7, 8, 8, 8, 8]
    # The third sentence has no source and is aligned to the last one.
    assert got[1].tolist() == [4, 5, 6, 7, 8, 8, 8, 8, 8, 6, 7, 8, 8, 8]


def test_linear(source):
    tokens = torch.tensor([[EOS] + [4] * 8, [EOS, 4, 4] + [PAD] * 6])
    got = align_references(tokens, source, SEP, PAD, "linear")
    assert got[0].tolist() == list(range(9))
    assert got[1, :3].tolist() == [5, 6, 8]  # round(5 / 3 * i) = 2, 3, 5


@pytest.mark.parametrize(
    "kind, ratio, want",
    [
        ("one-to-one", 9.0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]),
        ("linear", 0.5, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),  # round half up, from 1
        ("linear", 0.1, [0] * 10),  # never before the first
        ("sentence", 1.0, [0, 1, 3, 4, 5, 6, 7, 7, 8, 8]),
    ],
)
@pytest.mark.parametrize("cuts", [[10], [1] * 10, [3, 4, 3]])
def test_advancing_in_parts_equals_advancing_at_once(source, kind, ratio, want, cuts):
    tokens = torch.tensor([[EOS, 4, SEP, 5, 5, 5, 5, SEP, 6, 6]]).repeat(2, 1)
    pointer, got = SourcePointer.init_state(source), []
    for part in tokens.split(cuts, dim=1):
        columns, pointer = pointer.advance(part, SEP, PAD, kind, ratio)
        got.append(columns)
    assert torch.cat(got, dim=1)[0].tolist() == want


def test_padding_behind_a_row_does_not_move_its_pointer(source):
    ragged = torch.tensor([[EOS, 4, SEP, PAD, PAD], [EOS, 4, 4, SEP, 5]])
    _, pointer = SourcePointer.init_state(source).advance(ragged, SEP, PAD, "sentence", 1.0)
    got, _ = pointer.advance(torch.tensor([[5], [5]]), SEP, PAD, "sentence", 1.0)
    assert got.tolist() == [[4], [8]]
