"""Transformer layers with random feature attention."""

from typing import NamedTuple, Optional, Tuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from fairseq_docmt.modules.rfa.random_feature_map import FeatureOptions
from fairseq_docmt.modules.rfa.rfa_attention import (
    CausalRFA,
    CausalState,
    CrossRFA,
    EncoderRFA,
    SourceFeatures,
)
from fairseq_docmt.modules.rfa.sentence_gate import BIAS, SentenceGate
from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer
from fairseq_docmt.modules.shared.beam_rows import BeamRows


class RFALayerState(NamedTuple):
    """Incremental state of a decoder layer.

    Attributes:
        causal: state of causal attention, None before the first token.
        source: source for cross attention.
    """

    causal: Optional[CausalState]
    source: SourceFeatures

    def reorder(self, rows: BeamRows) -> "RFALayerState":
        """Select sentences and reorder, repeat or drop their beams."""
        causal = None if self.causal is None else self.causal.reorder(rows)
        source = self.source
        if rows.sentences is not None:
            source = source.of_sentences(rows.sentences)
        return RFALayerState(causal, source)

    def unshare_beams(self) -> "RFALayerState":
        """Return the state with each beam as a separate sentence."""
        memory = self.causal.memory
        owners = torch.arange(memory.bsz, device=memory.norms.device)
        owners = owners.repeat_interleave(memory.beams)
        return RFALayerState(self.causal.unshare_beams(), self.source.of_sentences(owners))


def feature_options(cfg, random_vectors: int, shared_pool: bool = False) -> FeatureOptions:
    """Return the feature options for attention with ``random_vectors`` vectors per head."""
    floor = cfg.denominator_floor
    return FeatureOptions(random_vectors, cfg.feature_map, cfg.random_matrices, floor, shared_pool)


def _rescale(cfg) -> dict:
    return {"rescale": not cfg.no_key_rescale, "padding_counts": cfg.key_rescale_with_padding}


def _gate(cfg, embed_dim: int, heads: int) -> Optional[SentenceGate]:
    if cfg.sentence_gate == "none":
        return None
    bias = BIAS[cfg.sentence_gate] if cfg.gate_bias_init is None else cfg.gate_bias_init
    gates = 1 if cfg.shared_gate else heads
    return SentenceGate(embed_dim, gates, average=cfg.sentence_gate == "average", bias=bias)


class RFAEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with random feature attention."""

    def build_self_attention(self, embed_dim, cfg):
        """See the base class."""
        options = feature_options(cfg, cfg.cross_feature_dim)
        return EncoderRFA(embed_dim, cfg.encoder.attention_heads, options, **_rescale(cfg))


class RFADecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with random feature attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        heads = cfg.decoder.attention_heads
        options = feature_options(cfg, cfg.causal_feature_dim, cfg.share_random_matrices)
        return CausalRFA(embed_dim, heads, options, _gate(cfg, embed_dim, heads))

    def build_encoder_attention(self, embed_dim, cfg):
        """See the base class."""
        heads = cfg.decoder.attention_heads
        options = feature_options(cfg, cfg.cross_feature_dim, cfg.share_random_matrices)
        key_dim = cfg.encoder.embed_dim
        gate = _gate(cfg, key_dim, heads) if cfg.gate_cross_attention else None
        return CrossRFA(embed_dim, heads, options, gate, key_dim=key_dim, **_rescale(cfg))

    def project_source(
        self,
        source: Tensor,
        padding: Optional[Tensor],
        separators: Optional[Tensor],
        matrices: Optional[Tensor] = None,
    ) -> SourceFeatures:
        """Compute the source (B, S, C) for queries that come one by one."""
        memory = self.encoder_attn.summarise_source(source, padding, separators, matrices=matrices)
        return memory.for_few_queries()

    def forward(
        self,
        x: Tensor,
        source: Tensor,
        source_padding: Optional[Tensor],
        source_separators: Optional[Tensor],
        separators: Optional[Tensor],
        padding: Optional[Tensor],
        causal_matrices: Optional[Tensor] = None,
        cross_matrices: Optional[Tensor] = None,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Compute whole sequences without a state.

        Args:
            x: (B, T, C) input.
            source: (B, S, C) encoder output.
            source_padding, source_separators: (B, S) masks of padding and separators, or None.
            separators, padding: (B, T) masks of the target, or None.
            causal_matrices, cross_matrices: (H, d, D) random matrices, None to draw from the
                layer's own pools.

        Returns:
            (B, T, C) output and (H or 1, B, T) logarithm of the sentential gates or None.
        """
        memory = self.encoder_attn.summarise_source(
            source, source_padding, source_separators, x.size(1), cross_matrices
        )
        state = RFALayerState(None, memory)
        x, _, log_decay = self.read(x, state, separators, padding, causal_matrices, False)
        return x, log_decay

    def read(
        self,
        x: Tensor,
        state: RFALayerState,
        separators: Optional[Tensor],
        padding: Optional[Tensor],
        matrices: Optional[Tensor] = None,
        need_state: bool = True,
    ) -> Tuple[Tensor, Optional[RFALayerState], Optional[Tensor]]:
        """Continue a state by several tokens, one row per sentence.

        Args:
            x: (B, T, C) input.
            state: state before these tokens.
            separators, padding: (B, T) masks of separators and padding, or None.
            matrices: (H, d, D) random matrices of causal attention, or None.
            need_state: whether to return the new state.

        Returns:
            (B, T, C) output, new state or None, (H or 1, B, T) logarithm of the gates or None.
        """
        rest = {}

        def causal(y):
            y, rest["causal"], rest["log_decay"] = self.self_attn(
                y, separators, padding, state.causal, need_state, matrices
            )
            return y

        x = self.sublayers(x, causal, lambda y: self.encoder_attn(y, state.source))
        new_state = RFALayerState(rest["causal"], state.source) if need_state else None
        return x, new_state, rest["log_decay"]

    def step(
        self,
        x: Tensor,
        bsz: int,
        separators: Optional[Tensor],
        state: RFALayerState,
        matrices: Optional[Tensor] = None,
    ) -> Tuple[Tensor, RFALayerState]:
        """Continue a state by one token per row.

        Args:
            x: (B * N, C) input; the N beams of a sentence are adjacent.
            bsz: number of sentences B.
            separators: (B * N,) mask of separators, or None.
            state: state before this token.
            matrices: (H, d, D) random matrices of causal attention, or None.

        Returns:
            (B * N, C) output and the new state.
        """
        rest = {}

        def causal(y):
            y, rest["causal"] = self.self_attn.step(y, bsz, separators, state.causal, matrices)
            return y

        def cross(y):
            return self.encoder_attn(y.unflatten(0, (bsz, -1)), state.source).flatten(0, 1)

        x = self.sublayers(x, causal, cross)
        return x, RFALayerState(rest["causal"], state.source)
