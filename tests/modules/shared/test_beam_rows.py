"""Reordering of beams, with values computed by hand."""

import pytest
import torch

from fairseq_docmt.modules.shared.beam_rows import split_order


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
    ],
)
def test_split_order(order, bsz, beams, sentences, new_beams, local):
    rows = split_order(torch.tensor(order), bsz, beams)
    assert rows.beams == new_beams
    assert (None if rows.sentences is None else rows.sentences.tolist()) == sentences
    assert (None if rows.local is None else rows.local.tolist()) == local


@pytest.mark.parametrize("order", [[0, 2, 1, 3], [0, 1, 2]])
def test_rows_of_different_sentences_cannot_be_split(order):
    assert split_order(torch.tensor(order), 2, 2) is None
