"""Linear layers that train by oneDNN on a CPU."""

from torch import nn

from fairseq_docmt.modules.cpu.module_swap import swap_modules
from fairseq_docmt.ops.onednn_linear import has_onednn, onednn_linear


class OneDNNLinear(nn.Linear):
    """A linear layer whose products oneDNN computes, where it can.

    Args:
        linear: the layer whose parameters these are.
    """

    def __init__(self, linear: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        """(..., in_features) to (..., out_features)."""
        return onednn_linear(x, self.weight, self.bias)


def use_onednn(model: nn.Module) -> None:
    """Let all plain linear layers of a model use oneDNN; names of parameters stay."""
    if has_onednn():
        swap_modules(model, lambda x: OneDNNLinear(x) if type(x) is nn.Linear else None)
