"""Helpers for half precision: data types for exact sums, operations outside autocast, attention."""

import functools
from typing import Callable, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def at_least_single(dtype: torch.dtype) -> torch.dtype:
    """Return float32 for half-precision types, and any other floating-point type unchanged."""
    return torch.promote_types(dtype, torch.float32)


def outside_autocast(operation: Callable) -> Callable:
    """Wrap an operation to run with autocast off, on inputs cast to the autocast type.

    This is for operations with a backward pass of their own.  Within autocast, only some
    intermediate values would be cast, so that the values saved for the backward pass, which runs
    without autocast, would differ in type.  If autocast is off, the operation runs unchanged.
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


#: Not cuDNN: in half precision its gradients are wrong for masks (B, 1, T, S), shared by all heads
#: (torch 2.11 on an H100).
GPU_KERNELS = [
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


def masked_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float, scale: Optional[float] = None
) -> Tensor:
    """Compute scaled dot-product attention with a mask.

    On GPUs cuDNN is not used, because its gradients are wrong for some masks.

    Args:
        q: (B, H, T, d) queries of B batch rows and H heads.
        k, v: (B, H, S, d) keys and values.
        mask: (B, 1 or H, 1 or T, S) True where attention is allowed, or values to add to the
            logits.
        dropout: dropout probability of attention weights.
        scale: factor of the logits; default: ``d ** -0.5``.

    Returns:
        (B, H, T, d) output.
    """
    if not q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    with sdpa_kernel(GPU_KERNELS):
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
