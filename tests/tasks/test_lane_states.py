"""Document states for repeated batches and for dummy batches."""

import pytest
import torch
from torch import nn

from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks._lane_states import LaneStates


class Counter(nn.Module):
    """Model whose document state counts the batches."""

    def forward(self, src_tokens, lanes, doc_state):
        before = torch.zeros(lanes) if doc_state is None else doc_state["n"]
        return None, {"doc_state": {"n": before + 1}}


def batch(step, lanes=2):
    return {"step": step, "net_input": {"src_tokens": torch.zeros(lanes), "lanes": lanes}}


def run(lane_states, step, lanes=2, **options):
    """Return the number that a batch gets as its document state."""
    model = Counter()
    with lane_states.of_batch(batch(step, lanes), model, **options) as sample:
        doc_state = sample["net_input"]["doc_state"]
        model(**sample["net_input"])
    return 0 if doc_state is None else int(doc_state["n"][0])


def test_batches_follow_each_other():
    lane_states = LaneStates()
    assert [run(lane_states, step, update=step) for step in range(3)] == [0, 1, 2]
    assert run(lane_states, 0, update=3) == 0  # a new epoch


def test_repeated_batches_do_not_advance():
    """All micro-batches of an update are run again, as after an overflow."""
    lane_states = LaneStates()
    run(lane_states, 0, update=0)
    for _ in range(3):
        assert [run(lane_states, step, update=1) for step in (1, 2)] == [1, 2]
    assert run(lane_states, 3, update=2) == 3


def test_dummy_batches_do_not_advance():
    lane_states = LaneStates()
    run(lane_states, 0, update=0)
    assert run(lane_states, 0, update=1, keep=False) == 0
    assert run(lane_states, 0, lanes=5, update=1, keep=False) == 0  # as from another split
    assert run(lane_states, 1, update=1) == 1


def test_a_failed_batch_is_not_kept():
    lane_states = LaneStates()
    run(lane_states, 0, update=0)
    with pytest.raises(ZeroDivisionError):
        with lane_states.of_batch(batch(1), Counter(), update=1):
            raise ZeroDivisionError
    assert run(lane_states, 1, update=1) == 1


def test_checkpoints():
    lane_states, later = LaneStates(), LaneStates()
    run(lane_states, 0, update=0)
    later.restore(lane_states.for_checkpoint())
    assert run(later, 1, update=1) == 1
    with pytest.raises(UserError, match="with 2 lanes; give the same --batch-size"):
        run(later, 2, lanes=3, update=2)
    with pytest.raises(UserError, match="by 2 processes, not 1; train with as many"):
        later.restore([None, None])
