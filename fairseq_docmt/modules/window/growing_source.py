"""Incremental encoding of a growing source with window attention.

When sentences are appended, only the former ending (``</s>`` and what follows it) and the outputs
within reach of it change; all other encoder outputs are reused.
"""

from typing import List, NamedTuple, Optional

import torch
from torch import Tensor


class GrowingSource(NamedTuple):
    """Sources with the outputs of all encoder layers.

    Attributes:
        lengths: (B,) number of tokens of each source.
        levels: embeddings, then the output of each layer, (B, S, C), right-padded.
        final: (B,) number of leading output columns that further tokens cannot change.
    """

    lengths: Tensor
    levels: List[Tensor]
    final: Tensor

    def of_rows(self, order: Tensor) -> "GrowingSource":
        """Select sources by index."""
        if torch.equal(order, torch.arange(len(self.lengths), device=order.device)):
            return self
        levels = [level.index_select(0, order) for level in self.levels]
        return GrowingSource(self.lengths[order], levels, self.final[order])


def encode_growing(
    layers,
    reach: int,
    embedded: Tensor,
    lengths: Tensor,
    before: Optional[GrowingSource],
    ending: int = 1,
) -> GrowingSource:
    """Encode sources, reusing the encoding of their beginnings.

    The result equals encoding from scratch, up to rounding.

    Args:
        layers: encoder layers with window attention.
        reach: window size: tokens on each side that a layer attends to.
        embedded: (B, S, C) input of the first layer, right-padded.
        lengths: (B,) number of tokens of each source.
        before: encoding of the beginnings, whose ending may have changed; None for none.
        ending: number of last tokens that appended sentences change, in every source.
    """
    if before is None:
        changed = embedded.size(1)
    else:
        changed = int((lengths - before.lengths).max()) + ending
    levels = [embedded]
    for number, layer in enumerate(layers, start=1):
        changed = min(changed + reach, embedded.size(1))
        known = None if before is None else before.levels[number]
        levels.append(_with_new_end(layer, reach, levels[-1], lengths, known, changed))
    final = (lengths - ending - reach * len(levels[1:])).clamp(min=0)
    return GrowingSource(lengths, levels, final)


def _with_new_end(layer, reach, x, lengths, known: Optional[Tensor], changed: int) -> Tensor:
    """Compute a layer's output for the last ``changed`` tokens and reuse the rest.

    Args:
        layer, reach: encoder layer and its window size.
        x: (B, S, C) input, right-padded.
        lengths: (B,) number of tokens of each source.
        known: (B, S', C) earlier output, None for none.
        changed: number of tokens to compute.

    Returns:
        (B, S, C) output.
    """
    size = min(changed + reach, x.size(1))
    columns = lengths.unsqueeze(1) - size + torch.arange(size, device=x.device)
    outside = columns < 0
    end = x.gather(1, columns.clamp(min=0).unsqueeze(-1).expand(-1, -1, x.size(2)))
    found = layer(end.transpose(0, 1), outside if outside.any() else None)
    found = found[0] if isinstance(found, tuple) else found
    output = torch.zeros_like(x)
    if known is not None:
        # The longest earlier source may not be in this batch any more.
        length = min(known.size(1), x.size(1))
        output[:, :length] = known[:, :length]
    rows, places = (~outside[:, size - changed :]).nonzero(as_tuple=True)
    places = places + size - changed
    output[rows, columns[rows, places]] = found.transpose(0, 1)[rows, places]
    return output
