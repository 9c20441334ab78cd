"""Reading and writing of the translation cache of Tu et al. (2018).

Each slot of the cache has a key, a value and a word.  Shapes: B documents, I slots, T target
tokens, key size l, value size d.
"""

from typing import NamedTuple, Tuple

import torch
from torch import Tensor

from fairseq_docmt.ops.precision import at_least_single

#: Word of an empty slot, and of tokens that are not written.
NO_WORD = -1


class Cache(NamedTuple):
    """Translation caches of B documents, each with I slots for keys of size l and values of size d.

    Attributes:
        keys: (B, I, l) attention contexts with which the words were generated.
        values: (B, I, d) decoder states with which the words were generated.
        words: (B, I) int64 target word of each slot, NO_WORD in empty slots.
        ages: (B, I) int64 time at which each slot was last written, counted in written tokens; -1
            in empty slots.
    """

    keys: Tensor
    values: Tensor
    words: Tensor
    ages: Tensor

    @classmethod
    def empty(cls, like: Tensor, bsz: int, slots: int, key_dim: int, value_dim: int) -> "Cache":
        """Return empty caches of ``bsz`` documents, with the data type and device of ``like``.

        Each has ``slots`` slots for keys of size ``key_dim`` and values of size ``value_dim``.
        """
        nothing = torch.full((bsz, slots), NO_WORD, dtype=torch.long, device=like.device)
        keys, values = (like.new_zeros(bsz, slots, size) for size in (key_dim, value_dim))
        return cls(keys, values, nothing, nothing.clone())

    def emptied(self, rows: Tensor) -> "Cache":
        """Return the caches, with the caches of some documents emptied.

        Args:
            rows: (B,) True for the documents whose caches are emptied.
        """
        rows = rows.unsqueeze(1)
        return self._replace(
            words=self.words.masked_fill(rows, NO_WORD), ages=self.ages.masked_fill(rows, -1)
        )


@torch.no_grad()
def write(cache: Cache, keys: Tensor, values: Tensor, words: Tensor, overwrite: bool) -> Cache:
    """Write a sentence of each document to its cache (Tu et al. 2018, section 3.3).

    Tokens are written from left to right.  With ``overwrite``, a token whose word is already in the
    cache goes to the slot of that word, whose key and value become the average of old and new.  Any
    other token is written to an empty slot or replaces the least recently written one.

    Args:
        cache: caches before the sentence.
        keys: (B, T, l) attention contexts of the T tokens.
        values: (B, T, d) decoder states.
        words: (B, T) int64, NO_WORD for tokens that are not written.
        overwrite: whether a word that is already in the cache is written to its slot; otherwise
            every token gets a new slot.

    Returns:
        The caches after the sentence.
    """
    if cache.words.size(1) == 0:
        return cache
    written = words != NO_WORD
    slots, kept, new_words, ages = _choose_slots(cache, words, written, overwrite)
    later = slots.unsqueeze(2) == slots.unsqueeze(1)
    later = later & torch.ones_like(later[0]).triu(diagonal=1)
    # Share of each token in its slot after all later tokens of the sentence were averaged in.
    share = torch.where(later, kept.unsqueeze(1), 1.0).prod(dim=2) * (1 - kept)
    here = slots.unsqueeze(1) == torch.arange(cache.words.size(1), device=slots.device)[:, None]
    share_of_old = torch.where(here, kept.unsqueeze(1), 1.0).prod(dim=2, keepdim=True)
    shares = here * share.unsqueeze(1)

    def mixed(old, new):
        return old * share_of_old.to(old.dtype) + shares.to(old.dtype) @ new.to(old.dtype)

    return Cache(mixed(cache.keys, keys), mixed(cache.values, values), new_words, ages)


def _choose_slots(cache: Cache, words: Tensor, written: Tensor, overwrite: bool):
    """Choose the slot that each token is written to.

    Args:
        cache, words, overwrite: arguments of :func:`write`.
        written: (B, T) True at tokens that are written to the cache.

    Returns:
        (B, T) slots; (B, T) share of the slot's old contents that remains after writing each token;
        (B, I) words and (B, I) ages of the I slots of the cache after the sentence.
    """
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
    """Compute the dot products of vectors with the keys of all slots.

    Args:
        cache: caches of B documents.
        vectors: (B, n, l) n vectors per document.

    Returns:
        (B, n, I) dot products, in at least single precision.
    """
    # Products of large vectors overflow in half precision.
    precise = at_least_single(vectors.dtype)
    return vectors.to(precise) @ cache.keys.to(precise).transpose(1, 2)


def probabilities(logits: Tensor, words: Tensor) -> Tensor:
    """Compute the probabilities of slots: a softmax over the slots that are not empty.

    Args:
        logits: (B, T, I) logits of the slots.
        words: (B, I) word of each slot, NO_WORD in empty slots.

    Returns:
        (B, T, I) probabilities, 0 for empty slots.
    """
    hidden = words.eq(NO_WORD).unsqueeze(1)
    logits = logits.masked_fill(hidden, torch.finfo(logits.dtype).min)
    return logits.softmax(dim=-1).masked_fill(hidden, 0.0)


def read(cache: Cache, queries: Tensor) -> Tuple[Tensor, Tensor]:
    """Read the caches with attention contexts as queries (Tu et al. 2018, equation 5).

    Args:
        cache: translation caches to read.
        queries: (B, T, l) attention contexts of T tokens, of the same size as the keys.

    Returns:
        (B, T, I) probabilities of the I slots, all 0 for an empty cache; and (B, T, d) averages of
        the slot values, weighted by these probabilities.
    """
    weights = probabilities(compare(cache, queries), cache.words).to(queries.dtype)
    return weights, weights @ cache.values
