"""Packed weights give the same products, and only where they may."""

import pytest
import torch
from torch import nn

from fairseq_docmt.modules.packed_linear import PackedLinear, can_pack, pack_linear_layers


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 3, 7)])
def test_products_are_the_same(shape):
    linear = nn.Linear(7, 11)
    x = torch.randn(*shape)
    with torch.no_grad():
        torch.testing.assert_close(PackedLinear(linear)(x), linear(x))


def test_with_gradients_and_in_other_types_it_is_plain():
    linear = nn.Linear(7, 11)
    packed = PackedLinear(linear)
    x = torch.randn(3, 7, requires_grad=True)
    packed(x).sum().backward()
    assert x.grad is not None and packed._packed is None
    assert packed.double()(x.double()).dtype == torch.float64


def test_all_plain_layers_of_a_model_are_replaced():
    if not can_pack():
        pytest.skip("this torch has no packed weights")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
    x = torch.randn(3, 4)
    with torch.no_grad():
        want = model(x)
        pack_linear_layers(model)
        assert isinstance(model[0], PackedLinear) and isinstance(model[2][0], PackedLinear)
        torch.testing.assert_close(model(x), want)
