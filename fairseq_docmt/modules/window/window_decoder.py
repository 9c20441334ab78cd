"""Decoder of ``window_attn_transformer``."""

from typing import Optional, Tuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer
from fairseq_docmt.modules.shared.full_attention import AttendedSource
from fairseq_docmt.modules.shared.incremental_state import store_state, stored_state
from fairseq_docmt.modules.shared.layer_state import AttentionLayerState
from fairseq_docmt.modules.shared.shared_source_encoder import wrapped
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.window.source_alignment import (
    LengthRatio,
    SourcePointer,
    SourceSentences,
    align_references,
)
from fairseq_docmt.modules.window.window_attention import (
    CausalWindowAttention,
    CrossWindowAttention,
    EncoderWindowAttention,
)


def _farthest(cfg) -> Optional[int]:
    """Return the maximum distance of relative positions, None for absolute ones."""
    return cfg.attention_window if cfg.position == "relative" else None


class WindowEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with window attention or relative positions."""

    def build_self_attention(self, embed_dim, cfg):
        """See the base class."""
        return EncoderWindowAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            None if cfg.full_encoder_attention else cfg.attention_window,
            cfg.attention_dropout,
            relative=_farthest(cfg),
        )


class WindowDecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with window attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        return CausalWindowAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            None if cfg.full_decoder_attention else cfg.attention_window,
            cfg.attention_dropout,
            relative=_farthest(cfg),
        )

    def build_encoder_attention(self, embed_dim, cfg):
        """See the base class."""
        return CrossWindowAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            None if cfg.full_cross_attention else cfg.attention_window,
            cfg.attention_dropout,
            key_dim=cfg.encoder.embed_dim,
        )

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        source_padding: Optional[Tensor],
        centers: Tensor,
        padding: Optional[Tensor],
    ) -> Tensor:
        """Compute whole sequences without a state.

        Args:
            x: (B, T, C) input.
            source: (B, S, C) encoder output.
            source_padding: (B, S) True at padding; None without padding.
            centers: (B, T) aligned source column of each target token.
            padding: (B, T) True at padding; None without padding.

        Returns:
            (B, T, C) output.
        """
        memory = self.encoder_attn.project_source(source, source_padding)
        return self.sublayers(
            x,
            lambda y: self.self_attn(y, padding)[0],
            lambda y: self.encoder_attn(y, memory, centers),
        )

    def source_weights(self, x, source, source_padding, centers, padding) -> Tensor:
        """Compute (B, T, S) cross attention weights, averaged over heads; see :meth:`forward`."""
        memory = self.encoder_attn.project_source(source, source_padding)
        seen = {}

        def cross(y):
            seen["weights"] = self.encoder_attn.weights(y, memory, centers)
            return y

        self.sublayers(x, lambda y: self.self_attn(y, padding)[0], cross)
        return seen["weights"].mean(dim=1)

    def read(
        self, x: Tensor, state: AttentionLayerState, centers: Tensor, padding: Optional[Tensor]
    ) -> Tuple[Tensor, AttentionLayerState]:
        """Continue a state by several tokens, one row per sentence.

        Args:
            x: (B, T, C) input, right-padded.
            state: state before these tokens.
            centers: (B, T) aligned source column of each token.
            padding: (B, T) True at padding; None without padding.

        Returns:
            (B, T, C) output and the new state.
        """
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y, padding, state.recent, need_state=True)
            return y

        x = self.sublayers(x, causal, lambda y: self.encoder_attn(y, state.source, centers))
        return x, state._replace(**new)

    def step(
        self, x: Tensor, state: AttentionLayerState, centers: Tensor
    ) -> Tuple[Tensor, AttentionLayerState]:
        """Continue a state by one token per row.

        Args:
            x: (B * N, C) input; the N beams of a sentence are adjacent.
            state: state before this token.
            centers: (B * N,) aligned source column of each token.

        Returns:
            (B * N, C) output and the new state.
        """
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y.unsqueeze(1), None, state.recent, need_state=True)
            return y.squeeze(1)

        x = self.sublayers(x, causal, lambda y: self.encoder_attn.step(y, state.source, centers))
        return x, state._replace(**new)


class WindowTransformerDecoder(StatefulDecoder):
    """Transformer decoder with window attention (Herold and Ney 2023).

    In training it averages the length ratio of documents, or of their training spans, for the
    ``linear`` alignment in decoding.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.alignment, self.train_alignment = cfg.alignment, cfg.train_alignment
        self.length_ratio = LengthRatio()

    @property
    def train_ratio(self) -> float:
        """Source tokens per target token, averaged over training; 1 before training."""
        return self.length_ratio.value()

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See the base class."""
        return wrapped(WindowDecoderLayer(cfg, no_encoder_attn), cfg)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """See the base class."""
        source, source_padding, separators = batch_first_source(encoder_out)
        sentences = SourceSentences.of(separators, source_padding)
        padding = self._padding(tokens)
        if self.training:
            lengths = sentences.last - sentences.first + 1
            self.length_ratio.count(lengths, tokens.ne(self.padding_idx).sum(dim=1))
        centers = align_references(
            tokens, sentences, self.separator, self.padding_idx, self.train_alignment
        )
        inner_states, attention = [x], None
        for number, layer in enumerate(self.layers):
            if number == weights_of:
                attention = layer.source_weights(x, source, source_padding, centers, padding)
            x = layer(x, source, source_padding, centers, padding)
            inner_states.append(x)
        return x, {"inner_states": inner_states, "attn": [attention]}

    def init_layers(self, encoder_out):
        """See the base class."""
        source, padding, separators = batch_first_source(encoder_out)
        layers = [
            AttentionLayerState(None, layer.encoder_attn.project_source(source, padding), 1)
            for layer in self.layers
        ]
        return layers, SourcePointer.init_state(SourceSentences.of(separators, padding))

    def read(self, x, tokens, state):
        """See the base class."""
        centers, pointer = self._advance(state.rest, tokens)
        padding, layers = self._padding(tokens), []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer.read(x, before, centers, padding)
            layers.append(after)
        return x, layers, pointer, {}

    def step(self, x, tokens, state):
        """See the base class."""
        centers, pointer = self._advance(state.rest, tokens.unsqueeze(1))
        layers = []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer.step(x, before, centers.squeeze(1))
            layers.append(after)
        return x, layers, pointer, {}

    def independent(self, tokens, encoder_out, incremental_state, final):
        """Count the leading tokens whose outputs do not change when the source grows.

        Args:
            tokens: (B, T) next tokens, right-padded.
            encoder_out: encoder output.
            incremental_state: state before these tokens.
            final: (B,) number of leading source columns that do not change any more.

        Returns:
            (B,) number of leading tokens that attend to these columns only.
        """
        window = self.layers[0].encoder_attn.window
        if window is None:
            return torch.zeros_like(final)
        state = self.current_state(incremental_state, encoder_out, len(tokens))
        centers, _ = self._advance(state.rest, tokens)
        changes = (centers + window >= final.unsqueeze(1)) | tokens.eq(self.padding_idx)
        return changes.long().cumsum(dim=1).eq(0).sum(dim=1)

    def with_source(self, incremental_state, encoder_out, unchanged: int):
        """Return the incremental state for a source that has become longer.

        All tokens read so far must be :meth:`independent` of the new part.

        Args:
            incremental_state: state with the shorter source.
            encoder_out: output of the encoder for the longer source.
            unchanged: number of leading source columns that are unchanged in all rows.
        """
        state = stored_state(incremental_state)
        source, padding, separators = batch_first_source(encoder_out)
        layers = []
        for layer, old in zip(self.layers, state.layers):
            new = layer.encoder_attn.project_source(source[:, unchanged:], None)
            keys, values = (
                torch.cat([x[:, :, :unchanged], y], dim=2) for x, y in zip(old.source[:2], new[:2])
            )
            layers.append(old._replace(source=AttendedSource(keys, values, padding)))
        pointer = state.rest._replace(source=SourceSentences.of(separators, padding))
        longer: dict = {}
        store_state(longer, state._replace(layers=layers, rest=pointer))
        return longer

    def _advance(self, pointer: SourcePointer, tokens: Tensor):
        ratio = self.train_ratio if self.alignment == "linear" else 1.0
        return pointer.advance(tokens, self.separator, self.padding_idx, self.alignment, ratio)
