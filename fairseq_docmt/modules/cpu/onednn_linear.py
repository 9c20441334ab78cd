"""Linear layers that use oneDNN for training on a CPU."""

from torch import nn

from fairseq_docmt.modules.cpu.module_swap import swap_modules
from fairseq_docmt.ops.onednn_linear import has_onednn, onednn_linear


class OneDNNLinear(nn.Linear):
    """Linear layer computed by oneDNN where possible.

    Args:
        linear: layer whose parameters are shared.
    """

    def __init__(self, linear: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        """Map (..., in_features) to (..., out_features)."""
        return onednn_linear(x, self.weight, self.bias)


def use_onednn(model: nn.Module) -> None:
    """Replace all plain linear layers of a model by oneDNN layers; parameter names stay."""
    if has_onednn():
        swap_modules(model, lambda x: OneDNNLinear(x) if type(x) is nn.Linear else None)
