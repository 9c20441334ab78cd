"""Document states of streams in training and validation.

A stream reads several documents side by side, each in a lane, sentence by sentence.  When a
document ends, its lane goes on with another one.
"""

import contextlib
import logging
from typing import Dict, List, Optional

import torch
from fairseq.distributed import utils as distributed_utils

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.models.interface import doc_state_options
from fairseq_docmt.modules.document_state import detached, moved
from fairseq_docmt.modules.stream import DocumentState

logger = logging.getLogger(__name__)


class LaneStates:
    """Document states of the lanes of a stream, passed from each batch to the next.

    fairseq may run a batch again, after an overflow in half precision or to find NaNs.  The batch
    then starts from the same document state, and the state that it returns replaces the earlier
    one.

    Attributes:
        decided_by: option name -> value, for the options that determine the size of a state.
    """

    def __init__(self):
        self.decided_by: dict = {}
        self._current: Optional[DocumentState] = None
        self._before: Dict[int, Optional[DocumentState]] = {}
        self._update: Optional[int] = None
        self._of_all: Optional[List[Optional[DocumentState]]] = None

    def of_model(self, model, cfg) -> None:
        """Record the options of a model that determine the size of its document states.

        The values are stored in :attr:`decided_by`.

        Args:
            model: model with a document state.
            cfg: options of the model.
        """
        names = [name for name in doc_state_options(model) if hasattr(cfg, name)]
        self.decided_by = {flag(name): getattr(cfg, name) for name in names}

    @contextlib.contextmanager
    def of_batch(self, sample: dict, model, update: int, keep: bool = True):
        """Yield the batch with its document state; on exit, keep the state for the next batch.

        Args:
            sample: batch of a stream; it is not modified.
            model: model that is run on the batch within this context.  Its extra outputs contain
                the next state as ``doc_state``.
            update: number of the update that the batch belongs to; only batches of the current
                update can be run again.
            keep: False for dummy batches, whose next state is dropped.

        Raises:
            UserError: the number of lanes in the batch differs from that in the document state.
        """
        if update != self._update:
            self._update, self._before = update, {}
        step, net_input = sample["step"], sample["net_input"]
        before = self._before[step] if step in self._before else self._current
        before = None if step == 0 else moved(before, net_input["src_tokens"].device)
        self._check(before, net_input["lanes"])
        outputs = []
        with model.register_forward_hook(lambda _, inputs, output: outputs.append(output)):
            yield {**sample, "net_input": {**net_input, "doc_state": before}}
        if keep and outputs:
            self._before[step] = before
            self._current = detached(outputs[-1][1]["doc_state"])
            if not self._current:
                raise ValueError(f"the doc_state of {type(model).__name__} has no tensors")
            self._of_all = None

    @staticmethod
    def _check(before: Optional[DocumentState], lanes: int) -> None:
        found = lanes if before is None else len(next(iter(before.values())))
        if found != lanes:
            raise UserError(
                f"the checkpoint was saved in the middle of an epoch with {found} lanes; give the "
                f"same --batch-size again instead of {lanes}, or begin a new epoch with "
                "--reset-dataloader"
            )

    def gather(self) -> None:
        """Gather the document states of all processes on each process, for a checkpoint.

        Afterwards, :meth:`for_checkpoint` returns them.  Every process must call this method.
        """
        if distributed_utils.get_data_parallel_world_size() == 1:
            return
        states = [None] * distributed_utils.get_data_parallel_world_size()
        group = distributed_utils.get_data_parallel_group()
        torch.distributed.all_gather_object(states, moved(self._current, "cpu"), group=group)
        self._of_all = states

    def for_checkpoint(self) -> List[Optional[DocumentState]]:
        """Return the document states to store in a checkpoint: a list with one state per process.

        The states are on the CPU.  With several processes, all entries but the first are None
        unless :meth:`gather` has been called after the last batch.
        """
        if self._of_all is not None:
            return self._of_all
        processes = distributed_utils.get_data_parallel_world_size()
        if processes > 1:
            logger.warning(
                "this checkpoint has the document state of the first of %d processes only; if "
                "training continues from it, the others begin without a document state",
                processes,
            )
        return [moved(self._current, "cpu")] + [None] * (processes - 1)

    def restore(self, states: Optional[List[Optional[DocumentState]]]) -> None:
        """Continue from the document states of a checkpoint.

        Args:
            states: document state of each process, or None at the beginning of an epoch.

        Raises:
            UserError: the checkpoint was written by a different number of processes.
        """
        self._before, self._update, self._of_all = {}, None, None
        if states is None:
            self._current = None
            return
        processes = distributed_utils.get_data_parallel_world_size()
        if len(states) != processes:
            raise UserError(
                f"the checkpoint was saved in the middle of an epoch by {len(states)} processes, "
                f"not {processes}; train with as many, or begin a new epoch with --reset-dataloader"
            )
        rank = distributed_utils.get_data_parallel_rank() if processes > 1 else 0
        self._current = states[rank]
