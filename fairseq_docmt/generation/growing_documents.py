"""Reuse of encoder and decoder states when the source of a document grows.

With windowed attention, encoder outputs far enough from the end of the source do not change when
sentences are appended.  They are kept, as is the decoder state after the target tokens that attend
only to these outputs.
"""

from typing import List, Optional

import torch
from torch import Tensor

from fairseq_docmt.generation import decoder_prefix
from fairseq_docmt.generation.decoder_prefix import DecoderPrefix


class GrowingDocuments:
    """Encoder and decoder states of the documents of a batch, for one model.

    Args:
        model: model for which :func:`~fairseq_docmt.models.interface.can_grow` holds.
    """

    def __init__(self, model):
        self.encoder, self.decoder = model.encoder, model.decoder
        self._source = None
        #: number of first source columns that have not changed since the last call in any row
        self._unchanged = 0
        #: prefix of the target tokens that do not depend on later source columns
        self._settled: Optional[DecoderPrefix] = None

    def encode(self, src_tokens: Tensor, known: Optional[List[int]]) -> dict:
        """Return the encoder output of the documents so far.

        Args:
            src_tokens: (B, S) padded on either side.
            known: row of each document in the last call, where its source was shorter; None if
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
        """Read (B, P) right-padded target tokens that begin with those of the last call."""
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
        """Return (B, n) right-padded tokens without the first ``count`` (B,) tokens of each row."""
        left = int((tokens.ne(self._pad).sum(1) - count).max())
        columns = count.unsqueeze(1) + torch.arange(left, device=tokens.device)
        outside = columns >= tokens.size(1)
        columns = columns.clamp(max=tokens.size(1) - 1)
        return tokens.gather(1, columns).masked_fill(outside, self._pad)
