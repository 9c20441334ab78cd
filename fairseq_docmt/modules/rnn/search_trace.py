"""What a decoder computed for the hypotheses of a beam search, found again by their tokens."""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor


class _Step(NamedTuple):
    """One step: former row of each row (None: the same), their tokens, and what was computed."""

    order: Optional[Tensor]
    tokens: Tensor
    values: Tuple[Tensor, ...]


class SearchTrace:
    """Remembers the steps of a search by reference; no values are copied before they are asked for.

    Args:
        sentences: B, that the search begins with; the rows of each are side by side.
    """

    def __init__(self, sentences: int):
        self.sentences = sentences
        self._steps: List[_Step] = []
        self._order: Optional[Tensor] = None

    def reorder(self, order: Tensor) -> None:
        """Rows have taken a new order since the last step."""
        self._order = order if self._order is None else self._order[order]

    def add(self, tokens: Tensor, *values: Tensor) -> None:
        """A step that has read (rows,) tokens, with values of (rows, ...)."""
        # The generator writes into its table of tokens.
        self._steps.append(_Step(self._order, tokens.clone(), values))
        self._order = None

    def find(self, tokens: Tensor, pad: int) -> Optional[List[Tensor]]:
        """Values (B, T, ...) of (B, T) right-padded tokens, zero at padding.

        None where a sentence is not among what was searched.
        """
        if not self._steps or tokens.size(1) > len(self._steps):
            return None
        rows = len(self._steps[0].tokens)
        owners = torch.arange(self.sentences, device=tokens.device)
        owners = owners.repeat_interleave(rows // self.sentences)
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
