"""Decoder states in a search: order of beams, the state as a whole, the cache of target tokens.

Values are worked out by hand.
"""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from fairseq_docmt.modules.search_state import (
    KeepsState,
    RecentTokens,
    split_order,
    store_state,
    stored_state,
)


@pytest.mark.parametrize(
    "order, bsz, beams, sentences, new_beams, local",
    [
        ([0, 0, 0, 1, 1, 1], 2, 1, None, 3, None),  # beam search begins
        ([0, 1], 2, 1, None, 1, [[0], [0]]),  # nothing happens
        ([1], 2, 1, [1], 1, [[0]]),  # a sentence ends
        ([1, 0, 0], 2, 1, [1, 0, 0], 1, [[0]] * 3),  # single rows may go anywhere
        ([1, 1, 2, 3], 2, 2, None, 2, [[1, 1], [0, 1]]),  # beams change places
        ([3, 2], 2, 2, [1], 2, [[1, 0]]),  # a sentence ends, and beams change places
        ([2, 3, 0, 1], 2, 2, [1, 0], 2, [[0, 1], [0, 1]]),  # sentences change places
        ([0, 2, 1, 3], 2, 2, [0, 1, 0, 1], 1, [[0], [0], [1], [1]]),  # rows go on alone
        ([0, 1, 2], 2, 2, [0, 0, 1], 1, [[0], [1], [0]]),
    ],
)
def test_split_order(order, bsz, beams, sentences, new_beams, local):
    rows = split_order(torch.tensor(order), bsz, beams)
    assert rows.beams == new_beams
    assert (None if rows.sentences is None else rows.sentences.tolist()) == sentences
    assert (None if rows.local is None else rows.local.tolist()) == local


class Rows(NamedTuple):
    """State that has a number for each row."""

    numbers: torch.Tensor
    bsz: int

    def reorder(self, order):
        return Rows(self.numbers[order], self.bsz)


class Decoder(KeepsState, nn.Module):
    """Decoder whose first state counts the sentences."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(3, 2)
        self.begun = 0

    def init_state(self, encoder_out):
        self.begun += 1
        return Rows(torch.arange(encoder_out["bsz"]), encoder_out["bsz"])


def test_the_first_state_is_repeated_for_beams():
    decoder = Decoder()
    assert decoder.current_state({}, {"bsz": 2}, 6).numbers.tolist() == [0, 0, 0, 1, 1, 1]
    assert decoder.current_state({}, {"bsz": 2}, 2).numbers.tolist() == [0, 1]


def test_a_stored_state_is_not_begun_again():
    decoder, incremental_state = Decoder(), {}
    store_state(incremental_state, Rows(torch.tensor([5, 6]), 2))
    assert decoder.current_state(incremental_state, {"bsz": 2}, 2).numbers.tolist() == [5, 6]
    assert decoder.begun == 0


def test_reordering_replaces_the_stored_state():
    decoder, incremental_state = Decoder(), {}
    decoder.reorder_incremental_state(incremental_state, torch.tensor([1]))  # nothing is stored yet
    assert stored_state(incremental_state) is None
    store_state(incremental_state, Rows(torch.tensor([5, 6]), 2))
    decoder.reorder_incremental_state(incremental_state, torch.tensor([1, 1, 0]))
    assert stored_state(incremental_state).numbers.tolist() == [6, 6, 5]


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
    packed = tokens.packed(padding)
    assert rows(packed) == [[1, 2, 3], [4]]
    assert packed.hidden.tolist() == [[False, False, False], [True, True, False]]
    assert packed.sentences[1, -1] == 2
    assert tokens.packed(None) is tokens


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
