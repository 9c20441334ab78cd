"""Streams: layout of batches, and groups of rows, with values worked out by hand and loops."""

import pytest
import torch
from torch.autograd import gradcheck

from fairseq_docmt.modules.stream import RowGroups, Stream, _Gathered, _Scattered

TOKENS = torch.zeros(6, 4, dtype=torch.long)


def test_without_marks_each_row_is_a_document_in_a_lane_of_its_own():
    stream = Stream.of(TOKENS)
    assert stream.starts.tolist() == [True] * 6
    assert (stream.lanes, stream.doc_state) == (6, None)


def test_marks_and_lanes_are_kept():
    starts = torch.tensor([True, False, False, False, True, False])
    stream = Stream.of(TOKENS, starts, 2, {"memory": torch.ones(2, 1)})
    assert stream.starts is starts and stream.lanes == 2


def test_rows_are_repeated_for_beams():
    starts = torch.tensor([True, False])
    stream = Stream(starts, 2, {"memory": torch.tensor([[1.0], [2.0]])})
    assert stream.for_rows(2) is stream
    beams = stream.for_rows(6)
    assert beams.starts.tolist() == [True] * 3 + [False] * 3
    assert beams.lanes == 6
    assert beams.doc_state["memory"].view(-1).tolist() == [1, 1, 1, 2, 2, 2]


def test_previous_sentences_of_two_lanes():
    """Three rows of each lane after one and two sentences; the second lane begins a document."""
    starts = torch.tensor([False, False, False, True, False, False])
    place, known, kept = Stream(starts, 2, None).previous(torch.tensor([1, 2]), 2)
    # Incoming sentences have the places 0 to 3, two lanes by two; the rows follow from 4.
    assert place.tolist() == [[0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7]]
    assert known.int().tolist() == [[0, 1], [1, 1], [1, 1], [0, 0], [1, 1], [0, 1]]
    assert kept.int().tolist() == [[1, 1], [1, 1]]


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
    steps = [slice(-5, None), slice(-2, None)] if left else [slice(5), slice(2)]
    assert [groups.columns_of_step(n) for n in (0, 1)] == steps
    assert [part.tolist() for part in groups.select(torch.arange(5))] == [[2, 0, 4], [1, 3]]


def test_one_group():
    groups, x = RowGroups(None), torch.randn(2, 3, 4)
    assert groups.split(x)[0] is x and groups.select(x)[0] is x and groups.join([x], 3) is x
    assert groups.split(None) == [None] and groups.rows is None
    assert groups.columns_of_step(1) == slice(None)


MIXED = [torch.tensor([3, 0]), torch.tensor([2]), torch.tensor([4, 1])]


COLUMNS = [slice(2), slice(-3, None), slice(5)]


GROUPS = list(zip(MIXED, COLUMNS))


def gathered(x, groups):
    return list(_Gathered.apply(x, groups))


def scattered(parts, groups, shape):
    return _Scattered.apply(groups, shape, *parts)


def loop(x):
    """Return the values of each group, position by position."""
    columns = [range(*c.indices(x.size(1))) for c in COLUMNS]
    return [
        torch.stack([torch.stack([x[row, at] for at in places]) for row in rows.tolist()])
        for rows, places in zip(MIXED, columns)
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
    groups = [(rows, None) for rows in MIXED]
    parts = gathered(values, groups)
    assert all(torch.equal(part, values[rows]) for part, rows in zip(parts, MIXED))
    assert torch.equal(scattered(parts, groups, values.shape), values)
