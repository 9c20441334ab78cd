"""What documents carry from one sentence to the next.

A carry is a dict of tensors by name whose rows are documents, so that every architecture can have
its own and nothing that handles it needs to know which.
"""

from typing import Dict, List, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

DocumentState = Dict[str, Tensor]


def select_rows(doc_state: DocumentState, rows: Tensor) -> DocumentState:
    """Some rows of a carry, or its rows in a new order."""
    return {name: value.index_select(0, rows) for name, value in doc_state.items()}


def detached(doc_state: DocumentState) -> DocumentState:
    """The same values without the graph or the batch that they come from."""
    return {name: value.detach().clone() for name, value in doc_state.items()}


def moved(doc_state: Optional[DocumentState], device) -> Optional[DocumentState]:
    """The same on another device."""
    return (
        None if doc_state is None else {name: value.to(device) for name, value in doc_state.items()}
    )


def joined(states: Sequence[DocumentState]) -> DocumentState:
    """Rows of several carries in one; their second dimensions are filled up with zeros."""
    return {name: torch.cat(_even([doc_state[name] for doc_state in states])) for name in states[0]}


def _even(values: List[Tensor]) -> List[Tensor]:
    if values[0].dim() < 2:
        return values
    longest = max(value.size(1) for value in values)
    missing = [(0, 0) * (value.dim() - 2) + (0, longest - value.size(1)) for value in values]
    return [F.pad(value, pad) if pad[-1] else value for value, pad in zip(values, missing)]
