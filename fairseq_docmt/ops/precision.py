"""Precision: of values that half precision would spoil, and of operations with a backward pass."""

import functools
from typing import Callable

import torch
from torch import Tensor


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Return single precision for half precision types, and other floating-point types as is."""
    return torch.promote_types(dtype, torch.float32)


def outside_autocast(operation: Callable) -> Callable:
    """Wrap an operation: inputs are cast to the autocast type, then it runs with autocast off.

    Inside the operation autocast would cast some values and not others.  The values saved for the
    backward pass, which runs without autocast, would then have different types.
    """

    @functools.wraps(operation)
    def run(*args):
        device = next(x.device.type for x in args if isinstance(x, Tensor))
        if not torch.is_autocast_enabled(device):
            return operation(*args)
        dtype = torch.get_autocast_dtype(device)
        args = [x.to(dtype) if _is_floating(x) else x for x in args]
        with torch.autocast(device, enabled=False):
            return operation(*args)

    return run


def _is_floating(x) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()
