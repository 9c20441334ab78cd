"""Operations on document states between batches: detaching, moving to a device, concatenating."""

from typing import Optional, Sequence

import torch

from fairseq_docmt.modules.stream import DocumentState, of_equal_width


def detached(doc_state: DocumentState) -> DocumentState:
    """Copy a document state without its autograd graph.

    The memory of the batch that produced the state can then be freed.
    """
    return {name: value.detach().clone() for name, value in doc_state.items()}


def moved(doc_state: Optional[DocumentState], device) -> Optional[DocumentState]:
    """Return a document state moved to a device; None stays None."""
    return (
        None if doc_state is None else {name: value.to(device) for name, value in doc_state.items()}
    )


def joined(states: Sequence[DocumentState]) -> DocumentState:
    """Merge the states of different documents into one document state.

    The tensors are concatenated along dimension 0, which is the document. If they differ in
    dimension 1, the smaller ones are padded with zeros at the end.
    """
    return {
        name: torch.cat(of_equal_width([doc_state[name] for doc_state in states]))
        for name in states[0]
    }
