"""Linear layers with weights packed for CPU inference.

Products of a few rows with a weight matrix are bound by memory access: oneDNN's own weight layout
is up to three times as fast as a plain one. Packed weights do not follow parameter updates, so
these layers are for decoding only.
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.ops.onednn_linear import has_onednn, is_large, product


def can_pack() -> bool:
    """Return whether this torch build has oneDNN with packed weights."""
    return has_onednn() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


class PackedLinear(nn.Module):
    """Linear layer with packed weights.

    They are used on a CPU, without gradients, and for products that are large enough; otherwise it
    is a plain layer.

    Args:
        linear: layer whose parameters are shared. They must no longer change.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._packed: Optional[Tensor] = None

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        same_type = x.dtype == self.weight.dtype
        here = x.device.type == "cpu" and not torch.is_grad_enabled()
        if not (here and same_type and is_large(x, self.weight)):
            return F.linear(x, self.weight, self.bias)
        if self._packed is None:
            self._packed = torch.ops.mkldnn._reorder_linear_weight(self.weight.detach(), None)
        return product(x, self._packed, self.bias)
