"""Streams: layout of batches, document states, groups of rows, with values worked out by hand."""

import pytest
import torch

from fairseq_docmt.modules.stream import (
    RowGroups,
    Stream,
    detached,
    joined,
    moved,
    select_documents,
)

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


def state(rows, width, requires_grad=False):
    numbers = torch.arange(float(rows * width)).view(rows, width)
    return {
        "memory": numbers.requires_grad_(requires_grad),
        "age": torch.arange(rows),
    }


def test_documents_are_selected_by_index():
    chosen = select_documents(state(3, 2), torch.tensor([2, 0, 0]))
    assert chosen["memory"].tolist() == [[4, 5], [0, 1], [0, 1]]
    assert chosen["age"].tolist() == [2, 0, 0]


def test_a_detached_state_is_a_copy_without_gradients():
    before = state(2, 2, requires_grad=True)
    after = detached({**before, "memory": before["memory"] * 2})
    assert not after["memory"].requires_grad
    after["age"][0] = 7
    assert before["age"].tolist() == [0, 1]


def test_moving_keeps_values_and_none():
    assert moved(None, "cpu") is None
    there = moved(state(2, 2), "meta")
    assert {name: (x.device.type, x.shape[0]) for name, x in there.items()} == {
        "memory": ("meta", 2),
        "age": ("meta", 2),
    }


def test_states_of_different_width_are_joined_with_zeros():
    both = joined([state(1, 1), state(2, 3)])
    assert both["memory"].tolist() == [[0, 0, 0], [0, 1, 2], [3, 4, 5]]
    assert both["age"].tolist() == [0, 0, 1]
    vectors = joined([{"memory": torch.ones(1, 1, 2)}, {"memory": torch.ones(1, 2, 2)}])["memory"]
    assert vectors.tolist() == [[[1, 1], [0, 0]], [[1, 1], [1, 1]]]


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
