"""Linear layers by oneDNN, on CPUs.

The products of single precision that torch leaves to MKL take more than twice the time of those of
oneDNN on processors that MKL was not made for (measured: AMD EPYC, AVX-512, 200 against 450 to 490
billion operations a second at the sizes of transformer base).  With MKL's own processors there is
nothing to lose.
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor


def has_onednn() -> bool:
    """Whether this torch has oneDNN, and lets one call it."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def can_serve(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can take the place of what torch would choose: single precision, on a CPU."""
    single = x.dtype == weight.dtype == torch.float32
    here = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return single and here and x.numel() > 0 and x.dim() > 1 and has_onednn()


def onednn_linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """(..., m) to (..., n) as ``F.linear``, which it is where oneDNN cannot serve.

    Args:
        weight: (n, m).
        bias: (n,).
    """
    if not can_serve(x, weight):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return product(x, weight, bias)
    # Of rows, so that the output is no view and the host may scale it in place.  Rows that are
    # parts of longer ones would cost oneDNN a thousand times as much in the backward pass.
    rows = x.flatten(0, -2).contiguous()
    return _OneDNNLinear.apply(rows, weight, bias).unflatten(0, x.shape[:-1])


def product(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """``x weight' + bias`` without gradients."""
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
    """``a' b`` of (rows, n) and (rows, m)."""
    # oneDNN copies what is transposed on the left.
    if a.size(1) > b.size(1):
        return product(b.t(), a.t()).t().contiguous()
    return product(a.t(), b.t())
