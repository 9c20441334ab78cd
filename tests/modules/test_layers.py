"""The cache of target tokens: appending, packing and cutting, with values worked out by hand."""

import torch

from fairseq_docmt.modules.layers import RecentTokens
from fairseq_docmt.modules.search_state import split_order


def cache(numbers, padding=None, sentences=None):
    """Return a cache with one head, whose keys are these numbers and whose values are tenfold."""
    keys = torch.tensor(numbers, dtype=torch.float)[:, None, :, None]
    padding = None if padding is None else torch.tensor(padding, dtype=torch.bool)
    sentences = None if sentences is None else torch.tensor(sentences)
    return RecentTokens.of(keys, 10 * keys, padding, sentences)


def rows(tokens):
    """Return the visible keys of each row, after checking that values belong to them."""
    torch.testing.assert_close(tokens.values, 10 * tokens.keys)
    return [row[0, ~hidden, 0].tolist() for row, hidden in zip(tokens.keys, tokens.hidden)]


def test_without_padding_all_tokens_are_visible():
    assert rows(cache([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]


def test_new_tokens_are_appended():
    both = cache([[1], [2]], sentences=[[0], [0]]).followed_by(
        cache([[3, 4], [5, 6]], [[0, 0], [0, 1]], sentences=[[0, 1], [1, 1]])
    )
    assert rows(both) == [[1, 3, 4], [2, 5]]
    assert both.sentences.tolist() == [[0, 0, 1], [0, 1, 1]]


def test_packing_moves_padding_to_the_beginning():
    padding = torch.tensor([[False, False, False], [False, True, True]])
    tokens = cache([[1, 2, 3], [4, 0, 0]], padding.tolist(), sentences=[[0, 0, 1], [2, 0, 0]])
    packed = tokens.right_aligned(padding)
    assert rows(packed) == [[1, 2, 3], [4]]
    assert packed.hidden.tolist() == [[False, False, False], [True, True, False]]
    assert packed.sentences[1, -1] == 2
    assert tokens.right_aligned(None) is tokens


def test_only_the_latest_tokens_are_kept():
    tokens = cache([[1, 2, 3]], sentences=[[0, 1, 2]])
    assert rows(tokens.latest(2)) == [[2, 3]]
    assert tokens.latest(2).sentences.tolist() == [[1, 2]]
    assert rows(tokens.latest(0)) == [[]]
    assert tokens.latest(None) is tokens and tokens.latest(3) is tokens


def test_rows_are_reordered_as_a_whole():
    order = torch.tensor([1, 1, 0])
    beams = split_order(torch.tensor([1, 1, 2]), 1, 3)._replace(order=order)
    assert rows(cache([[1], [2]]).reorder(beams)) == [[2], [2], [1]]
