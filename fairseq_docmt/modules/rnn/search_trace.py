"""Record of the values computed in a beam search, looked up by hypothesis."""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor


class _Step(NamedTuple):
    """Step of a search.

    Attributes:
        order: (rows,) former row of each row, None if unchanged.
        tokens: (rows,) input tokens.
        values: recorded values, (rows, ...) each.
    """

    order: Optional[Tensor]
    tokens: Tensor
    values: Tuple[Tensor, ...]


class SearchTrace:
    """Record of the steps of a search, by reference: values are only copied by :meth:`find`.

    Args:
        sentences: number of sentences B; the beams of a sentence are adjacent.
    """

    def __init__(self, sentences: int):
        self.sentences = sentences
        self._steps: List[_Step] = []
        self._order: Optional[Tensor] = None

    def reorder(self, order: Tensor) -> None:
        """Record a new order of the rows after the last step."""
        self._order = order if self._order is None else self._order[order]

    def add(self, tokens: Tensor, *values: Tensor) -> None:
        """Record a step with input tokens (rows,) and values of (rows, ...)."""
        # The generator changes its tensor of tokens in place.
        self._steps.append(_Step(self._order, tokens.clone(), values))
        self._order = None

    def find(self, tokens: Tensor, pad: int) -> Optional[List[Tensor]]:
        """Look up the values of hypotheses.

        Args:
            tokens: (B, T) right-padded hypotheses.
            pad: padding index.

        Returns:
            Values (B, T, ...), zero at padding, or None if a hypothesis was not searched.
        """
        if not self._steps or tokens.size(1) > len(self._steps):
            return None
        num_rows = len(self._steps[0].tokens)
        owners = torch.arange(self.sentences, device=tokens.device)
        owners = owners.repeat_interleave(num_rows // self.sentences)
        same = torch.ones_like(owners, dtype=torch.bool)
        places = []
        for step, wanted in zip(self._steps, tokens.unbind(1)):
            if step.order is not None:
                owners, same = owners[step.order], same[step.order]
            same = same & step.tokens.eq(wanted[owners])
            place = torch.full_like(wanted, -1)
            place[owners[same]] = same.nonzero().squeeze(1)
            places.append(place)
        places = torch.stack(places, dim=1)
        padding = tokens.eq(pad)
        if (places.lt(0) & ~padding).any():
            return None
        found = []
        for number in range(len(self._steps[0].values)):
            steps = (step.values[number] for step in self._steps)
            picked = [v[at] for v, at in zip(steps, places.clamp(min=0).unbind(1))]
            value = torch.stack(picked, dim=1)
            at = padding.view(*padding.shape, *[1] * (value.dim() - 2))
            found.append(value.masked_fill(at, 0.0))
        return found
