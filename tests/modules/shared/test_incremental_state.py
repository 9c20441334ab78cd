"""A decoder's state is created once, repeated for beams, and reordered as a whole."""

from typing import NamedTuple

import torch
from torch import nn

from fairseq_docmt.modules.shared.incremental_state import KeepsState, store_state, stored_state


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
