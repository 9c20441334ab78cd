"""Precision of values that half precision would spoil."""

import torch


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Return single precision for half precision types, and other floating-point types as is."""
    return torch.promote_types(dtype, torch.float32)
