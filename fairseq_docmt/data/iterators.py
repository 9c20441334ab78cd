"""Iterators that continue an interrupted epoch only with the batches it began with.

The threads in which fairseq loads batches ahead are stopped before the process ends.
"""

import atexit
import contextlib
import inspect
import math
import queue
import threading
import time
from typing import Optional

from fairseq.data.iterators import BackgroundConsumer, EpochBatchIterator

from fairseq_docmt.errors import UserError

#: determines which other options there are
TASK = "--task"
OTHERS_READ = "which would leave sentences out or read them twice"
#: option in checkpoints of version 0.1 -> today's option
RENAMED_FLAGS = {"--random-chunk": "--sample-chunk-sentences"}
OTHER_STATES = "which the document states in it do not fit"
#: seconds to wait for threads that load batches; one batch is enough for them to end
LONGEST_WAIT = 30


@atexit.register
def stop_loading() -> None:
    """Stop the threads that load batches ahead (``--data-buffer-size``).

    Python does not wait for them.  A thread that returns from torch while the interpreter shuts
    down aborts the process, so that a finished command would end with status 134.
    """
    threads = [one for one in threading.enumerate() if isinstance(one, BackgroundConsumer)]
    for thread in threads:
        thread._max_len = 0  # the next batch is its last
    latest = time.monotonic() + LONGEST_WAIT
    for thread in threads:
        while thread.is_alive() and time.monotonic() < latest:
            with contextlib.suppress(queue.Empty):
                while True:  # it may wait for space in its queue
                    thread._queue.get_nowait()
            thread.join(0.01)


class ResumableIterator(EpochBatchIterator):
    """Stock batches; the options that determine them are stored within an epoch.

    Args:
        *args, **kwargs: arguments of the stock iterator.
        decided_by: values of the options that determine the batches, by option.

    Attributes:
        ended: whether no epoch is left to train.
    """

    ended = False

    def __init__(self, *args, decided_by: Optional[dict] = None, **kwargs):
        super().__init__(*args, **kwargs)
        self._decided_by = decided_by or {}

    @classmethod
    def of_stock(cls, iterator: EpochBatchIterator, decided_by: dict) -> "ResumableIterator":
        """Return an iterator with the batches of a stock one."""
        names = list(inspect.signature(EpochBatchIterator).parameters)
        arguments = {name: getattr(iterator, name) for name in names}
        order = {"--grouped-shuffling": iterator.grouped_shuffling}
        return cls(**arguments, decided_by={**decided_by, **order})

    @property
    def next_epoch_idx(self):
        """Return the number of the next epoch; if there is none, NaN, which is below no limit."""
        return math.nan if self.ended else super().next_epoch_idx

    def state_dict(self):
        """Return the stock state; within an epoch also the options that determine its batches."""
        state = super().state_dict()
        if state["iterations_in_epoch"] > 0:
            state["decided_by"] = self._decided_by
        return state

    def load_state_dict(self, state_dict):
        """Continue from a state of :meth:`state_dict`.

        Raises:
            UserError: the options give other batches than those of the interrupted epoch.
        """
        before = state_dict.get("decided_by", {})
        before = {RENAMED_FLAGS.get(name, name): value for name, value in before.items()}
        self._refuse_another_task(before)
        _refuse_changes(before, self._decided_by, OTHERS_READ)
        super().load_state_dict(state_dict)

    def _get_iterator_for_epoch(self, epoch, shuffle, **kwargs):
        """Return fairseq's iterator with a new data loader; an old one repeats its first order."""
        if self.dataloader is not None:
            self.epoch_batch_sampler.shuffle = shuffle
        return super()._get_iterator_for_epoch(epoch, shuffle, **kwargs)

    def _refuse_another_task(self, before: dict) -> None:
        """Refuse a checkpoint of an earlier version, which does not name the task, of another."""
        missing = before.keys() - self._decided_by.keys()
        if missing and TASK not in before:
            raise UserError(
                "the checkpoint was saved in the middle of an epoch of another task, which had "
                f"{min(missing)}; continue with that task, or begin a new epoch with "
                "--reset-dataloader"
            )


def _refuse_changes(before: dict, now: dict, consequence: str) -> None:
    """Refuse other values of options than those that an epoch began with.

    Args:
        before: values by option in the checkpoint; earlier versions have fewer options.
        now: values of this run.
        consequence: what a change leads to.

    Raises:
        UserError: naming the first option that differs, the task before others.
    """
    for option in sorted(before.keys() & now.keys(), key=lambda name: (name != TASK, name)):
        if before[option] != now[option]:
            raise UserError(
                f"the checkpoint was saved in the middle of an epoch with {option} "
                f"{before[option]}, not {now[option]}, {consequence}; give the same again, or "
                "begin a new epoch with --reset-dataloader"
            )


class StreamIterator(ResumableIterator):
    """Batches in a fixed order; the state of the iterator includes the document states.

    Args:
        *args, **kwargs: arguments of :class:`ResumableIterator`.
        lane_states: object with ``for_checkpoint()`` and ``restore(state)``, and with the values of
            the options that determine the size of the states, ``decided_by``; None for validation.
    """

    def __init__(self, *args, lane_states=None, **kwargs):
        super().__init__(*args, disable_shuffling=True, **kwargs)
        self._lane_states = lane_states

    def state_dict(self):
        """Return the state; within an epoch also the document states of the lanes."""
        state = super().state_dict()
        if self._lane_states is not None and state["iterations_in_epoch"] > 0:
            state["carries"] = self._lane_states.for_checkpoint()
            state["carries_decided_by"] = self._lane_states.decided_by
        return state

    def load_state_dict(self, state_dict):
        """Continue from a state of :meth:`state_dict`.

        Raises:
            UserError: the options give other batches than those of the interrupted epoch, or
                document states of another size.
        """
        super().load_state_dict(state_dict)
        if self._lane_states is not None:
            before = state_dict.get("carries_decided_by", {})
            _refuse_changes(before, self._lane_states.decided_by, OTHER_STATES)
            self._lane_states.restore(state_dict.get("carries"))
