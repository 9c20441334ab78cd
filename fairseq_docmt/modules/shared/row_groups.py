"""Computation on groups of batch rows of similar length, which have little padding."""

from typing import List, Optional

import torch
import torch.nn.functional as F
from torch import Tensor


class RowGroups:
    """One side of a batch in groups of rows of similar length.

    What is computed equals what the whole batch gives, except at padding.

    Args:
        grouping: :class:`~fairseq_docmt.data.batch.RowGrouping`; None for all rows in one group.
        side: ``source`` or ``target``.
    """

    def __init__(self, grouping: Optional[dict], side: str):
        self._grouping, self._side = grouping, side

    def split(self, x: Optional[Tensor]) -> List[Optional[Tensor]]:
        """Cut (rows, T, ...) into groups of (rows of the group, its length, ...)."""
        if self._grouping is None:
            return [x]
        if x is None:
            return [None] * len(self._grouping["rows"])
        lengths = self._grouping[self._side]
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
        sides = ((0, 0, gap, 0) if self._left_padded else (0, 0, 0, gap) for gap in gaps)
        padded = [F.pad(part, side) for part, side in zip(parts, sides)]
        return torch.cat(padded).index_select(0, self._grouping["order"])

    def steps(self) -> Optional[List[slice]]:
        """Return the columns that the rows of each step of a stream use; None for all columns."""
        if self._grouping is None:
            return None
        return [self._columns(length) for length in self._grouping[f"{self._side}_steps"]]

    def _columns(self, length: int) -> slice:
        return slice(-length, None) if self._left_padded else slice(length)

    @property
    def _left_padded(self) -> bool:
        return self._side == "source" and self._grouping["left_pad_source"]
