"""oneDNN products and gradients equal torch's and are used only where possible."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_docmt.ops import onednn_linear as module
from fairseq_docmt.ops.onednn_linear import has_onednn, onednn_linear

pytestmark = [
    pytest.mark.skipif(not has_onednn(), reason="this torch has no oneDNN"),
    pytest.mark.usefixtures("small_products"),
]


def outputs_and_gradients(linear, shape, bias, transposed):
    torch.manual_seed(1)
    x, weight = torch.randn(*shape), torch.randn(11, shape[-1])
    if transposed:  # as fairseq's encoders have it, batch and time changed
        x = torch.randn(shape[1], shape[0], shape[2]).transpose(0, 1)
    leaves = [x.requires_grad_(), weight.requires_grad_()]
    if bias:
        leaves.append(torch.randn(11, requires_grad=True))
    output = linear(*leaves)
    output *= 2  # as fairseq scales queries
    upstream = torch.randn(output.shape)
    return [output, *torch.autograd.grad(output, leaves, upstream)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape, transposed",
    [((5, 7), False), ((1, 7), False), ((2, 3, 7), False), ((33, 3, 7), True), ((0, 7), False)],
)
def test_outputs_and_gradients_are_those_of_torch(shape, bias, transposed):
    ours, torchs = (
        outputs_and_gradients(linear, shape, bias, transposed)
        for linear in (onednn_linear, F.linear)
    )
    for found, want in zip(ours, torchs):
        torch.testing.assert_close(found, want)


def test_only_required_gradients_are_computed():
    x, weight = torch.randn(3, 7), torch.randn(11, 7, requires_grad=True)
    onednn_linear(x, weight).sum().backward()
    assert x.grad is None and weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_left_to_torch(dtype):
    x, weight = torch.randn(3, 7, dtype=dtype), torch.randn(11, 7, dtype=dtype)
    torch.testing.assert_close(onednn_linear(x, weight), F.linear(x, weight), rtol=0, atol=0)


def test_autocast_is_left_to_torch():
    with torch.autocast("cpu", torch.bfloat16):
        assert onednn_linear(torch.randn(3, 7), torch.randn(11, 7)).dtype == torch.bfloat16


def test_without_gradients_nothing_is_kept(monkeypatch):
    monkeypatch.setattr(module, "_OneDNNLinear", None)
    with torch.no_grad():
        x, weight = torch.randn(3, 7), torch.randn(11, 7, requires_grad=True)
        torch.testing.assert_close(onednn_linear(x, weight), F.linear(x, weight))


def test_small_products_are_left_to_torch(monkeypatch):
    monkeypatch.undo()  # of small_products
    rows, computed = module.FEWEST_MULTIPLICATIONS // (7 * 11) + 1, []
    monkeypatch.setattr(module, "product", lambda x, *_: computed.append(len(x)))
    with torch.no_grad():
        for number in (1, rows - 1, rows):
            onednn_linear(torch.randn(number, 7), torch.randn(11, 7))
    assert computed == [rows]
