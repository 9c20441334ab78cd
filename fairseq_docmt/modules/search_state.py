"""State of a decoder during beam search, and the reordering of its batch rows.

The state is one object, which beam search reorders as a whole. Values that depend only on the
source sentence are stored once and shared by its beams.
"""

from typing import Any, Dict, NamedTuple, Optional

import torch
from torch import Tensor

#: place of the state in fairseq's dictionary
_KEY, _VALUE = "decoder", "state"


class BeamRows(NamedTuple):
    """New order of batch rows, split into an order of sentences and an order of their beams.

    Attributes:
        sentences: (bsz,) former index of each remaining sentence; None if all sentences stay in
            place.
        beams: number of beams of each sentence.
        local: (bsz, beams) former index of each beam within its sentence; None at the start of beam
            search, when the one row of each sentence is repeated for its beams.
        order: (rows,) former index of each row, for values that beams do not share.
    """

    sentences: Optional[Tensor]
    beams: int
    local: Optional[Tensor]
    order: Tensor


def split_order(order: Tensor, bsz: int, beams: int) -> BeamRows:
    """Split a new order of ``bsz * beams`` rows into an order of sentences and an order of beams.

    Beam search reorders beams within a sentence, and reorders or drops whole sentences. In any
    other order of rows, each row is treated as a sentence with one beam.

    Args:
        order: (rows,) former index of each row.
        bsz: current number of sentences.
        beams: current number of beams of each sentence; 1 before beam search starts.

    Returns:
        The two orders and the number of beams, see :class:`BeamRows`.
    """
    sentences = torch.arange(bsz, device=order.device)
    if beams == 1:
        repeats = len(order) // bsz
        if repeats > 1 and torch.equal(order, sentences.repeat_interleave(repeats)):
            return BeamRows(None, repeats, None, order)
        same, local = torch.equal(order, sentences), torch.zeros_like(order)
        return BeamRows(None if same else order, 1, local.unsqueeze(1), order)
    owners, local = torch.div(order, beams, rounding_mode="floor"), order % beams
    if len(order) % beams == 0:
        grouped = owners.view(-1, beams)
        kept = grouped[:, 0]
        if torch.equal(grouped, grouped[:, :1].expand_as(grouped)):
            same, local = torch.equal(kept, sentences), local.view(-1, beams)
            return BeamRows(None if same else kept, beams, local, order)
    return BeamRows(owners, 1, local.unsqueeze(1), order)


def stored_state(incremental_state: Dict) -> Optional[Any]:
    """Return the decoder state in fairseq's dictionary of incremental states.

    Before the first token there is none, and None is returned.
    """
    return incremental_state[_KEY][_VALUE] if _KEY in incremental_state else None


def store_state(incremental_state: Dict, state: Any) -> None:
    """Store the decoder state in fairseq's dictionary of incremental states."""
    incremental_state[_KEY] = {_VALUE: state}


class KeepsState:
    """Mixin for incremental decoders that keep their whole state as a single object.

    The object must have an attribute ``bsz``, the number of sentences, and a method
    ``reorder(order)``. The method returns the state for a new order of batch rows, in which rows
    may be repeated or left out; ``order`` (rows,) has the former index of each new row.

    The decoder must have ``embed_tokens``, from whose weight the device is taken.
    """

    def init_state(self, encoder_out: dict) -> Any:
        """Return the state before the first token, with one row per sentence."""
        raise NotImplementedError

    def current_state(self, incremental_state: Dict, encoder_out: dict, num_rows: int) -> Any:
        """Return the stored state, or the initial state before the first token.

        The initial state is repeated for ``num_rows`` rows.
        """
        state = stored_state(incremental_state)
        return self.repeated(self.init_state(encoder_out), num_rows) if state is None else state

    def repeated(self, state: Any, num_rows: int) -> Any:
        """Repeat the one row of each sentence for its beams, giving ``num_rows`` rows in total."""
        if num_rows == state.bsz:
            return state
        sentences = torch.arange(state.bsz, device=self.embed_tokens.weight.device)
        return state.reorder(sentences.repeat_interleave(num_rows // state.bsz))

    def reorder_incremental_state(self, incremental_state: Dict, new_order: Tensor) -> None:
        """Reorder the rows of the stored state after a step of beam search, as fairseq requires."""
        state = stored_state(incremental_state)
        if state is not None:
            store_state(incremental_state, state.reorder(new_order))


class SharedSource:
    """Mixin for encoders whose output has one row for each sentence, shared by its beams.

    Subclasses define ``_select(encoder_out, sentences, beams)``, which returns the output for the
    sentences with the indices ``sentences``. The entry ``beams`` of the output is the number of
    beams per sentence.
    """

    def reorder_encoder_out(self, encoder_out, new_order):
        """Select the encoder output of the sentences that remain in a beam search.

        The result still has one row per sentence, however the beams are reordered.

        Args:
            encoder_out: encoder output.
            new_order: (rows,) former index of each decoder row.
        """
        bsz = encoder_out["encoder_padding_mask"][0].size(0)
        rows = split_order(new_order, bsz, encoder_out["beams"])
        if rows.sentences is None:
            return {**encoder_out, "beams": rows.beams}
        return self._select(encoder_out, rows.sentences, rows.beams)
