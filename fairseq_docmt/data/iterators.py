"""Batch iterators that resume an interrupted epoch only if its batches are still the same.

When the process ends, the module also stops the threads in which fairseq loads batches in advance.
"""

import atexit
import contextlib
import gc
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
    """Stop the threads that load batches in advance (``--data-buffer-size``).

    This is done when the process ends, because Python does not wait for these threads.  If such a
    thread returned from torch while the interpreter shuts down, it would abort the process, and a
    command that has done its work would end with status 134.
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
    """Batch iterator that refuses to resume an interrupted epoch if its batches have changed.

    To check this, the options that determine the batches are stored in checkpoints.  If one has
    changed when training resumes, :meth:`load_state_dict` raises an error.

    Args:
        *args, **kwargs: arguments of fairseq's iterator.
        decided_by: option -> value, for the options that determine the batches.

    Attributes:
        ended: set to True by the task to end training without another epoch.
    """

    ended = False

    def __init__(self, *args, decided_by: Optional[dict] = None, **kwargs):
        super().__init__(*args, **kwargs)
        self._decided_by = decided_by or {}

    @classmethod
    def of_stock(cls, iterator: EpochBatchIterator, decided_by: dict) -> "ResumableIterator":
        """Create a resumable iterator over the batches of a fairseq iterator.

        Args:
            iterator: fairseq's iterator.
            decided_by: option -> value, for the options that determine the batches, except
                ``--grouped-shuffling``, which is added here.
        """
        names = list(inspect.signature(EpochBatchIterator).parameters)
        arguments = {name: getattr(iterator, name) for name in names}
        order = {"--grouped-shuffling": iterator.grouped_shuffling}
        return cls(**arguments, decided_by={**decided_by, **order})

    @property
    def next_epoch_idx(self):
        """Number of the next epoch; NaN if ``ended`` is set, which ends fairseq's training loop."""
        return math.nan if self.ended else super().next_epoch_idx

    def state_dict(self):
        """Return the state for a checkpoint.

        It is fairseq's state and, within an epoch, the options that determine its batches.
        """
        state = super().state_dict()
        if state["iterations_in_epoch"] > 0:
            state["decided_by"] = self._decided_by
        return state

    def load_state_dict(self, state_dict):
        """Resume from a state that :meth:`state_dict` returned.

        Raises:
            UserError: the current options would change the batches of the interrupted epoch.
        """
        before = state_dict.get("decided_by", {})
        before = {RENAMED_FLAGS.get(name, name): value for name, value in before.items()}
        self._refuse_another_task(before)
        _refuse_changes(before, self._decided_by, OTHERS_READ)
        super().load_state_dict(state_dict)

    def _get_iterator_for_epoch(self, epoch, shuffle, **kwargs):
        """Return the iterator of an epoch.

        Unlike in fairseq, ``shuffle`` has an effect even if the data loader is reused.
        """
        if self.num_workers > 0:
            # Iterators of earlier epochs are in reference cycles.  New workers would inherit them
            # and, when they free them, print that they are not the parents of their workers.
            gc.collect()
        if self.dataloader is not None:
            self.epoch_batch_sampler.shuffle = shuffle
        return super()._get_iterator_for_epoch(epoch, shuffle, **kwargs)

    def _refuse_another_task(self, before: dict) -> None:
        """Refuse a checkpoint that has options of another task.

        This concerns checkpoints of earlier versions, which do not store the name of the task.

        Args:
            before: option -> value in the checkpoint.

        Raises:
            UserError: the checkpoint names no task and has an option that this task lacks.
        """
        missing = before.keys() - self._decided_by.keys()
        if missing and TASK not in before:
            raise UserError(
                "the checkpoint was saved in the middle of an epoch of another task, which had "
                f"{min(missing)}; continue with that task, or begin a new epoch with "
                "--reset-dataloader"
            )


def _refuse_changes(before: dict, now: dict, consequence: str) -> None:
    """Refuse to resume an epoch if the value of an option has changed since it began.

    Args:
        before: option -> value in the checkpoint; earlier versions stored fewer options.
        now: option -> value in this run.
        consequence: what a change would lead to, for the message.

    Raises:
        UserError: an option differs.  The message names one such option, ``--task`` if it differs.
    """
    for option in sorted(before.keys() & now.keys(), key=lambda name: (name != TASK, name)):
        if before[option] != now[option]:
            raise UserError(
                f"the checkpoint was saved in the middle of an epoch with {option} "
                f"{before[option]}, not {now[option]}, {consequence}; give the same again, or "
                "begin a new epoch with --reset-dataloader"
            )


class StreamIterator(ResumableIterator):
    """Batch iterator for document streams; its checkpoints also store the document states.

    The batches are not shuffled, because each one continues the documents of the one before.

    Args:
        *args, **kwargs: arguments of :class:`ResumableIterator`.
        lane_states: current document state of each lane; None for validation.  The object has
            methods ``for_checkpoint()`` and ``restore(state)``, and an attribute ``decided_by``
            with the options (option -> value) that determine the size of the states.
    """

    def __init__(self, *args, lane_states=None, **kwargs):
        super().__init__(*args, disable_shuffling=True, **kwargs)
        self._lane_states = lane_states

    def state_dict(self):
        """Return the state for a checkpoint; within an epoch, it includes the document states."""
        state = super().state_dict()
        if self._lane_states is not None and state["iterations_in_epoch"] > 0:
            state["carries"] = self._lane_states.for_checkpoint()
            state["carries_decided_by"] = self._lane_states.decided_by
        return state

    def load_state_dict(self, state_dict):
        """Resume from a state that :meth:`state_dict` returned.

        Raises:
            UserError: the current options would change the batches of the interrupted epoch, or the
                size of the document states.
        """
        super().load_state_dict(state_dict)
        if self._lane_states is not None:
            before = state_dict.get("carries_decided_by", {})
            _refuse_changes(before, self._lane_states.decided_by, OTHER_STATES)
            self._lane_states.restore(state_dict.get("carries"))
