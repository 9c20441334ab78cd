"""Half precision: which type sums have, and attention with masks against its definition."""

import math

import pytest
import torch
import torch.nn.functional as F

from fairseq_docmt.ops.precision import at_least_single, masked_attention


@pytest.mark.parametrize(
    "given, expected",
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_alone_is_raised(given, expected):
    assert at_least_single(given) == expected


BSZ, HEADS, QUERIES, KEYS, SIZE = 2, 3, 5, 7, 4


class OnGPU(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True


def inputs(seed=1):
    torch.manual_seed(seed)
    lengths = (QUERIES, KEYS, KEYS)
    return [torch.randn(BSZ, HEADS, n, SIZE, dtype=torch.float64) for n in lengths]


def loop(q, k, v, mask, scale):
    mask = mask.expand(BSZ, HEADS, QUERIES, KEYS)
    rows = []
    for b in range(BSZ):
        for h in range(HEADS):
            for t in range(QUERIES):
                weights = [
                    math.exp(scale * float(q[b, h, t] @ k[b, h, s])) if mask[b, h, t, s] else 0.0
                    for s in range(KEYS)
                ]
                parts = [w / sum(weights) * v[b, h, s] for s, w in enumerate(weights)]
                rows.append(torch.stack(parts).sum(0))
    return torch.stack(rows).view(BSZ, HEADS, QUERIES, SIZE)


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize(
    "shape", [(BSZ, 1, 1, KEYS), (BSZ, 1, QUERIES, KEYS), (BSZ, HEADS, QUERIES, KEYS)], ids=str
)
def test_loop(shape, scale):
    mask = torch.rand(shape) < 0.6
    mask[..., 0] = True
    q, k, v = inputs()
    wanted = loop(q, k, v, mask, SIZE**-0.5 if scale is None else scale)
    torch.testing.assert_close(masked_attention(q, k, v, mask, 0.0, scale), wanted)


def test_values_are_added_to_the_logits():
    q, k, v = inputs()
    added = torch.randn(BSZ, 1, QUERIES, KEYS, dtype=torch.float64)
    wanted = (q @ k.transpose(-1, -2) * SIZE**-0.5 + added).softmax(-1) @ v
    torch.testing.assert_close(masked_attention(q, k, v, added, 0.0), wanted)


def test_dropout():
    q, k, v = inputs()
    mask = torch.ones(1, 1, 1, KEYS, dtype=torch.bool)
    assert masked_attention(q, k, v, mask, 1.0).eq(0).all()


def test_kernels_on_a_gpu(monkeypatch):
    """All but that of cuDNN may be chosen; nothing is changed for other code."""
    cuda, allowed = torch.backends.cuda, []

    def attention(*_, **__):
        allowed.append((cuda.cudnn_sdp_enabled(), cuda.mem_efficient_sdp_enabled()))

    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    before = cuda.cudnn_sdp_enabled()
    q, k, v = inputs()
    masked_attention(q.as_subclass(OnGPU), k, v, torch.ones(1, 1, 1, KEYS).bool(), 0.0)
    assert allowed == [(False, True)]
    assert cuda.cudnn_sdp_enabled() == before
