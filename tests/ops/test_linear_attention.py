"""Linear attention and random features against their loops.

Covers ops/naive.py.
"""

import pytest
import torch

from fairseq_docmt.ops import linear_attention as ops
from fairseq_docmt.ops import naive
from fairseq_docmt.ops.linear_attention import Summary, sincos_features, unit_length

HEADS, BSZ, FEATURES, VALUES = 2, 3, 6, 5
FLOOR = 0.05


def features(length, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    projected = torch.randn(HEADS, BSZ, length, FEATURES // 2, generator=generator, dtype=dtype)
    return sincos_features(projected).requires_grad_()


def values(length, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = (HEADS, BSZ, length, VALUES)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


def decays(length, every=4):
    """Log gates: 0 except at sentence starts, where gates are as small as e^-30."""
    log_decay = torch.zeros(HEADS, BSZ, length, dtype=torch.float64)
    starts = torch.arange(length) % every == every - 1
    log_decay[:, :, starts] = -(3 * torch.randn(HEADS, BSZ, int(starts.sum())).double()).abs()
    log_decay[:, 0, starts] *= 10
    return log_decay.requires_grad_()


def summary_before():
    sums = torch.randn(HEADS, BSZ, FEATURES, VALUES, dtype=torch.float64)
    norms = torch.rand(HEADS, BSZ, FEATURES, dtype=torch.float64)
    return Summary(sums.requires_grad_(), norms.requires_grad_())


def gradients(outputs, inputs):
    """Gradients of a weighted sum of all outputs."""
    generator = torch.Generator().manual_seed(9)
    loss = sum(
        (o * torch.randn(o.shape, generator=generator, dtype=o.dtype)).sum() for o in outputs
    )
    return torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("continued", [False, True])
@pytest.mark.parametrize("length", [1, 7, 33, 129])
def test_causal_attention_equals_the_recurrence(length, continued, gated):
    q, k, v = features(length, 1), features(length, 2), values(length, 3)
    log_decay = decays(length) if gated else None
    before = summary_before() if continued else None
    inputs = [q, k, v, *([log_decay] if gated else []), *(before or [])]
    want, want_summary = naive.causal_attention(q, k, v, FLOOR, log_decay, before)
    want_gradients = gradients([want, *want_summary], inputs)
    for chunk_size in (16, 128):
        got, summary = ops.causal_attention(
            q, k, v, FLOOR, log_decay, before, need_summary=True, chunk_size=chunk_size
        )
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(tuple(summary), tuple(want_summary))
        torch.testing.assert_close(gradients([got, *summary], inputs), want_gradients)


@pytest.mark.parametrize("length", [5, 40])
def test_output_does_not_depend_on_requesting_the_summary(length):
    q, k, v = features(length, 1), features(length, 2), values(length, 3)
    got, summary = ops.causal_attention(q, k, v, FLOOR, chunk_size=16)
    assert summary is None
    torch.testing.assert_close(got, naive.causal_attention(q, k, v, FLOOR)[0])


@pytest.mark.parametrize("length", [1, 7, 33, 129])
def test_cross_attention_equals_the_loop(length):
    q, k, v = features(5, 1), features(length, 2), values(length, 3)
    weights = torch.rand(HEADS, BSZ, length, dtype=torch.float64).requires_grad_()
    want = naive.cross_attention(q, k, v, weights, FLOOR)
    want_gradients = gradients([want], [q, k, v, weights])
    for got in (
        ops.attend_keys(q, k, v, weights, FLOOR),
        ops.attend_summary(q, ops.summarise(k, v, weights), FLOOR),
    ):
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(gradients([got], [q, k, v, weights]), want_gradients)


def test_when_a_summary_pays():
    assert not ops.summary_pays(56, None, 512, 64) and ops.summary_pays(57, None, 512, 64)
    assert not ops.summary_pays(100, 100, 512, 64) and ops.summary_pays(120, 120, 512, 64)


def test_zero_keys_are_padding():
    q, k, v = features(9, 1), features(9, 2), values(9, 3)
    keep = torch.tensor([1, 1, 0, 0, 1, 1, 1, 0, 1]).bool()
    padded = torch.where(keep[:, None], k, torch.zeros_like(k))
    got, _ = ops.causal_attention(q, padded, v, FLOOR, chunk_size=4)
    want, _ = naive.causal_attention(q[:, :, keep], k[:, :, keep], v[:, :, keep], FLOOR)
    torch.testing.assert_close(got[:, :, keep], want)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_stable_over_long_documents(dtype, gated):
    length, random_vectors = 8192, 32
    matrix = torch.randn(16, random_vectors, dtype=torch.float64)
    vectors = unit_length(torch.randn(2, HEADS, BSZ, length, 16, dtype=torch.float64))
    q, k = sincos_features(vectors @ matrix) * random_vectors**-0.5
    v, floor = values(length, 3), 10 / random_vectors
    log_decay = decays(length, every=30) if gated else None
    with torch.no_grad():
        want, _ = ops.causal_attention(q, k, v, floor, log_decay)
        got, _ = ops.causal_attention(*(x.to(dtype) for x in (q, k, v)), floor, log_decay)
    assert got.dtype == dtype and got.isfinite().all()
    error = (got.double() - want).abs()
    # A few units in the last place of values of size 1, whatever the length.
    unit = torch.finfo(dtype).eps
    assert error[:, :, -1000:].mean() < 4 * unit and error.mean() < 8 * unit


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_stable_over_long_sources(dtype):
    length, random_vectors = 8192, 32
    matrix = torch.randn(16, random_vectors, dtype=torch.float64)
    vectors = unit_length(torch.randn(2, HEADS, BSZ, length, 16, dtype=torch.float64))
    q, k = sincos_features(vectors @ matrix)
    q, v, floor = q[:, :, :50], values(length, 3), 10 / random_vectors
    weights = torch.rand(HEADS, BSZ, length, dtype=torch.float64) / random_vectors
    with torch.no_grad():
        want = ops.attend_summary(q, ops.summarise(k, v, weights), floor)
        q, k, v, weights = (x.to(dtype) for x in (q, k, v, weights))
        got = ops.attend_summary(q, ops.summarise(k, v, weights), floor)
    assert got.dtype == dtype and got.isfinite().all()
    assert (got.double() - want).abs().mean() < 4 * torch.finfo(dtype).eps


def test_memory_grows_linearly():
    """Count the numbers that autograd stores for the backward pass."""

    def kept(length):
        sizes = []

        def pack(tensor):
            sizes.append(tensor.numel())
            return tensor

        q, k, v = features(length, 1), features(length, 2), values(length, 3)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            ops.causal_attention(q, k, v, FLOOR, decays(length))
        return sum(sizes)

    assert kept(8192) < 4.2 * kept(2048)


def test_features_equal_the_loop():
    x, matrix = torch.randn(7, dtype=torch.float64), torch.randn(4, 7, dtype=torch.float64)
    projected, squared = matrix @ x, (x @ x).view(1)
    torch.testing.assert_close(ops.sincos_features(projected), naive.sincos_features(x, matrix))
    torch.testing.assert_close(
        ops.positive_features(projected, squared), naive.positive_features(x, matrix)
    )


def test_gradient_of_sincos():
    projected = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ops.sincos_features, projected)


def test_both_maps_estimate_the_gaussian_kernel():
    pairs = ops.unit_length(torch.randn(20, 2, 8, dtype=torch.float64))
    x, y = pairs[:, 0], pairs[:, 1]
    matrix = torch.randn(200_000, 8, dtype=torch.float64)
    want = (-(x - y).square().sum(-1) / 2).exp()

    def estimate(features, kind):
        scale = ops.kernel_scale(len(matrix), kind)
        return (features(x) * features(y)).sum(-1) * scale

    def positive(vectors):
        squared = vectors.square().sum(-1, keepdim=True)
        return ops.positive_features(vectors @ matrix.T, squared)

    sincos = estimate(lambda vectors: ops.sincos_features(vectors @ matrix.T), "sincos")
    torch.testing.assert_close(sincos, want, atol=0.02, rtol=0)
    torch.testing.assert_close(estimate(positive, "positive"), want, atol=0.02, rtol=0)


def test_unit_length_of_zero_is_zero():
    assert torch.equal(ops.unit_length(torch.zeros(3)), torch.zeros(3))
