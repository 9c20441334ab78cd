"""States of the previous sentences of each row of a stream, kept in the document state."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.previous_sentences import check_count
from fairseq_docmt.modules.shared.stream import Stream


class PreviousStates(NamedTuple):
    """States of the sentences of a batch and of its document state.

    Attributes:
        states: (M, W, C) states of each sentence, those of the incoming document state first.
        present: (M, W) True at words, False at padding.
        place: (rows, n) index in ``states`` of the n previous sentences of each row, the farthest
            first.
        known: (rows, n) True if they belong to the row's document.
        doc_state: document state after the batch; ``SIDE.states`` is (lanes, W, n, C),
            ``SIDE.present`` (lanes, W, n).
    """

    states: Tensor
    present: Tensor
    place: Tensor
    known: Tensor
    doc_state: DocumentState

    @classmethod
    def of(
        cls, side: str, states: Tensor, present: Tensor, stream: Stream, count: int
    ) -> "PreviousStates":
        """Find the previous ``count`` sentences of each row.

        Args:
            side: prefix of names in the document state.
            states: (rows, W, C) states of the batch.
            present: (rows, W) True at words.
            stream: layout of the batch.
            count: number n of sentences.

        Raises:
            UserError: the document state has another number of sentences.
        """
        lanes, size = stream.lanes, states.size(2)
        before = stream.doc_state or {
            f"{side}.states": states.new_zeros(lanes, 1, count, size),
            f"{side}.present": present.new_zeros(lanes, 1, count),
        }
        before_states = before[f"{side}.states"].to(states.dtype).permute(2, 0, 1, 3)
        before_present = before[f"{side}.present"].permute(2, 0, 1)
        check_count(len(before_present), count)
        width = max(states.size(1), before_states.size(2))

        def joined(first: Tensor, then: Tensor) -> Tensor:
            """Join sentences (n, lanes, W, ...) and (rows, W, ...) of different widths."""
            then = then.unflatten(0, (-1, lanes))
            others = (0, 0) * (first.dim() - 3)
            return torch.cat([F.pad(x, (*others, 0, width - x.size(2))) for x in (first, then)])

        states, present = joined(before_states, states), joined(before_present, present)
        filled = before_present.any(dim=2).sum(dim=0)
        place, known, kept = stream.previous(filled, count)
        doc_state = {
            f"{side}.states": states[-count:].permute(1, 2, 0, 3),
            f"{side}.present": (present[-count:] & kept.t().unsqueeze(2)).permute(1, 2, 0),
        }
        return cls(states.flatten(0, 1), present.flatten(0, 1), place, known, doc_state)
