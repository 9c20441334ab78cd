"""The continuous cache of Tu et al. (2018): slots of key, value and word, written and read.

Shapes: B documents, I slots, T target tokens, l size of keys, d size of values.
"""

from typing import NamedTuple, Tuple

import torch
from torch import Tensor

#: in place of a word: an empty slot, or a token that is not written
NO_WORD = -1


class Cache(NamedTuple):
    """Slots of B documents.

    Attributes:
        keys: (B, I, l) attention contexts.
        values: (B, I, d) decoder states.
        words: (B, I) int64 words that were produced there, NO_WORD in empty slots.
        ages: (B, I) int64 when each slot was last written, counted in tokens; -1 in empty slots.
    """

    keys: Tensor
    values: Tensor
    words: Tensor
    ages: Tensor

    @classmethod
    def empty(cls, like: Tensor, rows: int, slots: int, key_dim: int, value_dim: int) -> "Cache":
        """Empty slots for ``rows`` documents, of the type and on the device of ``like``."""
        nothing = torch.full((rows, slots), NO_WORD, dtype=torch.long, device=like.device)
        keys, values = (like.new_zeros(rows, slots, size) for size in (key_dim, value_dim))
        return cls(keys, values, nothing, nothing.clone())

    def emptied(self, rows: Tensor) -> "Cache":
        """With the slots of some rows (B,) bool emptied."""
        rows = rows.unsqueeze(1)
        return self._replace(
            words=self.words.masked_fill(rows, NO_WORD), ages=self.ages.masked_fill(rows, -1)
        )

    def of_rows(self, rows: Tensor) -> "Cache":
        """Of some documents, by index."""
        return Cache(*(x.index_select(0, rows) for x in self))


@torch.no_grad()
def write(cache: Cache, keys: Tensor, values: Tensor, words: Tensor, overwrite: bool) -> Cache:
    """The cache after a sentence of each document (section 3.3).

    From left to right each token goes to the slot that has its word, whose key and value become
    the mean of old and new; or else to an empty slot, or to the one that was not written for
    longest.

    Args:
        keys: (B, T, l). values: (B, T, d).
        words: (B, T) int64, NO_WORD for tokens that are not written.
        overwrite: whether a known word goes to its slot; without it always to a new one.
    """
    if cache.words.size(1) == 0:
        return cache
    written = words != NO_WORD
    slots, kept, new_words, ages = _choose_slots(cache, words, written, overwrite)
    later = slots.unsqueeze(2) == slots.unsqueeze(1)
    later = later & torch.ones_like(later[0]).triu(diagonal=1)
    # What a token writes is kept by as much as each later one in its slot keeps.
    share = torch.where(later, kept.unsqueeze(1), 1.0).prod(dim=2) * (1 - kept)
    here = slots.unsqueeze(1) == torch.arange(cache.words.size(1), device=slots.device)[:, None]
    share_of_old = torch.where(here, kept.unsqueeze(1), 1.0).prod(dim=2, keepdim=True)
    shares = here * share.unsqueeze(1)

    def mixed(old, new):
        return old * share_of_old.to(old.dtype) + shares.to(old.dtype) @ new.to(old.dtype)

    return Cache(mixed(cache.keys, keys), mixed(cache.values, values), new_words, ages)


def _choose_slots(cache: Cache, words: Tensor, written: Tensor, overwrite: bool):
    """Where tokens (B, T) go: their slots, how much of what was there is kept, words and ages."""
    held, ages = cache.words.clone(), cache.ages.clone()
    clock = ages.amax(dim=1, keepdim=True) + written.cumsum(dim=1)
    slots, kept = [], []
    for word, is_written, now in zip(*(x.split(1, dim=1) for x in (words, written, clock))):
        priority = -ages
        if overwrite:
            priority = priority.masked_fill(held == word, torch.iinfo(ages.dtype).max)
        slot = priority.argmax(dim=1, keepdim=True)
        before = held.gather(1, slot)
        known = (before == word) & overwrite
        kept.append(torch.where(is_written, 0.5 * known, 1.0))
        slots.append(slot)
        held.scatter_(1, slot, torch.where(is_written, word, before))
        ages.scatter_(1, slot, torch.where(is_written, now, ages.gather(1, slot)))
    return torch.cat(slots, dim=1), torch.cat(kept, dim=1), held, ages


def compare(cache: Cache, vectors: Tensor) -> Tensor:
    """(B, n, I) products of (B, n, l) vectors and keys, in single precision at least."""
    # Products of large vectors are too large for half precision.
    precise = torch.promote_types(vectors.dtype, torch.float32)
    return vectors.to(precise) @ cache.keys.to(precise).transpose(1, 2)


def probabilities(logits: Tensor, words: Tensor) -> Tensor:
    """(B, T, I) probabilities of slots with (B, I) words, all zero where a cache is empty."""
    hidden = words.eq(NO_WORD).unsqueeze(1)
    logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
    return logits.softmax(dim=-1).masked_fill(hidden, 0.0)


def read(cache: Cache, queries: Tensor) -> Tuple[Tensor, Tensor]:
    """Match attention contexts with keys (equation 5) and read the values.

    Args:
        queries: (B, T, l).

    Returns:
        (B, T, I) probabilities of slots, all zero where a cache is empty; (B, T, d) values read.
    """
    weights = probabilities(compare(cache, queries), cache.words).to(queries.dtype)
    return weights, weights @ cache.values
