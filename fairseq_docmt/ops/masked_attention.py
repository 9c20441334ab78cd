"""Attention with a mask, by the kernels of torch that compute it correctly."""

from typing import Optional

import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

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
    """Compute scaled dot-product attention, (B, H, T, d).

    Args:
        q: (B, H, T, d) queries.
        k, v: (B, H, S, d) keys and values.
        mask: (B, 1 or H, 1 or T, S) True where attention is allowed, or values to add to logits.
        dropout: dropout probability of attention weights.
        scale: factor of the logits; default: ``d ** -0.5``.
    """
    if not q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
    with sdpa_kernel(GPU_KERNELS):
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, scale=scale)
