"""Encoder and decoder of ``lst_transformer``."""

from typing import NamedTuple, Optional, Tuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer
from fairseq_docmt.modules.shared.beam_rows import BeamRows
from fairseq_docmt.modules.shared.layer_kwargs import pass_layer_kwargs
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSourceEncoder, wrapped
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.window.lst_attention import CausalLSTAttention, EncoderLSTAttention
from fairseq_docmt.modules.window.window_attention import CrossWindowAttention
from fairseq_docmt.modules.window.window_decoder import WindowLayerState


class SentenceNumber(NamedTuple):
    """Current sentence number of each row, (rows,), from 0."""

    number: Tensor

    def reorder(self, rows: BeamRows) -> "SentenceNumber":
        """Reorder the rows."""
        return SentenceNumber(self.number.index_select(0, rows.order))

    def unshare_beams(self) -> "SentenceNumber":
        """Return the numbers unchanged: beams do not share them."""
        return self


class LSTEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with long-short term attention."""

    def build_self_attention(self, embed_dim, cfg):
        """See the base class."""
        options = (cfg.attention_dropout, cfg.separate_projections)
        return EncoderLSTAttention(embed_dim, cfg.encoder.attention_heads, *options)


class LSTTransformerEncoder(SharedSourceEncoder):
    """Transformer encoder that passes sentence numbers to its attention layers."""

    def build_encoder_layer(self, cfg):
        """See the base class."""
        return wrapped(LSTEncoderLayer(cfg), cfg)

    def forward(self, src_tokens, *args, **kwargs):
        """See the base class."""
        # A separator belongs to the sentence that it ends.
        ends = src_tokens.eq(self.separator).long()
        sentences = ends.cumsum(dim=1) - ends
        with pass_layer_kwargs([layer.self_attn for layer in self.layers], sentences=sentences):
            return super().forward(src_tokens, *args, **kwargs)


class LSTDecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with long-short term self-attention and full cross attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        options = (cfg.attention_dropout, cfg.separate_projections)
        return CausalLSTAttention(embed_dim, cfg.decoder.attention_heads, *options)

    def build_encoder_attention(self, embed_dim, cfg):
        """See the base class."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return CrossWindowAttention(embed_dim, heads, None, dropout, key_dim=cfg.encoder.embed_dim)

    def forward(
        self, x: Tensor, state: WindowLayerState, sentences: Tensor, padding: Optional[Tensor]
    ) -> Tuple[Tensor, WindowLayerState]:
        """Continue a state by several tokens, one row per sentence.

        Args:
            x: (B, T, C) input, right-padded.
            state: state before these tokens.
            sentences: (B, T) sentence number of each token.
            padding: (B, T) True at padding; None without padding.

        Returns:
            (B, T, C) output and the new state.
        """
        return self._after(x, state, sentences, padding, len(x))

    def source_weights(self, x, state, sentences, padding) -> Tensor:
        """Compute (B, T, S) cross attention weights, averaged over heads; see :meth:`forward`."""
        seen = {}

        def cross(y):
            nowhere = torch.zeros(y.shape[:2], dtype=torch.long, device=y.device)
            seen["weights"] = self.encoder_attn.weights(y, state.source, nowhere)
            return y

        self.sublayers(x, lambda y: self.self_attn(y, sentences, padding)[0], cross)
        return seen["weights"].mean(dim=1)

    def step(
        self, x: Tensor, state: WindowLayerState, sentences: Tensor
    ) -> Tuple[Tensor, WindowLayerState]:
        """Continue a state by one token per row.

        Args:
            x: (B * N, C) input; the N beams of a sentence are adjacent.
            state: state before this token.
            sentences: (B * N, 1) sentence number of each token.

        Returns:
            (B * N, C) output and the new state.
        """
        bsz = len(state.source.keys)
        x, state = self._after(x.unsqueeze(1), state, sentences, None, bsz)
        return x.squeeze(1), state

    def _after(self, x, state, sentences, padding, bsz):
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y, sentences, padding, state.recent)
            return y

        def cross(y):
            # The beams of a sentence share a source.  Without a window the alignment is unused.
            queries = y.unflatten(0, (bsz, -1)).flatten(1, 2)
            nowhere = torch.zeros(queries.shape[:2], dtype=torch.long, device=y.device)
            return self.encoder_attn(queries, state.source, nowhere).view_as(y)

        x = self.sublayers(x, causal, cross)
        return x, state._replace(**new)


class LSTTransformerDecoder(StatefulDecoder):
    """Transformer decoder with long-short term self-attention."""

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See the base class."""
        return wrapped(LSTDecoderLayer(cfg, no_encoder_attn), cfg)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """See the base class."""
        states, counter = self.init_state(encoder_out)
        inner_states, padding, attention = [x], self._padding(tokens), None
        sentences, _ = self._count(counter, tokens)
        for number, (layer, state) in enumerate(zip(self.layers, states)):
            if number == weights_of:
                attention = layer.source_weights(x, state, sentences, padding)
            x, _ = layer(x, state, sentences, padding)
            inner_states.append(x)
        return x, {"inner_states": inner_states, "attn": [attention]}

    def init_state(self, encoder_out):
        """See the base class."""
        source, padding, _ = batch_first_source(encoder_out)
        layers = [
            WindowLayerState(None, layer.encoder_attn.project_source(source, padding), 1)
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

    def step(self, x, tokens, state):
        """See the base class."""
        sentences, counter = self._count(state.rest, tokens.unsqueeze(1))
        layers = []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer.step(x, before, sentences)
            layers.append(after)
        return x, layers, counter, {}

    def _count(self, counter: SentenceNumber, tokens: Tensor):
        """Return (B, T) sentence numbers, which increase at separators, and the new counter."""
        sentences = counter.number.unsqueeze(1) + tokens.eq(self.separator).cumsum(dim=1)
        return sentences, SentenceNumber(sentences[:, -1])
