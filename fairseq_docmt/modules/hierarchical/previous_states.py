"""States of the previous sentences of each row of a stream, kept in the document state."""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.document_state import DocumentState, of_equal_width
from fairseq_docmt.modules.shared.previous_sentences import state_of, with_previous
from fairseq_docmt.modules.shared.stream import Stream


class PreviousStates(NamedTuple):
    """States of the sentences of a batch and of its document state.

    Attributes:
        states: (M, W, C) states of each sentence, those of the incoming document state first.
        present: (M, W) True at words, False at padding.
        place: (rows, n) index in ``states`` of the n previous sentences of each row, the farthest
            first.
        known: (rows, n) True if they belong to the row's document.
        doc_state: document state after the batch; for the last sentence ``SIDE.states.1`` is
            (lanes, W, C) and ``SIDE.present.1`` (lanes, W), for the one before it ``SIDE.states.2``
            and so on.
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
        sentences = with_previous(states, stream, count, f"{side}.states")
        masks = with_previous(present, stream, count, f"{side}.present")
        states, present = (torch.stack(of_equal_width(x)) for x in (sentences, masks))
        filled = present[:count].any(dim=2).sum(dim=0)
        place, known, kept = stream.previous(filled, count)
        masks = [x & still_known.unsqueeze(1) for x, still_known in zip(masks[-count:], kept.t())]
        doc_state = {
            **state_of(f"{side}.states", sentences[-count:]),
            **state_of(f"{side}.present", masks),
        }
        return cls(states.flatten(0, 1), present.flatten(0, 1), place, known, doc_state)
