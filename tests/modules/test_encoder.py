"""Extra keyword arguments reach the layers inside the context, and only there."""

import pytest
import torch
from torch import nn

from fairseq_docmt.modules.encoder import pass_layer_kwargs


class Layer(nn.Module):
    """Layer that returns its extra arguments."""

    def forward(self, x, first=None, second=None):
        return first, second


def test_values_are_shared_or_given_one_by_one():
    layers = [Layer(), Layer()]
    with pass_layer_kwargs(layers, first="both", second=[1, 2]):
        assert [layer(0) for layer in layers] == [("both", 1), ("both", 2)]
    assert [layer(0) for layer in layers] == [(None, None)] * 2


def test_arguments_of_the_call_are_kept():
    layer = Layer()
    with pass_layer_kwargs([layer], first=torch.ones(1)):
        assert layer(0, second=5)[1] == 5


def test_an_error_in_the_context_ends_it():
    layer = Layer()
    with pytest.raises(RuntimeError), pass_layer_kwargs([layer], first=1):
        raise RuntimeError
    assert layer(0) == (None, None)
