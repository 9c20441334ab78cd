"""Keys and values of the tokens that each row has read, or of the latest of them."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.beam_rows import BeamRows


class RecentTokens(NamedTuple):
    """Tokens side by side, the latest of every row in the last column.

    Attributes:
        keys, values: (rows, H, n, d).
        hidden: (rows, n) places that hold no token.
        sentences: (rows, n) number of the sentence of each token, None if that does not matter.
    """

    keys: Tensor
    values: Tensor
    hidden: Tensor
    sentences: Optional[Tensor]

    @classmethod
    def of(cls, keys, values, padding: Optional[Tensor], sentences: Optional[Tensor] = None):
        """Tokens of one pass, right-padded."""
        if padding is None:
            shape = (keys.size(0), keys.size(2))
            padding = torch.zeros(shape, dtype=torch.bool, device=keys.device)
        return cls(keys, values, padding, sentences)

    def followed_by(self, new: "RecentTokens") -> "RecentTokens":
        """These tokens and new ones behind them."""
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
        """The same with the padding (rows, T) behind each row moved to its front."""
        if padding is None or not padding.any():
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
        """The last ``size`` of them; all for None."""
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
        """Rows in a new order."""
        return RecentTokens(*(None if x is None else x.index_select(0, rows.order) for x in self))

    def unshare_beams(self) -> "RecentTokens":
        """Rows share nothing here."""
        return self
