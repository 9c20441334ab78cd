"""Positions in sentences, against the loop."""

import pytest
import torch

from fairseq_docmt.ops import naive
from fairseq_docmt.ops.sentence_positions import sentence_positions


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_positions_equal_the_loop(ends, left):
    """Any padding, several separators in a row, and rows that go on after tokens read before."""
    torch.manual_seed(0)
    for length in (1, 2, 7, 30):
        padding = torch.arange(length) < torch.randint(0, length + 1, (5, 1))
        is_token = ~padding if left else ~padding.flip(1)
        read = torch.zeros(5, 1, dtype=torch.long) if ends else torch.randint(0, 4, (5, 1))
        positions = (is_token.cumsum(1) + read) * is_token
        separators = torch.rand(5, length).lt(0.4) & is_token
        found = sentence_positions(positions, separators, ends)
        assert torch.equal(found, naive.sentence_positions(positions, separators, ends))


def test_where_a_separator_belongs():
    tokens, rows = torch.arange(1, 7)[None], torch.tensor([[0, 0, 1, 0, 1, 0]]).bool()
    assert sentence_positions(tokens, rows, ends=True).tolist() == [[1, 2, 3, 1, 2, 1]]
    assert sentence_positions(tokens, rows, ends=False).tolist() == [[1, 2, 1, 2, 1, 2]]
