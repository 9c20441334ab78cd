"""GRUs with weights packed for CPU inference (:mod:`fairseq_docmt.modules.cpu.packed_linear`)."""

from types import SimpleNamespace
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from fairseq_docmt.modules.cpu.packed_linear import PackedLinear
from fairseq_docmt.ops.attentive_gru import gru_step


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
        """Return the output of the top layer and the last states of all layers.

        Args:
            data: inputs of all steps, concatenated.
            sizes: number of rows at each step.
            state: first states of all layers, None for zeros.
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
        """Return output and last states of one direction of a layer; even numbers run forwards."""
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
    """Return (weight, bias) of the input projection and of the state projection."""
    of_input, of_state, input_bias, state_bias = weights
    return (of_input, input_bias), (of_state, state_bias)


def _product(weight: Tensor, bias: Tensor) -> PackedLinear:
    outputs, inputs = weight.shape
    return PackedLinear(
        SimpleNamespace(weight=weight, bias=bias, in_features=inputs, out_features=outputs)
    )
