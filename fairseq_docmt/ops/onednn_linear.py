"""Linear layers computed with oneDNN on CPUs.

In single precision, torch uses MKL.  On processors for which MKL is not optimised, it is less than
half as fast as oneDNN: 200 instead of 450 to 490 billion operations per second on an AMD EPYC with
AVX-512, at the sizes of transformer base.  On Intel processors oneDNN is not slower than MKL.

Small products are left to torch: oneDNN takes about 15 microseconds to start, and most of a
millisecond to prepare for a new number of rows.
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

#: Products with fewer multiplications are faster without oneDNN.
FEWEST_MULTIPLICATIONS = 2**20


def has_onednn() -> bool:
    """Return whether this build of torch includes oneDNN and its linear operator."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def is_large(x: Tensor, weight: Tensor) -> bool:
    """Return whether the product ``x weight'`` is large enough to be faster with oneDNN."""
    return x.numel() * weight.size(0) >= FEWEST_MULTIPLICATIONS


def can_serve(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN should compute the product ``x weight'``.

    It does so for large products in single precision on a CPU, outside of autocast.
    """
    single = x.dtype == weight.dtype == torch.float32
    here = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return (
        single and here and x.numel() > 0 and is_large(x, weight) and x.dim() > 1 and has_onednn()
    )


def onednn_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """Compute ``F.linear``, with oneDNN where it is faster and with torch elsewhere.

    :func:`can_serve` decides between the two.

    Args:
        x: (..., m) input.
        weight: (n, m) weight matrix.
        bias: (n,) bias, or None.

    Returns:
        (..., n) output.
    """
    if not can_serve(x, weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    # Flatten, so that the output is not a view: fairseq scales it in place.  Rows that are parts of
    # longer ones would make the backward pass of oneDNN a thousand times slower.
    rows = x.flatten(0, -2).contiguous()
    return _OneDNNLinear.apply(rows, weight, bias).unflatten(0, x.shape[:-1])


def product(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """Compute ``x weight' + bias`` with oneDNN, without recording gradients."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


class _OneDNNLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        (x, weight), wanted = ctx.saved_tensors, ctx.needs_input_grad
        gradient = gradient.contiguous()
        d_x = product(gradient, weight.t()) if wanted[0] else None
        d_weight = _inner_product(gradient, x) if wanted[1] else None
        return d_x, d_weight, gradient.sum(dim=0) if wanted[2] else None


def _inner_product(a: Tensor, b: Tensor) -> Tensor:
    """Compute the (n, m) matrix product ``a' b`` of ``a`` (rows, n) and ``b`` (rows, m)."""
    # oneDNN copies a transposed left operand, so that the smaller one should be on the left.
    if a.size(1) > b.size(1):
        return product(b.t(), a.t()).t().contiguous()
    return product(a.t(), b.t())
