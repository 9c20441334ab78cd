"""The cache of sentence vectors computes each vector once, and forgets the least recently used."""

import pytest
import torch

from fairseq_docmt.modules.rnn.vector_cache import VectorCache


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
