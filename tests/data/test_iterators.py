"""Iterators that continue an interrupted epoch only with the batches it began with."""

import gc
import weakref

import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator

from fairseq_docmt.data.iterators import ResumableIterator
from fairseq_docmt.errors import UserError


class Numbers(torch.utils.data.Dataset):
    """The numbers 0 to 9."""

    def __len__(self):
        return 10

    def __getitem__(self, item):
        return item


def pairs(dataset, epoch):
    """Return batches of two that depend on the epoch."""
    order = [(item + epoch) % 10 for item in range(10)]
    return [order[i : i + 2] for i in range(0, 10, 2)]


def iterator(seed=1, grouped_shuffling=False, **decided_by):
    stock = EpochBatchIterator(
        *(Numbers(), list, pairs), seed=seed, grouped_shuffling=grouped_shuffling
    )
    return stock, ResumableIterator.of_stock(stock, {"--seed": seed, **decided_by})


def interrupted(**options):
    """State of an iterator in the middle of an epoch."""
    _, ours = iterator(**options)
    next(ours.next_epoch_itr())
    return ours.state_dict()


def test_batches_equal_those_of_the_stock_iterator():
    stock, ours = iterator()
    for _ in range(3):
        assert list(ours.next_epoch_itr()) == list(stock.next_epoch_itr())


def test_an_interrupted_epoch_continues():
    _, ours = iterator()
    list(ours.next_epoch_itr())
    epoch = ours.next_epoch_itr()
    read = [next(epoch), next(epoch)]
    _, again = iterator()
    again.load_state_dict(ours.state_dict())
    read += list(again.next_epoch_itr())
    assert sorted(sum(read, [])) == list(range(10))
    assert read[2:] == list(epoch)


def test_workers_inherit_no_iterator_of_an_earlier_epoch():
    """They would free it, and say that they are not the parent of its workers."""
    made = [iterator()[1] for _ in range(2)]
    for each in made:
        each.num_workers = 1
    first, second = weakref.ref(made[0]), made[1]
    assert len(list(made[0].next_epoch_itr())) == 5
    gc.disable()
    try:
        made.clear()
        del each
        assert first() is not None  # fairseq's iterators refer to themselves
        second.next_epoch_itr()
        assert first() is None
    finally:
        gc.enable()


def test_epochs_are_shuffled_after_those_of_a_curriculum():
    """Also by a data loader that is kept, as fairseq's trainer keeps it."""
    stock = EpochBatchIterator(Numbers(), list, pairs, reuse_dataloader=True)
    ours = ResumableIterator.of_stock(stock, {})
    epochs = [list(ours.next_epoch_itr(shuffle=epoch > 2)) for epoch in (1, 2, 3, 4)]
    assert epochs[:2] == [pairs(None, 1), pairs(None, 2)]
    for epoch in (3, 4):
        resumed = EpochBatchIterator(Numbers(), list, pairs, epoch=epoch)
        assert epochs[epoch - 1] == list(resumed.next_epoch_itr()) != pairs(None, epoch)


def test_other_batches_are_refused_within_an_epoch_only():
    _, ours = iterator()
    epoch = ours.next_epoch_itr()
    next(epoch)
    message = "in the middle of an epoch with --seed 1, not 2, which would leave sentences out"
    with pytest.raises(UserError, match=message):
        iterator(seed=2)[1].load_state_dict(ours.state_dict())
    list(epoch)
    iterator(seed=2)[1].load_state_dict(ours.state_dict())


@pytest.mark.parametrize(
    "before, now, message",
    [
        (
            {"--task": "windows", "--stride": 1},
            {"--task": "documents", "seed": 2},
            "with --task windows, not documents",
        ),
        # Earlier versions stored fewer options.
        (
            {"--stride": 1},
            {"--task": "documents", "seed": 2},
            "of another task, which had --stride",
        ),
        ({}, {"grouped_shuffling": True}, "with --grouped-shuffling False, not True"),
    ],
)
def test_another_task_or_order_is_refused_in_one_sentence(before, now, message):
    with pytest.raises(UserError, match=f"in the middle of an epoch {message}"):
        iterator(**now)[1].load_state_dict(interrupted(**before))


def test_options_that_an_earlier_version_did_not_store_are_not_compared():
    _, ours = iterator(**{"--task": "windows", "--stride": 2})
    ours.load_state_dict(interrupted())
    assert ours.iterations_in_epoch == 1
