"""Sentence vectors of document memories, and their cache."""

import pytest
import torch

from fairseq_docmt.modules.rnn import memory
from fairseq_docmt.modules.rnn.memory import SentenceVectors, VectorCache

PAD, EOS, WORDS = 1, 2, 50


def vectors_of(embed_dim=5, hidden_size=7):
    torch.manual_seed(3)
    module = SentenceVectors(WORDS, PAD, EOS, embed_dim, hidden_size)
    module.mean.normal_()
    module.deviation.uniform_(0.5, 2)
    return module


def sentences_of(count, longest=20, seed=1):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [torch.randint(4, WORDS, (length,), generator=generator) for length in lengths]


def batch_of(sentences, left=False):
    """Rows with ``</s>``, padded on either side."""
    width = max(map(len, sentences)) + 1
    rows = torch.full((len(sentences), width), PAD)
    for row, words in zip(rows, sentences):
        at = width - len(words) - 1 if left else 0
        row[at : at + len(words)] = words
        row[at + len(words)] = EOS
    return rows


def counted(monkeypatch):
    """Record the sentences that the language models read."""
    read, states = [], SentenceVectors.last_states

    def last_states(self, sentences):
        read.extend(tuple(words.tolist()) for words in sentences)
        return states(self, sentences)

    monkeypatch.setattr(SentenceVectors, "last_states", last_states)
    return read


def by_hand(module, words):
    """Compute one vector by stock LSTMs, word by word."""
    found = []
    for embedding, lstm, step in zip(module.embeddings, module.lstms, (1, -1)):
        state = None
        for word in [EOS, *words.tolist()[::step]]:
            _, state = lstm(embedding(torch.tensor([[word]])), state)
        found.append(state[0].flatten())
    return (torch.cat(found) - module.mean) / module.deviation


def test_equal_stock_lstms():
    module = vectors_of().double()
    sentences = sentences_of(70)
    wanted = torch.stack([by_hand(module, words) for words in sentences])
    for left in (True, False):  # the second time they are kept ones
        found = module(batch_of(sentences, left))
        torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)


@pytest.mark.parametrize("sizes", [(5, 7), (33, 129), (256, 256)])
def test_neighbours_never_change_a_vector(sizes):
    """Not even in the last bit of single precision: alone, in any order, with any others."""
    module = vectors_of(*sizes)
    sentences = sentences_of(100)
    wanted = module.last_states(sentences)
    generator = torch.Generator().manual_seed(5)
    for count in (1, 2, 31, 32, 33, 64, 99):
        rows = torch.randperm(100, generator=generator)[:count]
        found = module.last_states([sentences[row] for row in rows.tolist()])
        assert torch.equal(found, wanted[rows]), count


def test_cached_vectors_equal_computed_ones(monkeypatch):
    read = counted(monkeypatch)
    module, again = vectors_of(), vectors_of()
    sentences = sentences_of(60)
    first = module(batch_of(sentences[:40]))
    assert len(read) == len({tuple(words.tolist()) for words in sentences[:40]})
    read.clear()
    found = module(batch_of(sentences[59::-1], left=True))
    assert set(read) == {tuple(words.tolist()) for words in sentences[40:]} - set(
        tuple(words.tolist()) for words in sentences[:40]
    )
    assert torch.equal(found.flip(0)[:40], first)
    assert torch.equal(found, again(batch_of(sentences[59::-1])))


@pytest.mark.parametrize("change", ["in place", "load_state_dict", "double"])
def test_changed_weights_change_the_vectors(monkeypatch, change):
    module, batch = vectors_of(), batch_of(sentences_of(10))
    module(batch)
    with torch.no_grad():
        if change == "in place":
            module.lstms[1].bias_hh_l0[3] += 1
        elif change == "load_state_dict":
            state = {name: value + 0.1 for name, value in module.state_dict().items()}
            module.load_state_dict(state)
        else:
            module.double()
    fresh = vectors_of().to(module.mean.dtype)
    fresh.load_state_dict(module.state_dict())
    assert torch.equal(module(batch), fresh(batch))


def test_cached_states_are_standardised_with_the_current_mean_and_deviation():
    """The stored states are not yet standardised."""
    module, batch = vectors_of(), batch_of(sentences_of(10))
    states = module(batch) * module.deviation + module.mean
    module.mean += 1
    torch.testing.assert_close(module(batch), (states - module.mean) / module.deviation)


def test_nothing_is_saved():
    module = vectors_of()
    names = list(module.state_dict())
    module(batch_of(sentences_of(10)))
    assert list(module.state_dict()) == names


def test_memory_is_bounded(monkeypatch):
    """The least recently used vectors are dropped, and a batch may exceed the limit."""
    monkeypatch.setattr(memory, "KEPT_BYTES", 3 * 4 * 14)
    read = counted(monkeypatch)
    module = vectors_of()
    a, b, c, d, e = (torch.tensor([word, word + 1]) for word in range(4, 9))
    for sentences, wanted in (
        ([a, b, c], [a, b, c]),
        ([a], []),
        ([d], [d]),
        ([a, c, d], []),
        ([b], [b]),
        ([a, b, c, d, e], [a, e]),
    ):
        read.clear()
        found = module(batch_of(sentences))
        assert sorted(read) == [tuple(words.tolist()) for words in wanted]
        assert torch.equal(found, vectors_of()(batch_of(sentences)))
        assert len(module.kept.vectors) <= 3
    rows = list(module.kept.vectors.values())
    assert all(row.untyped_storage().nbytes() == 4 * 14 for row in rows)


class Counter:
    """Function that computes vectors, and remembers for which sentences."""

    def __init__(self):
        self.computed = []

    def __call__(self, sentences):
        self.computed.append([int(sentence) for sentence in sentences])
        return torch.stack([sentence.float() for sentence in sentences])


def sentences(*words):
    return [torch.tensor([word]) for word in words]


def test_a_sentence_is_computed_once_also_within_a_batch():
    cache, compute = VectorCache(10), Counter()
    assert cache(sentences(3, 4, 3), compute, []).tolist() == [[3], [4], [3]]
    assert cache(sentences(4, 5), compute, []).tolist() == [[4], [5]]
    assert compute.computed == [[3, 4], [5]]


def test_the_least_recently_used_is_forgotten():
    cache, compute = VectorCache(2), Counter()
    for words in ((3,), (4,), (3,), (5,), (3,), (4,)):
        cache(sentences(*words), compute, [])
    assert compute.computed == [[3], [4], [5], [4]]


@pytest.mark.parametrize("change", ["in place", "replaced", "type"])
def test_other_weights_empty_the_cache(change):
    cache, compute, weight = VectorCache(10), Counter(), torch.ones(2)
    cache(sentences(3), compute, [weight])
    if change == "in place":
        weight += 1
    else:
        weight = weight.double() if change == "type" else torch.ones(2)
    cache(sentences(3), compute, [weight])
    assert compute.computed == [[3], [3]]


def test_a_cache_of_size_0_stores_nothing():
    cache = VectorCache(0)
    assert cache(sentences(3, 4, 3), Counter(), []).tolist() == [[3], [4], [3]]
    assert not cache.vectors
