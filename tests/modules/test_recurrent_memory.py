"""The recurrent memory compared with its definition, sentence by sentence."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_docmt.modules.recurrent_memory import MemoryState, SentenceMemory

LANES, SENTENCES, LENGTH, DIM = 3, 7, 5, 8


def build(gradient_sentences=1, **options):
    torch.manual_seed(1)
    memory = SentenceMemory(DIM, 2, 12, 4, gradient_sentences, **options).double()
    for parameter in memory.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return memory


def batch():
    """States of sentences of 1 to 5 tokens; the second lane begins a document at sentence 3."""
    generator = torch.Generator().manual_seed(0)
    rows = SENTENCES * LANES
    states = torch.randn(rows, LENGTH, DIM, generator=generator, dtype=torch.double)
    lengths = torch.randint(1, LENGTH + 1, (rows, 1), generator=generator)
    starts = torch.zeros(SENTENCES, LANES, dtype=torch.bool)
    starts[0] = True
    starts[3, 1] = True
    return states.requires_grad_(), torch.arange(LENGTH) < lengths, starts.flatten()


def attention(module, query, source):
    """Multi-head attention of (n, C) over (m, C), head by head."""
    q, k, v = module.q_proj(query), module.k_proj(source), module.v_proj(source)
    heads = []
    for part in range(module.num_heads):
        at = slice(part * module.head_dim, (part + 1) * module.head_dim)
        weights = (q[:, at] @ k[:, at].T / module.head_dim**0.5).softmax(-1)
        heads.append(weights @ v[:, at])
    return module.out_proj(torch.cat(heads, -1))


def updated(module, memory, states):
    """Equations 2 to 4 for one sentence."""
    query = memory + module.positions
    x = module.update_norm(query + attention(module.update_attention, query, states))
    return module.final_norm(x + module.fc2(F.relu(module.fc1(x))))


def naive(module, states, present, starts):
    """Return the memory of each sentence, with gradients into the latest sentences only."""
    read = {}
    first = module.initial_norm(module.initial)
    for lane in range(LANES):
        sentences, values = [], []
        for number in range(SENTENCES):
            row = number * LANES + lane
            if starts[row]:
                sentences, values = [], [first]
            back = min(module.gradient_sentences or SENTENCES, len(sentences))
            memory = values[len(sentences) - back]
            keep = len(sentences) == 0 or module.gradient_sentences == 0
            memory = memory if keep else memory.detach()
            for sentence in sentences[len(sentences) - back :]:
                memory = updated(module, memory, sentence)
            if sentences:
                values.append(memory)
            read[row] = memory
            sentences.append(states[row][present[row]])
    return torch.stack([read[row] for row in range(SENTENCES * LANES)])


@pytest.mark.parametrize("gradient_sentences", [0, 1, 2, 3])
def test_lanes_equal_documents_one_by_one(gradient_sentences):
    module = build(gradient_sentences)
    states, present, starts = batch()
    wanted = naive(module, states, present, starts)
    found, _ = module.read_sentences(states, present, starts, LANES, None)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn(found.shape, dtype=torch.double)
    inputs = [states, *module.parameters()]
    gradients = [
        torch.autograd.grad((x * weights).sum(), inputs, allow_unused=True) for x in (found, wanted)
    ]
    for name, a, b in zip(["states", *dict(module.named_parameters())], *gradients):
        torch.testing.assert_close(a, b, msg=name)


@pytest.mark.parametrize("gradient_sentences", [1, 2])
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_chunks_continue_the_memory_of_the_last_one(gradient_sentences, cut):
    module = build(gradient_sentences)
    states, present, starts = batch()
    whole, after_all = module.read_sentences(states, present, starts, LANES, None)
    before = slice(0, cut * LANES), slice(cut * LANES, None)
    parts, state = [], None
    for rows in before:
        if state is not None:
            state = MemoryState.of_doc_state(state.as_doc_state("a"), "a")
        read, state = module.read_sentences(states[rows], present[rows], starts[rows], LANES, state)
        parts.append(read)
    torch.testing.assert_close(torch.cat(parts), whole)
    torch.testing.assert_close(state.memory, after_all.memory)
    for a, b in zip(state.sentences, after_all.sentences):
        torch.testing.assert_close(a.states, b.states)


@pytest.mark.parametrize("gradient_sentences", [1, 2])
def test_gradients_end_at_the_sentences_asked_for(gradient_sentences):
    module = build(gradient_sentences)
    states, present, starts = batch()
    read, _ = module.read_sentences(states, present, starts, LANES, None)
    (gradient,) = torch.autograd.grad(read[5 * LANES].sum() + read[5 * LANES].pow(2).sum(), states)
    reached = gradient.unflatten(0, (SENTENCES, LANES)).abs().sum((2, 3))
    first = 5 - gradient_sentences
    assert (reached[first:5, 0] > 0).all()
    assert (reached[:first] == 0).all() and (reached[5:] == 0).all() and (reached[:, 1:] == 0).all()


def test_half_precision_without_sentences_stays_finite():
    module = build().bfloat16()
    states, present, starts = batch()
    read, state = module.read_sentences(states.bfloat16(), present, starts, LANES, None)
    gone = [s._replace(present=torch.zeros_like(s.present)) for s in state.sentences]
    read, _ = module.begin_sentence(state._replace(sentences=gone), starts[:LANES])
    read.sum().backward()
    assert read.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
