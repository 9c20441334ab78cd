"""Computation on groups of batch rows of similar length, which have little padding.

With groups, a decoder returns features of the N positions with loss only, (1, N, C), and the extra
output ``positions``: (N,) their indices in the flattened targets.
"""

from typing import List, Optional

import torch
import torch.nn.functional as F
from torch import Tensor


class RowGroups:
    """Rows of a batch in groups of similar length.

    What is computed equals what the whole batch gives, except at padding.

    Args:
        grouping: :class:`~fairseq_docmt.data.batch.RowGrouping`; None for all rows in one group.
    """

    def __init__(self, grouping: Optional[dict]):
        self._grouping = grouping

    @property
    def rows(self) -> Optional[List[Tensor]]:
        """Rows of each group; None for all rows in one group."""
        return None if self._grouping is None else self._grouping["rows"]

    def split(self, x: Optional[Tensor]) -> List[Optional[Tensor]]:
        """Cut (rows, T, ...) into groups of (rows of the group, its length, ...)."""
        if self._grouping is None:
            return [x]
        lengths = self._grouping["lengths"]
        if x is None:
            return [None] * len(lengths)
        return [y[:, self._columns(length)] for y, length in zip(self.select(x), lengths)]

    def select(self, x: Tensor) -> List[Tensor]:
        """Cut values of rows, (rows, ...), into groups."""
        if self._grouping is None:
            return [x]
        return [x.index_select(0, rows) for rows in self._grouping["rows"]]

    def join(self, parts: List[Tensor], length: int) -> Tensor:
        """Put groups of (rows of the group, its length, C) together as (rows, ``length``, C).

        Padding that the groups leave out becomes zero.
        """
        if self._grouping is None:
            return parts[0]
        gaps = (length - part.size(1) for part in parts)
        left = self._grouping["left_padded"]
        sides = ((0, 0, gap, 0) if left else (0, 0, 0, gap) for gap in gaps)
        padded = [F.pad(part, side) for part, side in zip(parts, sides)]
        return torch.cat(padded).index_select(0, self._grouping["order"])

    def steps(self) -> Optional[List[slice]]:
        """Return the columns that the rows of each step of a stream use; None for all columns."""
        if self._grouping is None:
            return None
        return [self._columns(length) for length in self._grouping["steps"]]

    def _columns(self, length: int) -> slice:
        return slice(-length, None) if self._grouping["left_padded"] else slice(length)


def at_loss(x: Tensor, groupings: Optional[dict]) -> Tensor:
    """Select the positions with loss.

    Args:
        x: (rows, T, C) values.
        groupings: the groups of the batch, which name the N positions; None for all positions.

    Returns:
        (1, N, C) values, or ``x`` without groups.
    """
    if groupings is None:
        return x
    return x.flatten(0, 1).index_select(0, groupings["tokens"]).unsqueeze(0)


def groups_of(groupings: Optional[dict], name: str) -> RowGroups:
    """Return the groups with this name of a batch, :class:`~fairseq_docmt.data.batch.RowGroupings`.

    Args:
        groupings: the groups of the batch; None for all rows in one group.
        name: ``source``, ``target`` or ``attended``.
    """
    return RowGroups(None if groupings is None else groupings[name])
