"""Linear layers with weights packed for CPU inference.

A product of few rows with a weight matrix is bound by how the weights lie in memory; oneDNN's own
layout is up to three times as fast as a plain one.  Packed weights do not follow training, so this
is for decoding only.
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.ops.onednn_linear import has_onednn, product


def can_pack() -> bool:
    """Whether this torch has oneDNN with packed weights."""
    return has_onednn() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


class PackedLinear(nn.Module):
    """A linear layer that uses packed weights on a CPU without gradients, plain ones otherwise.

    Args:
        linear: the layer whose parameters are shared; they must not change any more.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._packed: Optional[Tensor] = None

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        same_type = x.dtype == self.weight.dtype
        if x.device.type != "cpu" or torch.is_grad_enabled() or not same_type:
            return F.linear(x, self.weight, self.bias)
        if self._packed is None:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
        return product(x, self._packed, self.bias)
