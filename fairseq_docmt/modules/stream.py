"""Sentences that follow each other in the rows of batches."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_docmt.data.carry import Carry, select_rows


class Stream(NamedTuple):
    """Which rows go on where others ended.

    Attributes:
        starts: (rows,) rows that begin a document.
        lanes: documents side by side; row r goes on from row r - lanes.
        carry: what is carried into the first sentence of each lane, None if nothing is.
    """

    starts: Tensor
    lanes: int
    carry: Optional[Carry]

    @classmethod
    def of(cls, src_tokens: Tensor, starts=None, lanes=None, carry=None) -> "Stream":
        """Of a batch of (rows, S) tokens; without ``starts`` each row is a document of its own."""
        rows = len(src_tokens)
        if starts is None:
            starts = torch.ones(rows, dtype=torch.bool, device=src_tokens.device)
        return cls(starts, lanes or rows, carry)

    def of_rows(self, rows: Tensor) -> "Stream":
        """Of some rows, while each row is a lane of its own."""
        carry = None if self.carry is None else select_rows(self.carry, rows)
        return Stream(self.starts.index_select(0, rows), len(rows), carry)

    def for_rows(self, rows: int) -> "Stream":
        """With a lane for each beam, where decoding without a state has several."""
        if rows == len(self.starts):
            return self
        sentences = torch.arange(len(self.starts), device=self.starts.device)
        return self.of_rows(sentences.repeat_interleave(rows // len(sentences)))
