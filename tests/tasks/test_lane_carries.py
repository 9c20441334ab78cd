"""Batches that are run again, or only for the sake of running."""

import pytest
import torch
from torch import nn

from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks._lane_carries import LaneCarries


class Counter(nn.Module):
    """Carries on the number that it was given, and one more for each batch."""

    def forward(self, src_tokens, lanes, carry):
        before = torch.zeros(lanes) if carry is None else carry["n"]
        return None, {"carry": {"n": before + 1}}


def batch(step, lanes=2):
    return {"step": step, "net_input": {"src_tokens": torch.zeros(lanes), "lanes": lanes}}


def run(carries, step, lanes=2, **options):
    """Number that a batch begins with."""
    model = Counter()
    with carries.of_batch(batch(step, lanes), model, **options) as sample:
        carry = sample["net_input"]["carry"]
        model(**sample["net_input"])
    return 0 if carry is None else int(carry["n"][0])


def test_batches_follow_each_other():
    carries = LaneCarries()
    assert [run(carries, step, update=step) for step in range(3)] == [0, 1, 2]
    assert run(carries, 0, update=3) == 0  # a new epoch


def test_repeated_batches_do_not_advance():
    """All micro-batches of an update again, as after an overflow."""
    carries = LaneCarries()
    run(carries, 0, update=0)
    for _ in range(3):
        assert [run(carries, step, update=1) for step in (1, 2)] == [1, 2]
    assert run(carries, 3, update=2) == 3


def test_dummy_batches_do_not_advance():
    carries = LaneCarries()
    run(carries, 0, update=0)
    assert run(carries, 0, update=1, keep=False) == 0
    assert run(carries, 0, lanes=5, update=1, keep=False) == 0  # as from another split
    assert run(carries, 1, update=1) == 1


def test_a_failed_batch_is_not_kept():
    carries = LaneCarries()
    run(carries, 0, update=0)
    with pytest.raises(ZeroDivisionError):
        with carries.of_batch(batch(1), Counter(), update=1):
            raise ZeroDivisionError
    assert run(carries, 1, update=1) == 1


def test_checkpoints():
    carries, later = LaneCarries(), LaneCarries()
    run(carries, 0, update=0)
    later.restore(carries.for_checkpoint())
    assert run(later, 1, update=1) == 1
    with pytest.raises(UserError, match="with 2 lanes; give the same --batch-size"):
        run(later, 2, lanes=3, update=2)
    with pytest.raises(UserError, match="by 2 processes, not 1; train with as many"):
        later.restore([None, None])
