"""Groups of batch rows of similar length, so that models spend little on padding."""

from typing import Optional, Sequence

import torch
from torch import Tensor

#: groups of a batch at most, and rows of a group at least
MOST_GROUPS, LEAST_ROWS = 8, 8


def group_rows(
    src_lengths: Sequence[int],
    tgt_lengths: Sequence[int],
    lanes: int,
    left_pad_source: bool,
    loss: Tensor,
) -> Optional[dict]:
    """Group the rows of a batch by the sum of their lengths.

    Args:
        src_lengths, tgt_lengths: number of tokens of each row.
        lanes: number of rows that are computed at a time where a row depends on the one before.
        left_pad_source: whether sources are padded on the left.
        loss: (rows, T) True at target positions with loss.

    Returns:
        The groups (:class:`~fairseq_docmt.data.batch.RowGrouping`), or None for a small batch.
    """
    count = min(MOST_GROUPS, len(src_lengths) // LEAST_ROWS)
    if count < 2:
        return None
    totals = torch.tensor(src_lengths) + torch.tensor(tgt_lengths)
    rows = totals.argsort(stable=True).tensor_split(count)
    steps = torch.arange(len(totals)).split(lanes)
    grouping = {
        "rows": list(rows),
        "order": torch.cat(rows).argsort(),
        "left_pad_source": left_pad_source,
        "tokens": loss.flatten().nonzero().squeeze(1),
    }
    for side, lengths in (("source", src_lengths), ("target", tgt_lengths)):
        grouping[side] = [max(lengths[row] for row in group.tolist()) for group in rows]
        grouping[f"{side}_steps"] = [max(lengths[row] for row in step.tolist()) for step in steps]
    return grouping
