"""Decoder of ``window_attn_transformer``."""

from typing import NamedTuple, Optional, Tuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer
from fairseq_docmt.modules.shared.beam_rows import BeamRows
from fairseq_docmt.modules.shared.full_attention import AttendedSource
from fairseq_docmt.modules.shared.recent_tokens import RecentTokens
from fairseq_docmt.modules.shared.shared_source_encoder import wrapped
from fairseq_docmt.modules.shared.stateful_decoder import KEY, StatefulDecoder, batch_first_source
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


class WindowLayerState(NamedTuple):
    """What a layer remembers: the latest target tokens (None before the first), and the source."""

    recent: Optional[RecentTokens]
    source: AttendedSource
    beams: int

    def reorder(self, rows: BeamRows) -> "WindowLayerState":
        """Sentences go on or end, beams begin or change places."""
        recent = None if self.recent is None else self.recent.reorder(rows)
        source = self.source
        if rows.sentences is not None:
            source = source.of_sentences(rows.sentences)
        return WindowLayerState(recent, source, rows.beams)

    def unshare_beams(self) -> "WindowLayerState":
        """The same with every beam as a sentence of its own."""
        owners = torch.arange(len(self.source.keys), device=self.source.keys.device)
        owners = owners.repeat_interleave(self.beams)
        return WindowLayerState(self.recent, self.source.of_sentences(owners), 1)


def _farthest(cfg) -> Optional[int]:
    """Distance of the farthest relative positions, None without them."""
    return cfg.attention_window if cfg.position == "relative" else None


class WindowEncoderLayer(TransformerEncoderLayerBase):
    """Stock encoder layer with attention within a window, or with relative positions."""

    def build_self_attention(self, embed_dim, cfg):
        return EncoderWindowAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            None if cfg.full_encoder_attention else cfg.attention_window,
            cfg.attention_dropout,
            relative=_farthest(cfg),
        )


class WindowDecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with attention within windows."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        return CausalWindowAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            None if cfg.full_decoder_attention else cfg.attention_window,
            cfg.attention_dropout,
            relative=_farthest(cfg),
        )

    def build_encoder_attention(self, embed_dim, cfg):
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
        """Whole sequences without a state.

        Args:
            x: (B, T, C) input.
            source: (B, S, C) encoder output.
            source_padding: (B, S) where padding stands, None if nowhere.
            centers: (B, T) source columns that targets are aligned to.
            padding: (B, T) where padding stands, None if nowhere.
        """
        memory = self.encoder_attn.project_source(source, source_padding)
        return self.sublayers(
            x,
            lambda y: self.self_attn(y, padding)[0],
            lambda y: self.encoder_attn(y, memory, centers),
        )

    def source_weights(self, x, source, source_padding, centers, padding) -> Tensor:
        """(B, T, S) attention over the source for the input of :meth:`forward`, mean over heads."""
        memory = self.encoder_attn.project_source(source, source_padding)
        seen = {}

        def cross(y):
            seen["weights"] = self.encoder_attn.weights(y, memory, centers)
            return y

        self.sublayers(x, lambda y: self.self_attn(y, padding)[0], cross)
        return seen["weights"].mean(dim=1)

    def read(
        self, x: Tensor, state: WindowLayerState, centers: Tensor, padding: Optional[Tensor]
    ) -> Tuple[Tensor, WindowLayerState]:
        """Right-padded tokens (B, T, C) after a state, one row for each sentence."""
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y, padding, state.recent, need_state=True)
            return y

        x = self.sublayers(x, causal, lambda y: self.encoder_attn(y, state.source, centers))
        return x, state._replace(**new)

    def step(
        self, x: Tensor, state: WindowLayerState, centers: Tensor
    ) -> Tuple[Tensor, WindowLayerState]:
        """One token for each row (B * N, C), the N beams of a sentence side by side."""
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y.unsqueeze(1), None, state.recent, need_state=True)
            return y.squeeze(1)

        x = self.sublayers(x, causal, lambda y: self.encoder_attn.step(y, state.source, centers))
        return x, state._replace(**new)


class WindowTransformerDecoder(StatefulDecoder):
    """Transformer decoder with attention within windows (Herold and Ney 2023).

    It averages the ratio of lengths of the documents it is trained on, or of the parts that they
    are cut into, for the ``linear`` alignment of decoding.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.alignment, self.train_alignment = cfg.alignment, cfg.train_alignment
        self.length_ratio = LengthRatio()

    @property
    def train_ratio(self) -> float:
        """Source tokens for each target token, average over training; 1 before it."""
        return self.length_ratio.value()

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return wrapped(WindowDecoderLayer(cfg, no_encoder_attn), cfg)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
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

    def init_state(self, encoder_out):
        source, padding, separators = batch_first_source(encoder_out)
        layers = [
            WindowLayerState(None, layer.encoder_attn.project_source(source, padding), 1)
            for layer in self.layers
        ]
        return layers, SourcePointer.init_state(SourceSentences.of(separators, padding))

    def read(self, x, tokens, state):
        centers, pointer = self._advance(state.rest, tokens)
        padding, layers = self._padding(tokens), []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer.read(x, before, centers, padding)
            layers.append(after)
        return x, layers, pointer, {}

    def step(self, x, tokens, state):
        centers, pointer = self._advance(state.rest, tokens.unsqueeze(1))
        layers = []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer.step(x, before, centers.squeeze(1))
            layers.append(after)
        return x, layers, pointer, {}

    def independent(self, tokens, encoder_out, incremental_state, final):
        """How many of the tokens read next no longer source changes.

        Args:
            tokens: (B, T) right-padded.
            encoder_out: encoder output.
            incremental_state: after the tokens before them.
            final: (B,) source columns, from the first, that stay as they are.

        Returns:
            (B,) tokens, from the first, that see these columns alone.
        """
        window = self.layers[0].encoder_attn.window
        if window is None:
            return torch.zeros_like(final)
        state = self._state(incremental_state, encoder_out, len(tokens))
        centers, _ = self._advance(state.rest, tokens)
        changes = (centers + window >= final.unsqueeze(1)) | tokens.eq(self.padding_idx)
        return changes.long().cumsum(dim=1).eq(0).sum(dim=1)

    def with_source(self, incremental_state, encoder_out, unchanged: int):
        """A state that goes on with a longer source, its tokens being :meth:`independent`.

        Args:
            incremental_state: whose source ended earlier.
            encoder_out: encoder output.
            unchanged: its first columns, in all rows, that are as they were.
        """
        state = incremental_state[KEY]["state"]
        source, padding, separators = batch_first_source(encoder_out)
        layers = []
        for layer, old in zip(self.layers, state.layers):
            new = layer.encoder_attn.project_source(source[:, unchanged:], None)
            keys, values = (
                torch.cat([x[:, :, :unchanged], y], dim=2) for x, y in zip(old.source[:2], new[:2])
            )
            layers.append(old._replace(source=AttendedSource(keys, values, padding)))
        pointer = state.rest._replace(source=SourceSentences.of(separators, padding))
        return {KEY: {"state": state._replace(layers=layers, rest=pointer)}}

    def _advance(self, pointer: SourcePointer, tokens: Tensor):
        ratio = self.train_ratio if self.alignment == "linear" else 1.0
        return pointer.advance(tokens, self.separator, self.padding_idx, self.alignment, ratio)
