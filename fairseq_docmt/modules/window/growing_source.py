"""Encodes a source that grows at its end, by layers whose attention reaches only so far.

A token that was the last one, or stands within reach of it, gets another output when more follow;
all others keep theirs.
"""

from typing import List, NamedTuple, Optional

import torch
from torch import Tensor


class GrowingSource(NamedTuple):
    """Sources as a stack of encoder layers sees them.

    Attributes:
        lengths: (B,) tokens of each.
        levels: embeddings, then the output of each layer, (B, S, C), right-padded.
        final: (B,) output columns, from the first, that stay as they are when tokens follow.
    """

    lengths: Tensor
    levels: List[Tensor]
    final: Tensor

    def of_rows(self, order: Tensor) -> "GrowingSource":
        """Some of the sources, by index."""
        if torch.equal(order, torch.arange(len(self.lengths), device=order.device)):
            return self
        levels = [level.index_select(0, order) for level in self.levels]
        return GrowingSource(self.lengths[order], levels, self.final[order])


def encode_growing(
    layers, reach: int, embedded: Tensor, lengths: Tensor, before: Optional[GrowingSource]
) -> GrowingSource:
    """Encode sources of which the beginnings may be known.

    Args:
        layers: stock encoder layers whose attention is as wide as ``reach``.
        reach: tokens on each side that a layer sees.
        embedded: (B, S, C) input of the first layer, right-padded.
        lengths: (B,) tokens of each source.
        before: the beginnings, whose last token is another one now; None if there are none.

    Returns:
        The same, up to rounding, as if all were encoded anew.
    """
    if before is None:
        changed = embedded.size(1)
    else:
        changed = int((lengths - before.lengths).max()) + 1
    levels = [embedded]
    for number, layer in enumerate(layers, start=1):
        changed = min(changed + reach, embedded.size(1))
        known = None if before is None else before.levels[number]
        levels.append(_with_new_end(layer, reach, levels[-1], lengths, known, changed))
    final = (lengths - 1 - reach * len(levels[1:])).clamp(min=0)
    return GrowingSource(lengths, levels, final)


def _with_new_end(layer, reach, x, lengths, known: Optional[Tensor], changed: int) -> Tensor:
    """(B, S, C) output of a layer for x (B, S, C), computed for the last ``changed`` tokens."""
    size = min(changed + reach, x.size(1))
    columns = lengths.unsqueeze(1) - size + torch.arange(size, device=x.device)
    outside = columns < 0
    end = x.gather(1, columns.clamp(min=0).unsqueeze(-1).expand(-1, -1, x.size(2)))
    found = layer(end.transpose(0, 1), outside if outside.any() else None)
    found = found[0] if isinstance(found, tuple) else found
    output = torch.zeros_like(x)
    if known is not None:
        # The longest source may be one that has ended.
        length = min(known.size(1), x.size(1))
        output[:, :length] = known[:, :length]
    rows, places = (~outside[:, size - changed :]).nonzero(as_tuple=True)
    places = places + size - changed
    output[rows, columns[rows, places]] = found.transpose(0, 1)[rows, places]
    return output
