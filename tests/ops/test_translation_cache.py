"""The continuous cache against the rule written as a loop over lists."""

import pytest
import torch

from fairseq_docmt.ops import naive
from fairseq_docmt.ops.translation_cache import NO_WORD, Cache, read, write

ROWS, TOKENS, KEY, VALUE = 4, 7, 5, 3


def sentences(number, words=6):
    """Keys, values and words of sentences with repeated words and tokens that are not written."""
    generator = torch.Generator().manual_seed(number)
    keys = torch.randn(ROWS, TOKENS, KEY, generator=generator, dtype=torch.double)
    values = torch.randn(ROWS, TOKENS, VALUE, generator=generator, dtype=torch.double)
    chosen = torch.randint(words, (ROWS, TOKENS), generator=generator)
    lengths = torch.randint(TOKENS + 1, (ROWS, 1), generator=generator)
    return keys, values, chosen.masked_fill(torch.arange(TOKENS) >= lengths, NO_WORD)


def slots_of(cache, row):
    """Slots in the order of the loop version: the least recently written first."""
    order = cache.ages[row].argsort()
    order = [i for i in order.tolist() if cache.words[row, i] != NO_WORD]
    return [(cache.keys[row, i], cache.values[row, i], int(cache.words[row, i])) for i in order]


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("size", [1, 3, 10, 100])
def test_equals_the_loop_version(size, overwrite):
    """Several sentences fill the cache until old words are replaced; a query follows each."""
    cache = Cache.empty(torch.zeros((), dtype=torch.double), ROWS, size, KEY, VALUE)
    wanted = [[] for _ in range(ROWS)]
    for number in range(6):
        keys, values, words = sentences(number)
        before = Cache(*(x.clone() for x in cache))
        after = write(cache, keys, values, words, overwrite)
        assert all(torch.equal(a, b) for a, b in zip(cache, before))  # a new value
        cache = after
        queries = torch.randn(ROWS, 2, KEY, dtype=torch.double)
        weights, found = read(cache, queries)
        for row in range(ROWS):
            tokens = [
                (k, v, int(w))
                for k, v, w in zip(keys[row], values[row], words[row])
                if w != NO_WORD
            ]
            wanted[row] = naive.write_to_cache(wanted[row], tokens, size, overwrite)
            slots = slots_of(cache, row)
            assert [s[2] for s in slots] == [s[2] for s in wanted[row]]
            for (k, v, _), (wanted_k, wanted_v, _) in zip(slots, wanted[row]):
                torch.testing.assert_close(k, wanted_k)
                torch.testing.assert_close(v, wanted_v)
            for t in range(2):
                _, value = naive.read_from_cache(wanted[row], queries[row, t])
                if value is None:
                    assert weights[row, t].eq(0).all() and found[row, t].eq(0).all()
                else:
                    torch.testing.assert_close(found[row, t], value)
                    torch.testing.assert_close(weights[row, t].sum(), torch.ones_like(value[0]))


def test_no_slots():
    cache = Cache.empty(torch.zeros(()), 2, 0, KEY, VALUE)
    cache = write(cache, *(x[:2].float() for x in sentences(0)[:2]), sentences(0)[2][:2], True)
    weights, values = read(cache, torch.randn(2, 3, KEY))
    assert weights.shape == (2, 3, 0) and values.eq(0).all()


def test_emptied_documents_have_no_words():
    cache = Cache.empty(torch.zeros((), dtype=torch.double), ROWS, 4, KEY, VALUE)
    cache = write(cache, *sentences(1), True)
    rows = torch.tensor([True, False, True, False])
    emptied = cache.emptied(rows)
    assert slots_of(emptied, 0) == slots_of(emptied, 2) == []
    assert len(slots_of(emptied, 1)) == len(slots_of(cache, 1)) > 0
    again = write(emptied, *sentences(2), True)
    alone = Cache.empty(torch.zeros((), dtype=torch.double), ROWS, 4, KEY, VALUE)
    fresh = write(alone, *sentences(2), True)
    for (k, v, w), (fresh_k, fresh_v, fresh_w) in zip(slots_of(again, 0), slots_of(fresh, 0)):
        assert w == fresh_w and torch.equal(k, fresh_k) and torch.equal(v, fresh_v)


def test_half_precision_with_large_products():
    cache = Cache.empty(torch.zeros((), dtype=torch.float16), 1, 3, KEY, VALUE)
    keys = torch.full((1, 2, KEY), 200.0, dtype=torch.float16)
    cache = write(cache, keys, keys[..., :VALUE], torch.tensor([[1, 2]]), True)
    weights, values = read(cache, keys)
    torch.testing.assert_close(weights[0, 0], torch.tensor([0.5, 0.5, 0.0]).half())
    assert values.isfinite().all()
