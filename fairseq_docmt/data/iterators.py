"""Iterators that continue an interrupted epoch only with the batches it began with."""

import inspect
from typing import Optional

from fairseq.data.iterators import EpochBatchIterator

from fairseq_docmt.errors import UserError


class ResumableIterator(EpochBatchIterator):
    """Stock batches; the options that determine them are stored within an epoch.

    Args:
        *args, **kwargs: arguments of the stock iterator.
        decided_by: values of the options that determine the batches, by option.
    """

    def __init__(self, *args, decided_by: Optional[dict] = None, **kwargs):
        super().__init__(*args, **kwargs)
        self._decided_by = decided_by or {}

    @classmethod
    def of_stock(cls, iterator: EpochBatchIterator, decided_by: dict) -> "ResumableIterator":
        """Return an iterator with the batches of a stock one."""
        names = list(inspect.signature(EpochBatchIterator).parameters)
        arguments = {name: getattr(iterator, name) for name in names}
        return cls(**arguments, decided_by=decided_by)

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
        for option, before in state_dict.get("decided_by", {}).items():
            if before != self._decided_by[option]:
                raise UserError(
                    f"the checkpoint was saved in the middle of an epoch with {option} {before}, "
                    f"not {self._decided_by[option]}, which would leave sentences out or read "
                    "them twice; give the same again, or begin a new epoch with --reset-dataloader"
                )
        super().load_state_dict(state_dict)


class StreamIterator(ResumableIterator):
    """Batches in a fixed order; the state of the iterator includes the document states.

    Args:
        *args, **kwargs: arguments of :class:`ResumableIterator`.
        lane_states: object with ``for_checkpoint()`` and ``restore(state)``; None for validation.
    """

    def __init__(self, *args, lane_states=None, **kwargs):
        super().__init__(*args, disable_shuffling=True, **kwargs)
        self._lane_states = lane_states

    def state_dict(self):
        """Return the state; within an epoch also the document states of the lanes."""
        state = super().state_dict()
        if self._lane_states is not None and state["iterations_in_epoch"] > 0:
            state["carries"] = self._lane_states.for_checkpoint()
        return state

    def load_state_dict(self, state_dict):
        """Continue from a state of :meth:`state_dict`; see the base class for errors."""
        super().load_state_dict(state_dict)
        if self._lane_states is not None:
            self._lane_states.restore(state_dict.get("carries"))
