"""Values of rows in groups of similar length."""

import pytest
import torch

from fairseq_docmt.modules.shared.row_groups import RowGroups

LENGTHS = [2, 5, 1, 4, 3]
ROWS = [torch.tensor([2, 0, 4]), torch.tensor([1, 3])]


@pytest.mark.parametrize("left", [True, False])
def test_split_and_join(left):
    width = 6
    groups = RowGroups({"rows": ROWS, "lengths": [3, 5], "steps": [5, 2], "left_padded": left})
    x = torch.zeros(5, width, 2)
    for row, length in enumerate(LENGTHS):
        places = slice(-length, None) if left else slice(length)
        x[row, places] = torch.randint(1, 9, (length, 2)).float()
    parts = groups.split(x)
    assert [part.shape[1] for part in parts] == [3, 5]
    for part, rows in zip(parts, ROWS):
        for found, row in zip(part, rows.tolist()):
            assert torch.equal(found.sum(0), x[row].sum(0))
    assert torch.equal(groups.join(parts, width), x)
    assert groups.split(None) == [None, None]
    assert groups.steps() == ([slice(-5, None), slice(-2, None)] if left else [slice(5), slice(2)])
    assert groups.columns_of_step(1) == groups.steps()[1]
    assert [part.tolist() for part in groups.select(torch.arange(5))] == [[2, 0, 4], [1, 3]]


def test_one_group():
    groups, x = RowGroups(None), torch.randn(2, 3, 4)
    assert groups.split(x)[0] is x and groups.select(x)[0] is x and groups.join([x], 3) is x
    assert groups.split(None) == [None] and groups.steps() is None and groups.rows is None
    assert groups.columns_of_step(1) == slice(None)
