"""Models keep their parameters and hooks when oneDNN computes their linear layers."""

import copy

import pytest
import tiny
import torch
from torch import nn

from fairseq_docmt.modules.cpu.onednn_linear import OneDNNLinear, use_onednn
from fairseq_docmt.modules.cpu.packed_linear import PackedLinear, can_pack
from fairseq_docmt.modules.cpu.packed_weights import pack_weights
from fairseq_docmt.ops.onednn_linear import has_onednn

pytestmark = [
    pytest.mark.skipif(not has_onednn(), reason="this torch has no oneDNN"),
    pytest.mark.usefixtures("small_products"),
]


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


def test_layers_with_hooks_stay():
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_pre_hook(lambda *_: None)  # as quantization noise does
    use_onednn(model)
    assert type(model[0]) is nn.Linear


def test_decoding_packs_them():
    if not can_pack():
        pytest.skip("this torch has no packed weights")
    model = nn.Sequential(nn.Linear(4, 4))
    use_onednn(model)
    pack_weights(model)
    assert isinstance(model[0], PackedLinear)


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
