"""Groups of rows of similar length."""

import itertools
import random

import numpy as np
import pytest
import torch

from fairseq_docmt.data.row_groups import group_rows, groups_with_least_padding

LOSS = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])


def positions(groups, lengths):
    return sum(len(rows) * max(lengths[row] for row in rows) for rows in groups)


@pytest.mark.parametrize("most, count", [(1, 5), (3, 9), (4, 9), (8, 3)])
def test_no_other_groups_have_less_padding(most, count):
    random.seed(most)
    lengths = np.array([random.choice([1, 2, 3, 5, 8, 13, 21]) for _ in range(count)])
    order = sorted(range(count), key=lambda row: lengths[row])
    best = min(
        positions([order[a:b] for a, b in zip((0, *cuts), (*cuts, count))], lengths)
        for parts in range(min(most, count))
        for cuts in itertools.combinations(range(1, count), parts)
    )
    groups = groups_with_least_padding(lengths, most)
    assert sorted(row for rows in groups for row in rows) == list(range(count))
    assert len(groups) <= most and positions(groups, lengths) == best


def test_groups_of_a_batch():
    sources = [5, 90, 1, 7, 30, 6, 2, 95, 31, 4, 3, 33, 5, 5, 5, 5, 40]
    targets = [6, 80, 1, 9, 35, 6, 2, 99, 30, 4, 3, 33, 5, 5, 5, 50, 41]
    found = group_rows(sources, targets, 4, True, LOSS)
    for name, lengths, left in (
        ("source", sources, True),
        ("target", targets, False),
        ("attended", sources, True),
    ):
        grouping = found[name]
        rows = torch.cat(grouping["rows"])
        assert sorted(rows.tolist()) == list(range(17))
        longest = [max(lengths[row] for row in rows.tolist()) for rows in grouping["rows"]]
        assert grouping["lengths"] == longest
        assert grouping["left_padded"] == left
    assert all(map(torch.equal, found["target"]["rows"], found["attended"]["rows"]))
    assert found["source"]["steps"] == found["attended"]["steps"] == [90, 95, 33, 5, 40]
    assert found["target"]["steps"] == [80, 99, 33, 50, 41]
    assert found["tokens"].tolist() == [0, 1, 6, 8]


def test_small_batches_stay_together():
    assert group_rows([2] * 15, [3] * 15, 1, False, LOSS) is None
    assert group_rows([2] * 16, [3] * 16, 1, False, LOSS) is not None
