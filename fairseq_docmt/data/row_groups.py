"""Groups of batch rows of similar length, so that models spend little on padding."""

from typing import List, Optional, Sequence

import numpy as np
import torch
from torch import Tensor

#: maximum number of groups of a batch
MOST_GROUPS = 8
#: minimum number of rows for which grouping pays off
LEAST_ROWS = 16


def group_rows(
    src_lengths: Sequence[int],
    tgt_lengths: Sequence[int],
    lanes: int,
    left_pad_source: bool,
    loss: Tensor,
) -> Optional[dict]:
    """Group the rows of a batch by the lengths of their sources and of their targets.

    Args:
        src_lengths, tgt_lengths: number of tokens of each row.
        lanes: rows of one step; row r + lanes is computed after row r.
        left_pad_source: whether sources are padded on the left.
        loss: (rows, T) True at target positions with loss.

    Returns:
        See :class:`~fairseq_docmt.data.batch.RowGroupings`; None for a small batch.
    """
    if len(src_lengths) < LEAST_ROWS:
        return None
    source, target = np.asarray(src_lengths), np.asarray(tgt_lengths)
    by_source, by_target = groups_with_least_padding(source), groups_with_least_padding(target)
    return {
        "source": _grouping(by_source, source, lanes, left_pad_source),
        "target": _grouping(by_target, target, lanes, False),
        "attended": _grouping(by_target, source, lanes, left_pad_source),
        "tokens": loss.flatten().nonzero().squeeze(1),
    }


def groups_with_least_padding(lengths: np.ndarray, most: int = MOST_GROUPS) -> List[np.ndarray]:
    """Divide rows into at most ``most`` groups with the least total padding.

    Groups hold consecutive rows in the order of their lengths; the best ends are found by dynamic
    programming over the number of groups.
    """
    order = np.argsort(lengths, kind="stable")
    count, longest = len(lengths), lengths[order]
    first, end = np.arange(count + 1)[:, None], np.arange(count + 1)
    positions = (end - first) * np.concatenate([[0], longest])  # of a group, with its padding
    positions = np.where(first < end, positions, positions.max() * count + 1)
    best, ends = positions[0], []
    for _ in range(min(most, count) - 1):
        total = best[:, None] + positions
        ends.append(total.argmin(axis=0))
        best = total.min(axis=0)
    cuts = [count]
    for beginnings in reversed(ends):
        cuts.append(int(beginnings[cuts[-1]]))
    return np.split(order, sorted(cuts[1:]))


def _grouping(groups: List[np.ndarray], lengths: np.ndarray, lanes: int, left_padded: bool) -> dict:
    steps = [lengths[first : first + lanes] for first in range(0, len(lengths), lanes)]
    return {
        "rows": [torch.from_numpy(rows) for rows in groups],
        "lengths": [int(lengths[rows].max()) for rows in groups],
        "steps": [int(step.max()) for step in steps],
        "left_padded": left_padded,
    }
