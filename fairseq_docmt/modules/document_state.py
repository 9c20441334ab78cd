"""Operations on document states between batches: detaching, moving to a device, concatenating."""

from typing import Optional, Sequence

import torch

from fairseq_docmt.modules.stream import DocumentState, of_equal_width


def detached(doc_state: DocumentState) -> DocumentState:
    """Copy a state without its autograd graph, so that the batch it came from can be freed."""
    return {name: value.detach().clone() for name, value in doc_state.items()}


def moved(doc_state: Optional[DocumentState], device) -> Optional[DocumentState]:
    """Move a state to a device; None stays None."""
    return (
        None if doc_state is None else {name: value.to(device) for name, value in doc_state.items()}
    )


def joined(states: Sequence[DocumentState]) -> DocumentState:
    """Concatenate document states along dimension 0, zero-padding dimension 1 to equal size."""
    return {
        name: torch.cat(of_equal_width([doc_state[name] for doc_state in states]))
        for name in states[0]
    }
