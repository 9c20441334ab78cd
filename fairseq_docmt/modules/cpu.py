"""Faster layers on a CPU: oneDNN in training, packed weights in decoding.

Products of a few rows with a weight matrix are bound by memory access: oneDNN's own weight layout
is up to three times as fast as a plain one. Packed weights do not follow parameter updates, so
packed layers are for decoding only.
"""

from types import SimpleNamespace
from typing import Callable, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from fairseq_docmt.ops.attentive_gru import gru_step
from fairseq_docmt.ops.onednn_linear import has_onednn, is_large, onednn_linear, product


class OneDNNLinear(nn.Linear):
    """Linear layer computed with oneDNN where possible.

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
    """Replace all plain linear layers of a model by oneDNN layers, keeping parameter names.

    Without oneDNN in this torch build the model stays as it is.
    """
    if has_onednn():
        swap_modules(model, lambda x: OneDNNLinear(x) if type(x) is nn.Linear else None)


def pack_weights(model: nn.Module) -> None:
    """Replace a model's plain linear layers and GRUs with packed ones, for decoding only."""
    if can_pack():
        swap_modules(model, _packed)


def _packed(layer: nn.Module) -> Optional[nn.Module]:
    """Return a layer with packed weights, or None for layers that cannot be packed."""
    is_gru = type(layer) is nn.GRU and layer.batch_first and layer.bias
    if not is_gru and type(layer) not in (nn.Linear, OneDNNLinear):
        return None
    if next(layer.parameters()).dtype not in (torch.float32, torch.bfloat16):
        return None
    return PackedGRU(layer) if is_gru else PackedLinear(layer)


def can_pack() -> bool:
    """Return whether this torch build has oneDNN with packed weights."""
    return has_onednn() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


class PackedLinear(nn.Module):
    """Linear layer with weights packed in oneDNN's layout.

    The packed weights are used on a CPU, without gradients, for products that are large enough;
    otherwise this is a plain linear layer.

    Args:
        linear: layer to replace. Its parameters are shared and must no longer change.
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


class PackedGRU(nn.Module):
    """GRU with packed weights, used on a CPU without gradients; otherwise torch's GRU.

    Args:
        gru: GRU with ``batch_first`` and biases. Its parameters are shared and must no longer
            change.
    """

    def __init__(self, gru: nn.GRU):
        super().__init__()
        self.gru, self.hidden_size, self.num_layers = gru, gru.hidden_size, gru.num_layers
        self.directions = 2 if gru.bidirectional else 1
        self.products = nn.ModuleList(
            nn.ModuleDict({"input": _product(*of_input), "state": _product(*of_state)})
            for of_input, of_state in map(_pairs, gru.all_weights)
        )

    def forward(self, x, state: Optional[Tensor] = None):
        """Run the GRU over a (rows, T, d) tensor or a packed sequence, like torch's GRU."""
        if torch.is_grad_enabled() or x.data.device.type != "cpu":
            return self.gru(x, state)
        if not isinstance(x, PackedSequence):
            sizes = [len(x)] * x.size(1)
            output, last = self._run(x.transpose(0, 1).flatten(0, 1), sizes, state)
            return output.unflatten(0, (-1, len(x))).transpose(0, 1), last
        if state is not None and x.sorted_indices is not None:
            state = state[:, x.sorted_indices]
        output, last = self._run(x.data, x.batch_sizes.tolist(), state)
        if x.unsorted_indices is not None:
            last = last[:, x.unsorted_indices]
        return x._replace(data=output), last

    def _run(self, data: Tensor, sizes: List[int], state: Optional[Tensor]):
        """Return the outputs of the top layer and the last states of all layers.

        Args:
            data: inputs of all steps, concatenated.
            sizes: number of rows at each step.
            state: initial states of all layers; None for zeros.
        """
        if state is None:
            state = data.new_zeros(len(self.products), sizes[0], self.hidden_size)
        last = []
        for first in range(0, len(self.products), self.directions):
            read = [
                self._read(n, data, sizes, state[n]) for n in range(first, first + self.directions)
            ]
            data = torch.cat([output for output, _ in read], dim=-1)
            last += [after for _, after in read]
        return data, torch.stack(last)

    def _read(
        self, number: int, data: Tensor, sizes: List[int], state: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """Return the outputs and last states of one layer and direction.

        Args:
            number: index of the layer and direction; in a bidirectional GRU odd numbers run
                backwards.
            data: inputs of all steps, concatenated.
            sizes: number of rows at each step.
            state: initial state of each row.
        """
        from_input = self.products[number]["input"](data).split(sizes)
        times = range(len(sizes))
        if self.directions == 2 and number % 2 == 1:
            times = reversed(times)
        output = [None] * len(sizes)
        for t in times:
            before = state[: sizes[t]]  # the longest rows come first
            output[t] = gru_step(from_input[t], self.products[number]["state"](before), before)
            state = torch.cat([output[t], state[sizes[t] :]])
        return torch.cat(output), state


def _pairs(weights):
    """Return the (weight, bias) pairs of a GRU layer's input projection and state projection."""
    of_input, of_state, input_bias, state_bias = weights
    return (of_input, input_bias), (of_state, state_bias)


def _product(weight: Tensor, bias: Tensor) -> PackedLinear:
    outputs, inputs = weight.shape
    return PackedLinear(
        SimpleNamespace(weight=weight, bias=bias, in_features=inputs, out_features=outputs)
    )


def swap_modules(model: nn.Module, replacement: Callable[[nn.Module], Optional[nn.Module]]) -> None:
    """Replace layers of a model in place.

    Args:
        model: model to change.
        replacement: function that returns a layer's replacement, or None to keep the layer. Layers
            with forward pre-hooks, such as those of quantization noise, are always kept.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            other = None if child._forward_pre_hooks else replacement(child)
            if other is not None:
                setattr(module, name, other)
