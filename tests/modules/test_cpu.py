"""Models keep their parameters, hooks and results with oneDNN and with packed weights."""

import copy

import pytest
import tiny
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_docmt.modules.cpu import (
    OneDNNLinear,
    PackedGRU,
    PackedLinear,
    can_pack,
    pack_weights,
    swap_modules,
    use_onednn,
)
from fairseq_docmt.ops.onednn_linear import has_onednn

pytestmark = pytest.mark.usefixtures("small_products")
needs_onednn = pytest.mark.skipif(not has_onednn(), reason="this torch has no oneDNN")


def identity_for_relu(layer):
    return nn.Identity() if type(layer) is nn.ReLU else None


def test_only_the_chosen_layers_are_replaced_at_any_depth():
    inner = nn.Sequential(nn.Tanh(), nn.ReLU())
    model = nn.ModuleDict({"first": nn.ReLU(), "rest": nn.ModuleList([inner])})
    swap_modules(model, identity_for_relu)
    kinds = [type(module).__name__ for module in model.modules() if not list(module.children())]
    assert sorted(kinds) == ["Identity", "Identity", "Tanh"]
    assert model["rest"][0] is inner


def test_layers_with_forward_pre_hooks_are_kept():
    model = nn.Sequential(nn.ReLU(), nn.ReLU())
    model[0].register_forward_pre_hook(lambda *_: None)
    swap_modules(model, identity_for_relu)
    assert [type(layer) for layer in model] == [nn.ReLU, nn.Identity]


@needs_onednn
def test_layers_are_replaced_and_parameters_stay():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4)))
    model[2][0].weight = model[0].weight = nn.Parameter(torch.randn(4, 4))  # shared, as embeddings
    names, parameters = zip(*model.named_parameters(remove_duplicate=False))
    want = model(torch.ones(3, 4))
    use_onednn(model)
    assert isinstance(model[0], OneDNNLinear) and isinstance(model[2][0], nn.Linear)
    found_names, found = zip(*model.named_parameters(remove_duplicate=False))
    assert found_names == names and all(a is b for a, b in zip(found, parameters))
    torch.testing.assert_close(model(torch.ones(3, 4)), want)


@needs_onednn
def test_layers_with_hooks_stay():
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_pre_hook(lambda *_: None)  # as quantization noise does
    use_onednn(model)
    assert type(model[0]) is nn.Linear


@needs_onednn
def test_decoding_packs_them():
    if not can_pack():
        pytest.skip("this torch has no packed weights")
    model = nn.Sequential(nn.Linear(4, 4))
    use_onednn(model)
    pack_weights(model)
    assert isinstance(model[0], PackedLinear)


@needs_onednn
@pytest.mark.parametrize("model", [tiny.MODEL, tiny.rnnsearch()], ids=["transformer", "rnnsearch"])
def test_outputs_and_gradients_of_models(model):
    plain = tiny.model(*model).float()
    onednn = copy.deepcopy(plain)
    use_onednn(onednn)
    assert any(isinstance(layer, OneDNNLinear) for layer in onednn.modules())
    words = torch.tensor([[5, 6, 7, 2], [8, 9, 10, 2], [5, 5, 6, 2]])
    results = []
    for each in (plain, onednn):
        output, _ = each(words, torch.tensor([4, 4, 4]), words)
        output.sin().sum().backward()
        results.append([output, {name: p.grad for name, p in each.named_parameters()}])
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-4)


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
