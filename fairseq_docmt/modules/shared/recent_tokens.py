"""Cache of keys and values of the latest target tokens."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.beam_rows import BeamRows


class RecentTokens(NamedTuple):
    """Keys and values of previous tokens, right-aligned: the last column is the latest token.

    Attributes:
        keys, values: (rows, H, n, d).
        hidden: (rows, n) True at empty positions.
        sentences: (rows, n) sentence number of each token, None if not needed.
    """

    keys: Tensor
    values: Tensor
    hidden: Tensor
    sentences: Optional[Tensor]

    @classmethod
    def of(cls, keys, values, padding: Optional[Tensor], sentences: Optional[Tensor] = None):
        """Create a cache from the right-padded keys and values of one pass."""
        if padding is None:
            shape = (keys.size(0), keys.size(2))
            padding = torch.zeros(shape, dtype=torch.bool, device=keys.device)
        return cls(keys, values, padding, sentences)

    def followed_by(self, new: "RecentTokens") -> "RecentTokens":
        """Append new tokens."""
        sentences = None
        if self.sentences is not None:
            sentences = torch.cat([self.sentences, new.sentences], dim=1)
        return RecentTokens(
            torch.cat([self.keys, new.keys], dim=2),
            torch.cat([self.values, new.values], dim=2),
            torch.cat([self.hidden, new.hidden], dim=1),
            sentences,
        )

    def packed(self, padding: Optional[Tensor]) -> "RecentTokens":
        """Move the padding (rows, T) from the end of each row to its beginning."""
        if padding is None:
            return self
        columns = torch.arange(self.keys.size(2), device=padding.device)
        columns = columns - padding.sum(dim=1, keepdim=True)
        outside = columns < 0
        columns = columns.clamp(min=0)
        index = columns[:, None, :, None].expand_as(self.keys)
        return RecentTokens(
            self.keys.gather(2, index),
            self.values.gather(2, index),
            self.hidden.gather(1, columns) | outside,
            None if self.sentences is None else self.sentences.gather(1, columns),
        )

    def latest(self, size: Optional[int]) -> "RecentTokens":
        """Keep the last ``size`` tokens; all if None."""
        length = self.keys.size(2)
        if size is None or size >= length:
            return self
        start = length - size
        return RecentTokens(
            self.keys[:, :, start:],
            self.values[:, :, start:],
            self.hidden[:, start:],
            None if self.sentences is None else self.sentences[:, start:],
        )

    def reorder(self, rows: BeamRows) -> "RecentTokens":
        """Reorder the rows."""
        return RecentTokens(*(None if x is None else x.index_select(0, rows.order) for x in self))

    def unshare_beams(self) -> "RecentTokens":
        """Return the cache unchanged: beams do not share it."""
        return self
