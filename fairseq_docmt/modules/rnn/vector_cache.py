"""Vectors that a frozen network computed of sentences, kept from batch to batch."""

from collections import OrderedDict
from typing import Callable, Iterable, List

import torch
from torch import Tensor


class VectorCache:
    """Vectors of sentences by their words, in the memory of the CPU.

    Nothing of it is saved in checkpoints.  Each process has its own.

    Args:
        most: number of vectors to keep; those not asked for longest are dropped first.
    """

    def __init__(self, most: int):
        self.most = most
        self.vectors: OrderedDict = OrderedDict()
        self.weights = None

    def __call__(
        self,
        sentences: List[Tensor],
        compute: Callable[[List[Tensor]], Tensor],
        weights: Iterable[Tensor],
    ) -> Tensor:
        """(rows, d) vectors of sentences, on the CPU.

        Args:
            sentences: words of each, on the CPU.
            compute: gives (rows, d) vectors of sentences that are not kept.
            weights: that it computes with.  When one is replaced or changed in place, all vectors
                are dropped; a change through ``weight.data`` is not seen.
        """
        weights = [(w.data_ptr(), w._version, w.dtype) for w in weights]
        if weights != self.weights:
            self.vectors.clear()
            self.weights = weights
        keys = [sentence.numpy().tobytes() for sentence in sentences]
        new = {key: s for key, s in zip(keys, sentences) if key not in self.vectors}
        if new:
            computed = compute(list(new.values())).cpu()
            # Copies: a row of the result would keep all of it in memory.
            self.vectors.update((key, row.clone()) for key, row in zip(new, computed))
        for key in keys:
            self.vectors.move_to_end(key)
        found = torch.stack([self.vectors[key] for key in keys])
        while len(self.vectors) > self.most:
            self.vectors.popitem(last=False)
        return found
