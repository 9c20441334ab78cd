"""What documents carry from one sentence to the next.

A carry is a dict of tensors by name whose rows are documents, so that every architecture can have
its own and nothing that handles it needs to know which.
"""

from typing import Dict, List, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Carry = Dict[str, Tensor]


def select_rows(carry: Carry, rows: Tensor) -> Carry:
    """Some rows of a carry, or its rows in a new order."""
    return {name: value.index_select(0, rows) for name, value in carry.items()}


def detached(carry: Carry) -> Carry:
    """The same values without the graph or the batch that they come from."""
    return {name: value.detach().clone() for name, value in carry.items()}


def moved(carry: Optional[Carry], device) -> Optional[Carry]:
    """The same on another device."""
    return None if carry is None else {name: value.to(device) for name, value in carry.items()}


def joined(carries: Sequence[Carry]) -> Carry:
    """Rows of several carries in one; their second dimensions are filled up with zeros."""
    return {name: torch.cat(_even([carry[name] for carry in carries])) for name in carries[0]}


def _even(values: List[Tensor]) -> List[Tensor]:
    if values[0].dim() < 2:
        return values
    longest = max(value.size(1) for value in values)
    missing = [(0, 0) * (value.dim() - 2) + (0, longest - value.size(1)) for value in values]
    return [F.pad(value, pad) if pad[-1] else value for value, pad in zip(values, missing)]
