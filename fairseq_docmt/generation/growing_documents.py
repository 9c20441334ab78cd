"""Documents whose source grows sentence by sentence, read by a model that sees only so far.

What the end of the source cannot change is kept: encoder outputs far enough from it, and the state
of the decoder after the target tokens that see these alone.
"""

from typing import List, Optional

import torch
from torch import Tensor

from fairseq_docmt.generation import decoder_prefix
from fairseq_docmt.generation.decoder_prefix import DecoderPrefix


class GrowingDocuments:
    """Documents of a batch, as one model has read them.

    Args:
        model: one that :func:`can_grow`.
    """

    def __init__(self, model):
        self.encoder, self.decoder = model.encoder, model.decoder
        self._source = None
        #: source columns that are as they were at the last call, in all rows
        self._unchanged = 0
        #: after the target tokens that no longer source changes
        self._settled: Optional[DecoderPrefix] = None

    def encode(self, src_tokens: Tensor, known: Optional[List[int]]) -> dict:
        """Encoder output of the documents so far.

        Args:
            src_tokens: (B, S) padded on either side.
            known: for each row its row at the last call, where its source ended earlier; None if
                all documents are new.
        """
        before = None
        if known is None:
            self._settled = None
        else:
            order = torch.tensor(known, device=src_tokens.device)
            before = self._source.of_rows(order)
            self._unchanged = int(before.final.min())
            if self._settled is not None:
                self._settled = decoder_prefix.take_rows(self.decoder, self._settled, order)
        output, self._source = self.encoder.encode_further(src_tokens, before)
        return output

    def read(self, tokens: Tensor, encoder_out: dict) -> DecoderPrefix:
        """Read (B, P) right-padded target tokens, which begin with those of the last call."""
        settled = self._settled
        if settled is not None:
            state = self.decoder.with_source(settled.state, encoder_out, self._unchanged)
            settled = settled._replace(state=state)
            tokens = self._without(tokens, settled.tokens.ne(self._pad).sum(1))
        state = {} if settled is None else settled.state
        count = self.decoder.independent(tokens, encoder_out, state, self._source.final)
        # The last token of each row is read below.
        count = torch.minimum(count, tokens.ne(self._pad).sum(1) - 1)
        if count.any():
            columns = torch.arange(int(count.max()), device=tokens.device)
            new = tokens[:, : len(columns)].masked_fill(columns >= count.unsqueeze(1), self._pad)
            settled = decoder_prefix.read(self.decoder, encoder_out, new, settled)
            tokens = self._without(tokens, count)
        self._settled = settled
        return decoder_prefix.read(self.decoder, encoder_out, tokens, settled)

    @property
    def _pad(self) -> int:
        return self.decoder.padding_idx

    def _without(self, tokens: Tensor, count: Tensor) -> Tensor:
        """(B, n) right-padded tokens but for the first of each row, (B,) of them."""
        left = int((tokens.ne(self._pad).sum(1) - count).max())
        columns = count.unsqueeze(1) + torch.arange(left, device=tokens.device)
        outside = columns >= tokens.size(1)
        columns = columns.clamp(max=tokens.size(1) - 1)
        return tokens.gather(1, columns).masked_fill(outside, self._pad)
