"""Batches of consecutive sentences from several documents side by side."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.document_state import DocumentState, select_documents


class Stream(NamedTuple):
    """Layout of a batch of consecutive sentences; each lane is a sequence of documents.

    Attributes:
        starts: (rows,) True for rows that start a document.
        lanes: number of lanes; row r follows row r - lanes.
        doc_state: incoming document state of each lane, None for none.
    """

    starts: Tensor
    lanes: int
    doc_state: Optional[DocumentState]

    @classmethod
    def of(cls, src_tokens: Tensor, starts=None, lanes=None, doc_state=None) -> "Stream":
        """Create the stream of (rows, S) tokens; without ``starts`` each row is a document."""
        num_rows = len(src_tokens)
        if starts is None:
            starts = torch.ones(num_rows, dtype=torch.bool, device=src_tokens.device)
        return cls(starts, lanes or num_rows, doc_state)

    def previous(self, filled: Tensor, count: int) -> Tuple[Tensor, Tensor, Tensor]:
        """Find the previous ``count`` sentences of each row, the farthest first.

        Args:
            filled: (lanes,) number of sentences in the incoming document state, at most ``count``.
            count: number of sentences.

        Returns:
            (rows, count) index of each sentence among ``count * lanes`` incoming sentences, the
            farthest of all lanes first, followed by the rows of the batch; (rows, count) True if it
            belongs to the document of the row; and (lanes, count) the same after the batch, for the
            last ``count`` of all these sentences.
        """
        lanes, chunk = self.lanes, len(self.starts) // self.lanes
        back, known = torch.arange(count, 0, -1, device=filled.device), []
        for starts in self.starts.unflatten(0, (chunk, lanes)):
            filled = filled.masked_fill(starts, 0)
            known.append(back <= filled.unsqueeze(1))
            filled = (filled + 1).clamp(max=count)
        time = torch.arange(count, count + chunk, device=filled.device).view(-1, 1, 1)
        lane = torch.arange(lanes, device=filled.device).view(1, -1, 1)
        place = (time - back) * lanes + lane
        return place.flatten(0, 1), torch.cat(known), back <= filled.unsqueeze(1)

    def of_rows(self, rows: Tensor) -> "Stream":
        """Select rows by index; each row must be a lane of its own."""
        doc_state = None if self.doc_state is None else select_documents(self.doc_state, rows)
        return Stream(self.starts.index_select(0, rows), len(rows), doc_state)

    def for_rows(self, num_rows: int) -> "Stream":
        """Repeat each lane for its beams, when decoding without incremental state."""
        if num_rows == len(self.starts):
            return self
        sentences = torch.arange(len(self.starts), device=self.starts.device)
        return self.of_rows(sentences.repeat_interleave(num_rows // len(sentences)))
