"""Operations with a backward pass of their own under automatic mixed precision."""

import functools
from typing import Callable

import torch
from torch import Tensor


def outside_autocast(operation: Callable) -> Callable:
    """The operation with autocast off, and its floating inputs in the type that autocast chooses.

    Within an operation autocast would change the type of some values and not of others; what it
    then keeps for the backward pass, where autocast is off, does not fit together.
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
