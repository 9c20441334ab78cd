"""Decoder states in a search: order of beams, and the state as a whole."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from fairseq_docmt.modules.search_state import KeepsState, split_order, store_state, stored_state


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
