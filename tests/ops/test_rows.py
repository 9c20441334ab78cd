"""Groups of rows and places among padding, against loops."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairseq_docmt.ops.rows import gathered, placed, scattered

ROWS = [torch.tensor([3, 0]), torch.tensor([2]), torch.tensor([4, 1])]
COLUMNS = [slice(2), slice(-3, None), slice(5)]
GROUPS = list(zip(ROWS, COLUMNS))


def loop(x):
    """Return the values of each group, position by position."""
    columns = [range(*c.indices(x.size(1))) for c in COLUMNS]
    return [
        torch.stack([torch.stack([x[row, at] for at in places]) for row in rows.tolist()])
        for rows, places in zip(ROWS, columns)
    ]


def test_values_of_groups():
    x = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    found, wanted = gathered(x, GROUPS), loop(x)
    upstream = [torch.randn_like(part) for part in wanted]
    assert all(map(torch.equal, found, wanted))
    ours, loops = (torch.autograd.grad(parts, x, upstream)[0] for parts in (found, wanted))
    assert torch.equal(ours, loops)


def test_values_are_put_back_where_they_were_and_zeros_elsewhere():
    parts = [part.requires_grad_() for part in loop(torch.randn(5, 5, 3, dtype=torch.float64))]
    x = scattered(parts, GROUPS, (5, 5, 3))
    assert all(map(torch.equal, loop(x), parts))
    assert x.ne(0).sum() == sum(part.numel() for part in parts)
    upstream = torch.randn_like(x)
    assert all(map(torch.equal, torch.autograd.grad(x, parts, upstream), loop(upstream)))


def test_gradients():
    x = torch.randn(5, 5, 1, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda x: tuple(gathered(x, GROUPS)), x)
    parts = [part.detach().requires_grad_() for part in loop(x)]
    assert gradcheck(lambda *parts: scattered(parts, GROUPS, (5, 5, 1)), parts)


def test_a_group_without_gradient_counts_as_zeros():
    x = torch.randn(5, 5, 2, requires_grad=True)
    first, *_ = gathered(x, GROUPS)
    first.sum().backward()
    assert x.grad.sum() == first.numel()


@pytest.mark.parametrize("values", [torch.arange(5), torch.arange(5).gt(2), torch.randn(5, 2)])
def test_all_columns_of_values_of_any_type(values):
    groups = [(rows, None) for rows in ROWS]
    parts = gathered(values, groups)
    assert all(torch.equal(part, values[rows]) for part, rows in zip(parts, ROWS))
    assert torch.equal(scattered(parts, groups, values.shape), values)


def test_packed_states_get_their_padding_back():
    lengths = torch.tensor([2, 4, 1])
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    states, places = (
        pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        for values in (x, torch.arange(12).view(3, 4))
    )
    wanted, _ = pad_packed_sequence(states, batch_first=True)
    found = placed(states.data, places.data, 12).view(3, 4, 5)
    assert torch.equal(found, wanted)
    upstream = torch.randn_like(wanted)
    ours, torchs = (
        torch.autograd.grad(y, x, upstream, retain_graph=True)[0] for y in (found, wanted)
    )
    assert torch.equal(ours, torchs)
