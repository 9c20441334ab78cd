"""Decoder layer of the transformer whose beams share the source."""

from typing import Optional, Tuple

from torch import Tensor

from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer
from fairseq_docmt.modules.shared.full_attention import CausalAttention, SourceAttention
from fairseq_docmt.modules.shared.layer_state import AttentionLayerState


class AttentionDecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with full causal attention and full cross attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        return CausalAttention(embed_dim, cfg.decoder.attention_heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """See the base class."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)

    def init_state(self, source: Tensor, padding: Optional[Tensor]) -> AttentionLayerState:
        """Return the state before the first token, for a source (B, S, C) with padding (B, S)."""
        return AttentionLayerState(None, self.encoder_attn.project_source(source, padding), 1)

    def cross(self, x: Tensor, state: AttentionLayerState) -> Tensor:
        """Attend from (rows, T, C) target tokens to the source."""
        return self.encoder_attn(x, state.source)

    def forward(self, x: Tensor, state: AttentionLayerState, weights=None) -> Tensor:
        """Compute whole sequences.

        Args:
            x: (rows, T, C) input, right-padded.
            state: state of each row before the first token.
            weights: list to which attention weights (rows, T, S) are appended; None for none.

        Returns:
            (rows, T, C) output.
        """

        def cross(y):
            if weights is not None:
                weights.append(self.encoder_attn.weights(y, state.source).mean(dim=1))
            return self.cross(y, state)

        return self.sublayers(x, lambda y: self.self_attn(y)[0], cross)

    def extend(
        self, x: Tensor, state: AttentionLayerState, padding: Optional[Tensor], between=None
    ) -> Tuple[Tensor, AttentionLayerState]:
        """Continue a state by one or more tokens.

        Args:
            x: (rows, T, C) input, right-padded; the beams of a sentence are adjacent.
            state: state before these tokens.
            padding: (rows, T) True at padding; None without padding.
            between: see :meth:`sublayers`.

        Returns:
            (rows, T, C) output and the new state.
        """
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y, padding, state.recent, need_state=True)
            return y

        x = self.sublayers(x, causal, lambda y: self.cross(y, state), between)
        return x, state._replace(**new)
