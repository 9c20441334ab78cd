"""Incremental state of a decoder as one value, which beam search reorders as a whole."""

from typing import Any, Dict, Optional, Protocol

import torch
from torch import Tensor

_KEY = "decoder"
_VALUE = "state"


class SearchState(Protocol):
    """State of a decoder for B sentences with N beams each.

    Attributes:
        bsz: number of sentences B.
    """

    bsz: int

    def reorder(self, order: Tensor) -> "SearchState":
        """Reorder, repeat or drop rows by a (rows,) index of former rows."""


def stored_state(incremental_state: Dict) -> Optional[Any]:
    """Return the state in fairseq's dictionary, None before the first token."""
    return incremental_state[_KEY][_VALUE] if _KEY in incremental_state else None


def store_state(incremental_state: Dict, state: SearchState) -> None:
    """Put a state into fairseq's dictionary."""
    incremental_state[_KEY] = {_VALUE: state}


class KeepsState:
    """Mixin for incremental decoders with ``embed_tokens`` whose state is a :class:`SearchState`.

    A subclass defines :meth:`init_state`.
    """

    def init_state(self, encoder_out: dict) -> SearchState:
        """Return the state before the first token, with one row per sentence."""
        raise NotImplementedError

    def current_state(self, incremental_state: Dict, encoder_out: dict, num_rows: int) -> Any:
        """Return the stored state; before the first token, the initial one for all rows."""
        state = stored_state(incremental_state)
        return self.repeated(self.init_state(encoder_out), num_rows) if state is None else state

    def repeated(self, state: SearchState, num_rows: int) -> Any:
        """Repeat the rows of a state, one for each sentence, for the beams of the sentence."""
        if num_rows == state.bsz:
            return state
        sentences = torch.arange(state.bsz, device=self.embed_tokens.weight.device)
        return state.reorder(sentences.repeat_interleave(num_rows // state.bsz))

    def reorder_incremental_state(self, incremental_state: Dict, new_order: Tensor) -> None:
        """Reorder the rows of the state after each step of beam search."""
        state = stored_state(incremental_state)
        if state is not None:
            store_state(incremental_state, state.reorder(new_order))
