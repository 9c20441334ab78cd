"""The cache of earlier sentences, and values of a search found by the tokens of a hypothesis."""

import pytest
import torch

from fairseq_docmt.modules.rnn.cache import CacheGate, Lookup, SearchTrace
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


PAD = 1


def searched():
    """Two sentences of two beams; values encode the sentence and all tokens read."""
    trace, table = SearchTrace(2), torch.tensor([2, 2, 2, 2])
    trace.add(table, torch.tensor([[12.0], [12.0], [22.0], [22.0]]))
    trace.reorder(torch.tensor([0, 0, 2, 2]))
    table.copy_(torch.tensor([5, 6, 5, 7]))  # written into, as the generator does
    trace.add(table, torch.tensor([[125.0], [126.0], [225.0], [227.0]]))
    table.zero_()
    # The first sentence ends; both beams of the second go on from its second hypothesis.
    trace.reorder(torch.tensor([3, 3]))
    trace.add(torch.tensor([5, 6]), torch.tensor([[2275.0], [2276.0]]))
    return trace


def test_by_hand():
    (found,) = searched().find(torch.tensor([[2, 6, PAD], [2, 7, 5]]), PAD)
    assert found.tolist() == [[[12.0], [126.0], [0.0]], [[22.0], [227.0], [2275.0]]]


def test_shorter_than_the_search():
    (found,) = searched().find(torch.tensor([[2, 5], [2, 5]]), PAD)
    assert found.tolist() == [[[12.0], [125.0]], [[22.0], [225.0]]]


def test_hypotheses_that_were_not_searched_are_not_found():
    """Another word, a hypothesis without continuation, too long a sentence, no search."""
    for tokens in ([[2, 7], [2, 5]], [[2, 6, PAD], [2, 5, 5]], [[2, 6, 5, 5], [2, 7, 5, 5]]):
        assert searched().find(torch.tensor(tokens), PAD) is None
    assert SearchTrace(2).find(torch.tensor([[2], [2]]), PAD) is None


def test_orders_without_a_step_are_composed():
    trace = SearchTrace(1)
    trace.add(torch.tensor([2, 3]), torch.tensor([1.0, 2.0]))
    trace.reorder(torch.tensor([1, 0]))
    trace.reorder(torch.tensor([0, 0]))
    trace.add(torch.tensor([4, 5]), torch.tensor([3.0, 4.0]))
    (found,) = trace.find(torch.tensor([[3, 5]]), PAD)
    assert found.tolist() == [[2.0, 4.0]]
    assert trace.find(torch.tensor([[2, 5]]), PAD) is None
