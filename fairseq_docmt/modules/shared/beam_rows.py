"""How beam search moves rows: sentences that finish, and beams that change places within one."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor


class BeamRows(NamedTuple):
    """An order of rows, taken apart into sentences and the beams of each.

    Attributes:
        sentences: (bsz,) which sentences go on, None if all do in their old order.
        beams: rows of each sentence.
        local: (bsz, beams) former beam of each row within its sentence; None if beams begin.
        order: (rows,) former row of each row, for what beams do not share.
    """

    sentences: Optional[Tensor]
    beams: int
    local: Optional[Tensor]
    order: Tensor


def split_order(order: Tensor, bsz: int, beams: int) -> Optional[BeamRows]:
    """Take apart the new order of ``bsz * beams`` rows.

    Args:
        order: (rows,) former row of each row.
        bsz: sentences so far.
        beams: rows of each sentence so far; 1 before beam search begins.

    Returns:
        None if the order mixes rows of different sentences, so that they can share nothing.
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
