"""Values of rows in groups of similar length."""

import pytest
import torch

from fairseq_docmt.modules.shared.row_groups import RowGroups

LENGTHS = {"source": [2, 5, 1, 4, 3], "target": [3, 3, 1, 5, 2]}
ROWS = [torch.tensor([2, 0, 4]), torch.tensor([1, 3])]


def groups_of(side, left):
    longest = {s: [max(x[row] for row in rows) for rows in ROWS] for s, x in LENGTHS.items()}
    order = torch.cat(ROWS).argsort()
    steps = {f"{side}_steps": [3, 5] for side in LENGTHS}
    return RowGroups(
        {"rows": ROWS, "order": order, **longest, **steps, "left_pad_source": left}, side
    )


@pytest.mark.parametrize("side, left", [("source", True), ("source", False), ("target", True)])
def test_split_and_join(side, left):
    groups, width = groups_of(side, left), 6
    x = torch.zeros(5, width, 2)
    for row, length in enumerate(LENGTHS[side]):
        places = slice(-length, None) if left and side == "source" else slice(length)
        x[row, places] = torch.randint(1, 9, (length, 2)).float()
    parts = groups.split(x)
    assert [part.shape[1] for part in parts] == [3, 5]
    for part, rows in zip(parts, ROWS):
        for found, row in zip(part, rows.tolist()):
            assert torch.equal(found.sum(0), x[row].sum(0))
    assert torch.equal(groups.join(parts, width), x)
    assert groups.split(None) == [None, None]
    columns = [slice(-3, None), slice(-5, None)]
    if side == "target" or not left:
        columns = [slice(3), slice(5)]
    assert groups.steps() == columns
    assert [part.tolist() for part in groups.select(torch.arange(5))] == [[2, 0, 4], [1, 3]]


def test_one_group():
    groups, x = RowGroups(None, "source"), torch.randn(2, 3, 4)
    assert groups.split(x)[0] is x and groups.select(x)[0] is x and groups.join([x], 3) is x
    assert groups.split(None) == [None] and groups.steps() is None
