"""Document states are selected, copied, moved and joined tensor by tensor."""

import torch

from fairseq_docmt.modules.document_state import detached, joined, moved
from fairseq_docmt.modules.stream import select_documents


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
