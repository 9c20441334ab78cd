"""Blocked window attention against the loop that defines it."""

import itertools

import pytest
import torch

from fairseq_docmt.ops import naive
from fairseq_docmt.ops.window_attention import (
    Window,
    fused_window_attention,
    linear_centers,
    window_attention,
)

BSZ, HEADS, DIM = 2, 2, 3


def tensors(*lengths):
    return [
        torch.randn(BSZ, HEADS, n, DIM, dtype=torch.float64, requires_grad=True) for n in lengths
    ]


def alignment(kind, queries, keys):
    """(centers, keys) by kind of alignment; the two rows differ in length, so one has padding."""
    lengths = torch.tensor([keys, max(1, keys - 3)])
    if kind in ("identity", "causal"):
        return torch.arange(queries).expand(BSZ, -1)
    if kind == "linear":
        return linear_centers(torch.tensor([queries, max(1, queries - 2)]), lengths, queries)
    # Alignments by sentences in a search may jump in both directions and pass the end.
    return torch.randint(-2, keys + 4, (BSZ, queries))


@pytest.mark.parametrize("kind", ["identity", "causal", "linear", "jumps"])
@pytest.mark.parametrize("size", [0, 2, 50])
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 9), (7, 7), (33, 20), (20, 33)])
@pytest.mark.parametrize("with_relative", [False, True])
def test_equals_the_loop(kind, size, queries, keys, with_relative):
    first = None
    if kind in ("identity", "causal"):
        # Queries of self-attention are the latest tokens: of all, or of some after a cache.
        keys = max(queries, keys)
        first = keys - queries
    q, k, v = tensors(queries, keys, keys)
    centers = alignment(kind, queries, keys) + (first or 0)
    padding = torch.zeros(BSZ, keys, dtype=torch.bool)
    padding[1, max(1, keys - 3) :] = True
    relative = torch.randn(2 * size + 1, DIM, dtype=torch.float64, requires_grad=True)
    relative = relative if with_relative else None
    inputs = [q, k, v, *([relative] if with_relative else [])]
    want = naive.window_attention(q, k, v, centers, size, kind == "causal", padding, relative)
    want = want + 0 * sum(x.sum() for x in inputs)  # queries that see nothing use no input
    generator = torch.randn(want.shape, dtype=torch.float64)
    want_gradients = torch.autograd.grad((want * generator).sum(), inputs)
    windows = [Window(centers, size, kind == "causal", padding)]
    if first is not None:
        windows.append(windows[0]._replace(centers=None, first=first))
    for attend, block_size, window in itertools.product(
        (window_attention, fused_window_attention), (4, 128), windows
    ):
        got = attend(q, k, v, window, relative, block_size=block_size)
        torch.testing.assert_close(got, want)
        got_gradients = torch.autograd.grad((got * generator).sum(), inputs)
        torch.testing.assert_close(got_gradients, want_gradients)


def test_a_window_over_all_is_full_attention():
    q, k, v = tensors(17, 23, 23)
    window = Window(torch.zeros(BSZ, 17, dtype=torch.long), 23)
    want = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
    torch.testing.assert_close(window_attention(q, k, v, window, block_size=5), want)


@pytest.mark.parametrize("attend", [window_attention, fused_window_attention])
def test_dropout_keeps_the_mean_and_its_gradient_fits(attend):
    q, k, v = tensors(6, 6, 6)
    window = Window(torch.arange(6).expand(BSZ, -1), 2)

    def drop(q, k, v):
        torch.manual_seed(4)
        return attend(q, k, v, window, dropout=0.4, block_size=4)

    assert torch.autograd.gradcheck(drop, (q, k, v))
    with torch.no_grad():
        mean = torch.stack([attend(q, k, v, window, None, 0.4) for _ in range(4000)])
        want = window_attention(q, k, v, window)
    torch.testing.assert_close(mean.mean(0), want, atol=0.1, rtol=0)


@pytest.mark.parametrize("attend", [window_attention, fused_window_attention])
def test_dropout_leaves_out_weights(attend):
    """A weight of 1 / 6 is dropped, or divided by the probability of keeping it."""
    nothing = torch.zeros(BSZ, HEADS, 6, 6, dtype=torch.float64)
    weights = torch.eye(6, dtype=torch.float64).expand(BSZ, HEADS, 6, 6)
    window = Window(torch.arange(6).expand(BSZ, -1), 6)
    found = 6 * attend(nothing, nothing, weights, window, None, 0.4, block_size=4)
    torch.testing.assert_close(found, found.gt(0).double() / 0.6)
    assert found.eq(0).double().mean() == pytest.approx(0.4, abs=0.15)


def test_nothing_of_quadratic_size_is_kept():
    def kept(length):
        sizes = []
        q, k, v = tensors(length, length, length)
        window = Window(torch.arange(length).expand(BSZ, -1), 10)
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.numel()) or x, lambda x: x
        )
        with hooks:
            window_attention(q, k, v, window)
        return sum(sizes)

    assert kept(2000) == 2 * kept(1000) == 3 * 2000 * BSZ * HEADS * DIM


@pytest.mark.parametrize(
    "queries, keys, want",
    [
        (4, 4, [0, 1, 2, 3]),
        (4, 2, [0, 0, 1, 1]),  # 0.5, 1, 1.5, 2 rounded half up, from 1
        (2, 5, [2, 4]),  # 2.5, 5
        (3, 1, [0, 0, 0]),
    ],
)
def test_linear_centers(queries, keys, want):
    got = linear_centers(torch.tensor([queries]), torch.tensor([keys]), queries)
    assert got.tolist() == [want]
