"""Packed weights give the same products and are used only where possible.

Covers modules/cpu/packed_gru.py, modules/cpu/packed_linear.py.
"""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_docmt.modules.cpu.packed_gru import PackedGRU
from fairseq_docmt.modules.cpu.packed_linear import PackedLinear, can_pack
from fairseq_docmt.modules.cpu.packed_weights import pack_weights

pytestmark = pytest.mark.usefixtures("small_products")


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


def test_weights_are_packed_for_large_products_alone(monkeypatch):
    if not can_pack():
        pytest.skip("this torch has no packed weights")
    monkeypatch.undo()  # of small_products
    linear = nn.Linear(256, 512)
    packed = PackedLinear(linear)
    with torch.no_grad():
        for rows in (7, 8):
            x = torch.randn(rows, 256)
            torch.testing.assert_close(packed(x), linear(x))
            assert (packed._packed is not None) == (rows == 8)


def test_all_plain_layers_of_a_model_are_replaced():
    if not can_pack():
        pytest.skip("this torch has no packed weights")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
    x = torch.randn(3, 4)
    with torch.no_grad():
        want = model(x)
        pack_weights(model)
        assert isinstance(model[0], PackedLinear) and isinstance(model[2][0], PackedLinear)
        torch.testing.assert_close(model(x), want)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("kind", ["sorted", "unsorted", "whole"])
def test_recurrences_are_the_same(kind, begins, bidirectional):
    """GRUs of two layers, over sentences of different lengths and over full rows."""
    gru = nn.GRU(7, 5, 2, batch_first=True, bidirectional=bidirectional)
    x = torch.randn(3, 4, 7)
    state = torch.randn(4 if bidirectional else 2, 3, 5) if begins else None
    if kind != "whole":
        lengths = torch.tensor([4, 3, 1] if kind == "sorted" else [1, 4, 2])
        x = pack_padded_sequence(x, lengths, True, enforce_sorted=kind == "sorted")
    wanted = gru(x, state)
    with torch.no_grad():
        found = PackedGRU(gru)(x, state)
    torch.testing.assert_close(found, wanted)
    assert PackedGRU(gru)(x, state)[1].requires_grad


def test_recurrences_of_a_model_are_replaced():
    if not can_pack():
        pytest.skip("this torch has no packed weights")
    model = nn.ModuleDict({"gru": nn.GRU(4, 4, batch_first=True), "other": nn.GRU(4, 4)})
    pack_weights(model)
    assert isinstance(model["gru"], PackedGRU) and type(model["other"]) is nn.GRU
