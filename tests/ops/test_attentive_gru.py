"""The recurrence with attention compared with its loop version."""

import pytest
import torch

from fairseq_docmt.ops import naive
from fairseq_docmt.ops.attentive_gru import AttentionParts, attentive_gru, gru_step

D, A = 3, 5


def tensors(bsz, steps, source, rows=1):
    generator = torch.Generator().manual_seed(steps)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.double).requires_grad_()

    padding = torch.arange(source) >= torch.tensor([source, *range(1, bsz)]).unsqueeze(1)
    return (
        draw(bsz * rows, steps, A + 3 * D),
        draw(bsz * rows, D),
        AttentionParts(draw(bsz, source, A), draw(bsz, source, 3 * D), padding),
        draw(A + 3 * D, D),
        draw(A + 3 * D),
        draw(A),
    )


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("steps", [1, 7, 33])
def test_equals_the_loop_version(steps, padded):
    from_input, state, parts, weight, bias, energy = tensors(3, steps, 9)
    parts = parts if padded else parts._replace(padding=None)
    inputs = [from_input, state, parts.keys, parts.gates, weight, bias, energy]
    found = attentive_gru(from_input, state, parts, weight, bias, energy)
    wanted = naive.attentive_gru(
        from_input, state, parts.keys, parts.gates, parts.padding, weight, bias, energy
    )
    weights = [torch.randn(x.shape, dtype=torch.double) for x in wanted]
    gradients = []
    for outputs in (found, wanted):
        loss = sum((x * w).sum() for x, w in zip(outputs, weights))
        gradients.append(torch.autograd.grad(loss, inputs))
    for a, b in zip((*found, *gradients[0]), (*wanted, *gradients[1])):
        torch.testing.assert_close(a, b)


def test_rows_share_a_source():
    """Three rows for each of two sentences."""
    from_input, state, parts, *rest = tensors(2, 5, 4, rows=3)
    copied = AttentionParts(*(x.repeat_interleave(3, 0) for x in parts))
    shared, apart = (attentive_gru(from_input, state, p, *rest) for p in (parts, copied))
    inputs = [from_input, state, parts.keys, parts.gates, *rest]
    gradients = [
        torch.autograd.grad(x[0].sin().sum() + x[1].sin().sum(), inputs) for x in (shared, apart)
    ]
    for a, b in zip((*shared, *gradients[0]), (*apart, *gradients[1])):
        torch.testing.assert_close(a, b)


def test_a_step_equals_that_of_torch():
    cell = torch.nn.GRUCell(4, D).double()
    x, state = torch.randn(6, 4, dtype=torch.double), torch.randn(6, D, dtype=torch.double)
    from_input = x @ cell.weight_ih.t() + cell.bias_ih
    from_state = state @ cell.weight_hh.t() + cell.bias_hh
    torch.testing.assert_close(gru_step(from_input, from_state, state), cell(x, state))
