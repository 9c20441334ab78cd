"""Sentences that follow each other in the rows of batches."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.document_state import DocumentState, select_rows


class Stream(NamedTuple):
    """Which rows go on where others ended.

    Attributes:
        starts: (rows,) rows that begin a document.
        lanes: documents side by side; row r goes on from row r - lanes.
        carry: what is carried into the first sentence of each lane, None if nothing is.
        copied: whether each lane has a copy that later sentences learn from: the first half of the
            lanes are sentences, the other their copies; ``doc_state`` has rows for the first half.
    """

    starts: Tensor
    lanes: int
    doc_state: Optional[DocumentState]
    copied: bool = False

    @classmethod
    def of(cls, src_tokens: Tensor, starts=None, lanes=None, doc_state=None) -> "Stream":
        """Of a batch of (rows, S) tokens; without ``starts`` each row is a document of its own."""
        rows = len(src_tokens)
        if starts is None:
            starts = torch.ones(rows, dtype=torch.bool, device=src_tokens.device)
        return cls(starts, lanes or rows, doc_state)

    def copies(self, *values: Tensor) -> Tuple[Tensor, ...]:
        """Rows of the copies (rows / 2, ...) of values (rows, ...)."""
        half = self.lanes // 2
        return tuple(x.unflatten(0, (-1, self.lanes))[:, half:].flatten(0, 1) for x in values)

    def sentences(self, *values: Tensor) -> Tuple[Tensor, ...]:
        """Rows of the sentences (rows / 2, ...) of values (rows, ...)."""
        half = self.lanes // 2
        return tuple(x.unflatten(0, (-1, self.lanes))[:, :half].flatten(0, 1) for x in values)

    def of_rows(self, rows: Tensor) -> "Stream":
        """Of some rows, while each row is a lane of its own."""
        doc_state = None if self.doc_state is None else select_rows(self.doc_state, rows)
        return Stream(self.starts.index_select(0, rows), len(rows), doc_state)

    def for_rows(self, rows: int) -> "Stream":
        """With a lane for each beam, where decoding without a state has several."""
        if rows == len(self.starts):
            return self
        sentences = torch.arange(len(self.starts), device=self.starts.device)
        return self.of_rows(sentences.repeat_interleave(rows // len(sentences)))


def side_by_side(values: Tensor, copies: Tensor, lanes: int) -> Tensor:
    """(2 * rows, ...) rows in which each step has its ``lanes`` sentences and then their copies."""
    steps = [x.unflatten(0, (-1, lanes)) for x in (values, copies)]
    return torch.cat(steps, dim=1).flatten(0, 1)
