"""Encoder and decoder of transformers whose attention knows the sentences of a document."""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.beam_rows import BeamRows
from fairseq_docmt.modules.shared.layer_kwargs import pass_layer_kwargs
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSourceEncoder
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source


class SentenceNumber(NamedTuple):
    """Current sentence number of each row, (rows,), from 0."""

    number: Tensor

    def reorder(self, rows: BeamRows) -> "SentenceNumber":
        """Reorder the rows."""
        return SentenceNumber(self.number.index_select(0, rows.order))

    def unshare_beams(self, owners: Tensor) -> "SentenceNumber":
        """Return the numbers unchanged: beams do not share them."""
        return self


def source_sentences(separators: Tensor) -> Tensor:
    """Count the sentences before each token of a source.

    Args:
        separators: (B, S) True at ``<sep>``, which belongs to the sentence that it ends.

    Returns:
        (B, S) sentence number of each token, from 0.
    """
    ends = separators.long()
    return ends.cumsum(dim=1) - ends


class SentenceEncoder(SharedSourceEncoder):
    """Transformer encoder that passes sentence numbers to its attention layers."""

    def forward(self, src_tokens, *args, **kwargs):
        """See the base class."""
        sentences = source_sentences(src_tokens.eq(self.separator))
        with pass_layer_kwargs([layer.self_attn for layer in self.layers], sentences=sentences):
            return super().forward(src_tokens, *args, **kwargs)


class SentenceDecoder(StatefulDecoder):
    """Transformer decoder that passes sentence numbers to layers."""

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """See the base class."""
        source, padding, separators = batch_first_source(encoder_out)
        sentences, _ = self._count(_first_sentences(source), tokens)
        (x,), _, weights = self.run_layers(
            [x],
            lambda number, layer, _: [layer.init_state(source, padding, separators=separators)],
            weights_of=weights_of,
            padding=self._padding(tokens),
            sentences=sentences,
        )
        return x, {"attn": weights or [None]}

    def init_layers(self, encoder_out):
        """See the base class."""
        layers, _ = super().init_layers(encoder_out)
        return layers, _first_sentences(batch_first_source(encoder_out)[0])

    def read(self, x, tokens, state):
        """See the base class."""
        sentences, counter = self._count(state.rest, tokens)
        x, layers = self.extend_layers(x, state, self._padding(tokens), sentences=sentences)
        return x, layers, counter, {}

    def _count(self, counter: SentenceNumber, tokens: Tensor):
        """Return (B, T) sentence numbers, which increase at separators, and the new counter."""
        sentences = counter.number.unsqueeze(1) + tokens.eq(self.separator).cumsum(dim=1)
        return sentences, SentenceNumber(sentences[:, -1])


def _first_sentences(source: Tensor) -> SentenceNumber:
    return SentenceNumber(torch.zeros(len(source), dtype=torch.long, device=source.device))
