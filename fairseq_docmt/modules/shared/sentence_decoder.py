"""Encoder and decoder of transformers whose attention knows the sentences of a document."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer
from fairseq_docmt.modules.shared.beam_rows import BeamRows
from fairseq_docmt.modules.shared.full_attention import AttendedSource
from fairseq_docmt.modules.shared.layer_kwargs import pass_layer_kwargs
from fairseq_docmt.modules.shared.layer_state import AttentionLayerState
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSourceEncoder
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source


class SentenceNumber(NamedTuple):
    """Current sentence number of each row, (rows,), from 0."""

    number: Tensor

    def reorder(self, rows: BeamRows) -> "SentenceNumber":
        """Reorder the rows."""
        return SentenceNumber(self.number.index_select(0, rows.order))

    def unshare_beams(self) -> "SentenceNumber":
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


class SentenceDecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer whose self-attention takes sentence numbers.

    Subclasses create the attention modules. Cross attention is that of
    :class:`~fairseq_docmt.modules.shared.full_attention.SourceAttention`; if it depends on the
    sentences too, they override :meth:`project_source`, :meth:`cross` and :meth:`cross_weights`.
    """

    def project_source(self, source: Tensor, padding: Optional[Tensor], separators: Tensor):
        """Compute keys and values (:class:`AttendedSource`) of a source (B, S, C)."""
        return self.encoder_attn.project_source(source, padding)

    def cross(self, x: Tensor, source: AttendedSource, sentences: Tensor) -> Tensor:
        """Attend from (rows, T, C) target tokens of the given sentences to the source."""
        return self.encoder_attn(x, source)

    def cross_weights(self, x: Tensor, source: AttendedSource, sentences: Tensor) -> Tensor:
        """Compute (B, H, T, S) attention weights of :meth:`cross`."""
        return self.encoder_attn.weights(x, source)

    def forward(
        self, x: Tensor, state: AttentionLayerState, sentences: Tensor, padding: Optional[Tensor]
    ) -> Tuple[Tensor, AttentionLayerState]:
        """Continue a state by one or more tokens.

        Args:
            x: (rows, T, C) input, right-padded; the beams of a sentence are adjacent.
            state: state before these tokens.
            sentences: (rows, T) sentence number of each token.
            padding: (rows, T) True at padding; None without padding.

        Returns:
            (rows, T, C) output and the new state.
        """
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y, sentences, padding, state.recent)
            return y

        x = self.sublayers(x, causal, lambda y: self.cross(y, state.source, sentences))
        return x, state._replace(**new)

    def source_weights(self, x, state, sentences, padding) -> Tensor:
        """Compute (B, T, S) cross attention weights, averaged over heads; see :meth:`forward`."""
        seen = {}

        def cross(y):
            seen["weights"] = self.cross_weights(y, state.source, sentences)
            return y

        self.sublayers(x, lambda y: self.self_attn(y, sentences, padding)[0], cross)
        return seen["weights"].mean(dim=1)


class SentenceDecoder(StatefulDecoder):
    """Transformer decoder that passes sentence numbers to layers."""

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """See the base class."""
        states, counter = self.init_layers(encoder_out)
        inner_states, padding, attention = [x], self._padding(tokens), None
        sentences, _ = self._count(counter, tokens)
        for number, (layer, state) in enumerate(zip(self.layers, states)):
            if number == weights_of:
                attention = layer.source_weights(x, state, sentences, padding)
            x, _ = layer(x, state, sentences, padding)
            inner_states.append(x)
        return x, {"inner_states": inner_states, "attn": [attention]}

    def init_layers(self, encoder_out):
        """See the base class."""
        source, padding, separators = batch_first_source(encoder_out)
        layers = [
            AttentionLayerState(None, layer.project_source(source, padding, separators), 1)
            for layer in self.layers
        ]
        number = torch.zeros(len(source), dtype=torch.long, device=source.device)
        return layers, SentenceNumber(number)

    def read(self, x, tokens, state):
        """See the base class."""
        sentences, counter = self._count(state.rest, tokens)
        padding, layers = self._padding(tokens), []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer(x, before, sentences, padding)
            layers.append(after)
        return x, layers, counter, {}

    def _count(self, counter: SentenceNumber, tokens: Tensor):
        """Return (B, T) sentence numbers, which increase at separators, and the new counter."""
        sentences = counter.number.unsqueeze(1) + tokens.eq(self.separator).cumsum(dim=1)
        return sentences, SentenceNumber(sentences[:, -1])
