"""Faster layers on a CPU: oneDNN in training, packed weights in decoding.

Packed weights are stored in oneDNN's own layout. A decoding step multiplies a weight matrix by only
a few rows, which takes as long as reading the matrix from memory. In oneDNN's layout this is up to
three times as fast as in the usual one. Packed weights do not follow later changes of the
parameters, so packed layers are for decoding only.
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
    """Linear layer that computes with oneDNN where this is possible and faster.

    Args:
        linear: layer to replace. Its parameters are shared.
    """

    def __init__(self, linear: nn.Linear):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        """Map (..., in_features) to (..., out_features)."""
        return onednn_linear(x, self.weight, self.bias)


def use_onednn(model: nn.Module) -> None:
    """Replace all plain linear layers of a model with layers that compute with oneDNN.

    The names of the parameters stay the same. If this build of torch has no oneDNN, the model is
    not changed.
    """
    if has_onednn():
        swap_modules(model, lambda x: OneDNNLinear(x) if type(x) is nn.Linear else None)


def pack_weights(model: nn.Module) -> None:
    """Replace a model's plain linear layers and GRUs with packed ones, for decoding only.

    If this build of torch cannot pack weights, the model is not changed.
    """
    if can_pack():
        swap_modules(model, _packed)


def _packed(layer: nn.Module) -> Optional[nn.Module]:
    """Return an equivalent layer with weights in oneDNN's layout; None if it is not supported.

    Linear layers and batch-first GRUs with biases are supported, in single precision or bfloat16.
    """
    is_gru = type(layer) is nn.GRU and layer.batch_first and layer.bias
    if not is_gru and type(layer) not in (nn.Linear, OneDNNLinear):
        return None
    if next(layer.parameters()).dtype not in (torch.float32, torch.bfloat16):
        return None
    return PackedGRU(layer) if is_gru else PackedLinear(layer)


def can_pack() -> bool:
    """Return whether this build of torch can pack weights in oneDNN's layout."""
    return has_onednn() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


class PackedLinear(nn.Module):
    """Linear layer with weights packed in oneDNN's layout.

    The packed weights are used on a CPU, without gradients, for products that are large enough. In
    all other cases this is a plain linear layer.

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
    """GRU with weights packed in oneDNN's layout.

    The packed weights are used on a CPU, without gradients. In all other cases torch's GRU is used.

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
        """Run the GRU over a whole batch, with the same results as torch's GRU.

        Args:
            x: (rows, T, m) inputs of size m, or a packed sequence.
            state: initial states of all layers; None for zeros.
        """
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
        """Run all layers; return the outputs of the top layer and the last states of all layers.

        Args:
            data: (N, m) all N inputs: of all rows at the first step, then of all rows at the second
                step, and so on, as in a packed sequence.
            sizes: number of rows at each step.
            state: initial state of each layer and direction; None for zeros.
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
        """Run one direction of one layer; return the outputs and the last state of each row.

        Args:
            number: index of the layer and direction. In a bidirectional GRU, odd numbers are the
                backward directions.
            data: (N, m) all N inputs: of all rows at the first step, then of all rows at the second
                step, and so on.
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
    """Replace some of the modules inside a model, in place.

    Args:
        model: model to change.
        replacement: function that takes a module and returns its replacement, or None to keep it.
            Modules with forward pre-hooks, such as hooks for quantization noise, are always kept.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            other = None if child._forward_pre_hooks else replacement(child)
            if other is not None:
                setattr(module, name, other)
