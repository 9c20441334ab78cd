"""Document memory compared with its loop version."""

import pytest
import torch

from fairseq_docmt.ops import naive
from fairseq_docmt.ops.recall import recall_others, sentences_per_document


@pytest.mark.parametrize("sizes", [[1, 2], [1, 4, 1, 2], [33], [7, 41]])
def test_equals_the_loop_version(sizes):
    documents = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    generator = torch.Generator().manual_seed(1)
    inputs, gradients = [], []
    for _ in range(2):
        generator.manual_seed(1)
        pair = [
            torch.randn(sum(sizes), 5, generator=generator, dtype=torch.double).requires_grad_()
            for _ in range(2)
        ]
        inputs.append(pair)
    found = recall_others(*inputs[0], documents)
    wanted = naive.recall_others(*inputs[1], documents)
    torch.testing.assert_close(found, wanted)
    weight = torch.randn(found.shape, generator=generator, dtype=torch.double)
    for output, pair in zip((found, wanted), inputs):
        gradients.append(torch.autograd.grad((output * weight).sum(), pair, allow_unused=True))
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, torch.zeros_like(a) if b is None else b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    generator = torch.Generator().manual_seed(1)
    queries, cells = (torch.randn(9, 64, generator=generator) for _ in range(2))
    documents = torch.tensor([0] * 5 + [1] * 4)
    found = recall_others((30 * queries).to(dtype), cells.to(dtype), documents)
    assert found.dtype == dtype and found.isfinite().all()
    torch.testing.assert_close(
        found.float(), recall_others(30 * queries, cells, documents), atol=0.4, rtol=0
    )


def test_sentences_per_document():
    assert sentences_per_document(torch.tensor([0, 0, 3, 1, 1, 1])) == [2, 1, 3]
