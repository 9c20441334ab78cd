"""Cache of sentence vectors computed by a frozen network."""

from collections import OrderedDict
from typing import Callable, Iterable, List

import torch
from torch import Tensor


class VectorCache:
    """Least recently used cache of sentence vectors, in CPU memory.

    It is not saved in checkpoints. Each process has its own.

    Args:
        most: maximum number of vectors.
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
        """Return (rows, d) vectors of sentences, on the CPU.

        Args:
            sentences: words of each sentence, on the CPU.
            compute: function that computes (rows, d) vectors of sentences not in the cache.
            weights: parameters of that function. When one is replaced or changed in place, the
                cache is cleared; changes through ``weight.data`` are not detected.
        """
        weights = [(w.data_ptr(), w._version, w.dtype) for w in weights]
        if weights != self.weights:
            self.vectors.clear()
            self.weights = weights
        keys = [sentence.numpy().tobytes() for sentence in sentences]
        new = {key: s for key, s in zip(keys, sentences) if key not in self.vectors}
        if new:
            computed = compute(list(new.values())).cpu()
            # Copy rows: a view would keep the whole result in memory.
            self.vectors.update((key, row.clone()) for key, row in zip(new, computed))
        for key in keys:
            self.vectors.move_to_end(key)
        found = torch.stack([self.vectors[key] for key in keys])
        while len(self.vectors) > self.most:
            self.vectors.popitem(last=False)
        return found
