"""Reordering of batch rows by beam search, split into sentences and beams."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor


class BeamRows(NamedTuple):
    """New order of batch rows, split into sentences and the beams of each sentence.

    Attributes:
        sentences: (bsz,) former index of each remaining sentence, None if all stay in order.
        beams: number of beams of each sentence.
        local: (bsz, beams) former beam index within the sentence; None when beam search starts.
        order: (rows,) former row of each row, for values that beams do not share.
    """

    sentences: Optional[Tensor]
    beams: int
    local: Optional[Tensor]
    order: Tensor


def split_order(order: Tensor, bsz: int, beams: int) -> Optional[BeamRows]:
    """Split a new order of ``bsz * beams`` rows into sentences and beams.

    Args:
        order: (rows,) former row of each row.
        bsz: current number of sentences.
        beams: current number of beams of each sentence; 1 before beam search starts.

    Returns:
        The split order, or None if the rows of a sentence come from different sentences, so that
        they cannot share values.
    """
    sentences = torch.arange(bsz, device=order.device)
    if beams == 1:
        repeats = len(order) // bsz
        if repeats > 1 and len(order) == bsz * repeats:
            if torch.equal(order, sentences.repeat_interleave(repeats)):
                return BeamRows(None, repeats, None, order)
        same = torch.equal(order, sentences)
        local = torch.zeros_like(order).unsqueeze(1)
        return BeamRows(None if same else order, 1, local, order)
    if len(order) % beams != 0:
        return None
    grouped = order.view(-1, beams)
    owners = torch.div(grouped, beams, rounding_mode="floor")
    if not torch.equal(owners, owners[:, :1].expand_as(owners)):
        return None
    kept = owners[:, 0]
    same = torch.equal(kept, sentences)
    return BeamRows(None if same else kept, beams, grouped % beams, order)
