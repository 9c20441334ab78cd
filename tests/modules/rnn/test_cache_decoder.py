"""Cache matching computed through the source states equals equations 5 and 8."""

import pytest
import torch

from fairseq_docmt.modules.rnn.cache_decoder import CacheGate, Lookup
from fairseq_docmt.ops.translation_cache import NO_WORD, Cache, read

B, N, T, S, L, D = 2, 3, 4, 5, 6, 7


def draw(*shape):
    return torch.randn(*shape, dtype=torch.double).requires_grad_()


@pytest.mark.parametrize("outputs", [D, 1])
@pytest.mark.parametrize("slots", [3, 20], ids=["few slots", "many slots"])
def test_equations(slots, outputs):
    """Values and gradients; one of the two documents has an empty cache."""
    torch.manual_seed(1)
    gate = CacheGate(D, L, outputs).double()
    words = torch.arange(slots).repeat(B, 1)
    words[1] = NO_WORD
    cache = Cache(draw(B, slots, L), draw(B, slots, D), words, words)
    sources, hidden = draw(B, S, L), draw(B * N, T, D)
    attention = torch.randn(B * N, T, S, dtype=torch.double).softmax(-1).requires_grad_()
    lookup = Lookup.of(cache, sources, gate)
    assert lookup.gates.size(1) == (S + slots if slots == 3 else S)

    contexts = attention.view(B, N * T, S) @ sources
    weights, recalled = read(cache, contexts)
    contexts, recalled = contexts.view(B * N, T, L), recalled.view(B * N, T, D)
    logits = gate.of_state(hidden) + gate.of_context(contexts) + gate.of_cache(recalled)
    opened = torch.sigmoid(logits) * words.ne(NO_WORD)[:, :1].repeat_interleave(N, 0)[..., None]
    wanted = (weights.view(B * N, T, slots), recalled, opened)

    inputs = [*gate.parameters(), sources, hidden, attention, cache.keys, cache.values]
    results = []
    for outputs in (lookup.read(hidden, attention, gate), wanted):
        loss = sum((x.sin() * (n + 1)).sum() for n, x in enumerate(outputs))
        results.append((*outputs, *torch.autograd.grad(loss, inputs, retain_graph=True)))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b)
