"""Groups of rows of similar length."""

import pytest
import torch

from fairseq_docmt.data.row_groups import group_rows

LOSS = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])


def test_rows_of_similar_length_are_together():
    sources = [5, 90, 1, 7, 30, 6, 2, 95, 31, 4, 3, 33, 5, 5, 5, 5, 40]
    targets = [6, 80, 1, 9, 35, 6, 2, 99, 30, 4, 3, 33, 5, 5, 5, 50, 41]
    grouping = group_rows(sources, targets, 4, True, LOSS)
    low, high = (group.tolist() for group in grouping["rows"])
    assert sorted(low + high) == list(range(17))
    totals = [a + b for a, b in zip(sources, targets)]
    assert max(totals[row] for row in low) <= min(totals[row] for row in high)
    assert grouping["source"] == [max(sources[row] for row in rows) for rows in (low, high)]
    assert grouping["target"] == [max(targets[row] for row in rows) for rows in (low, high)]
    assert torch.cat(grouping["rows"])[grouping["order"]].tolist() == list(range(17))
    assert grouping["source_steps"] == [90, 95, 33, 5, 40]
    assert grouping["target_steps"] == [80, 99, 33, 50, 41]
    assert grouping["tokens"].tolist() == [0, 1, 6, 8]


@pytest.mark.parametrize("rows, groups", [(15, None), (16, 2), (63, 7), (64, 8), (300, 8)])
def test_larger_batches_have_more_groups(rows, groups):
    grouping = group_rows([2] * rows, [3] * rows, 1, False, LOSS)
    assert (grouping and len(grouping["rows"])) == groups
