"""Document states: the values passed from one sentence of a document to the next.

A document state is a dict of tensors by name. The first dimension of each tensor is the document,
so states can be reordered, moved and joined without reference to the architecture.
"""

from typing import Dict, List, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

DocumentState = Dict[str, Tensor]


def select_documents(doc_state: DocumentState, rows: Tensor) -> DocumentState:
    """Select documents of a state by index."""
    return {name: value.index_select(0, rows) for name, value in doc_state.items()}


def detached(doc_state: DocumentState) -> DocumentState:
    """Copy a state without its autograd graph and without references to its batch."""
    return {name: value.detach().clone() for name, value in doc_state.items()}


def moved(doc_state: Optional[DocumentState], device) -> Optional[DocumentState]:
    """Move a state to a device; None stays None."""
    return (
        None if doc_state is None else {name: value.to(device) for name, value in doc_state.items()}
    )


def joined(states: Sequence[DocumentState]) -> DocumentState:
    """Concatenate states along documents, padding their second dimension with zeros."""
    return {
        name: torch.cat(of_equal_width([doc_state[name] for doc_state in states]))
        for name in states[0]
    }


def of_equal_width(values: List[Tensor]) -> List[Tensor]:
    """Pad the second dimension of tensors with zeros to the same size."""
    if values[0].dim() < 2:
        return values
    longest = max(value.size(1) for value in values)
    missing = [(0, 0) * (value.dim() - 2) + (0, longest - value.size(1)) for value in values]
    return [F.pad(value, pad) if pad[-1] else value for value, pad in zip(values, missing)]
