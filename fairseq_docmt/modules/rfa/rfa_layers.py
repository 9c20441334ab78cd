"""Transformer layers whose attention uses random features."""

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
    """What a decoder layer remembers: of the target so far (None before it) and of the source."""

    causal: Optional[CausalState]
    source: SourceFeatures

    def reorder(self, rows: BeamRows) -> "RFALayerState":
        """Sentences go on or end, beams begin or change places."""
        causal = None if self.causal is None else self.causal.reorder(rows)
        source = self.source
        if rows.sentences is not None:
            source = source.of_sentences(rows.sentences)
        return RFALayerState(causal, source)

    def unshare_beams(self) -> "RFALayerState":
        """The same with every beam as a sentence of its own."""
        memory = self.causal.memory
        owners = torch.arange(memory.bsz, device=memory.norms.device)
        owners = owners.repeat_interleave(memory.beams)
        return RFALayerState(self.causal.unshare_beams(), self.source.of_sentences(owners))


def feature_options(cfg, random_vectors: int, shared_pool: bool = False) -> FeatureOptions:
    """Options of an attention with so many random vectors in each head."""
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
    """Stock encoder layer with random feature attention."""

    def build_self_attention(self, embed_dim, cfg):
        options = feature_options(cfg, cfg.cross_feature_dim)
        return EncoderRFA(embed_dim, cfg.encoder.attention_heads, options, **_rescale(cfg))


class RFADecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with random feature attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        heads = cfg.decoder.attention_heads
        options = feature_options(cfg, cfg.causal_feature_dim, cfg.share_random_matrices)
        return CausalRFA(embed_dim, heads, options, _gate(cfg, embed_dim, heads))

    def build_encoder_attention(self, embed_dim, cfg):
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
        """What the layer needs of a source (B, S, C) for queries that come one by one."""
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
        """Whole sequences without a state.

        Args:
            x: (B, T, C) input.
            source: (B, S, C) encoder output.
            source_padding, source_separators: (B, S), None where there are none or not needed.
            separators, padding: (B, T) likewise.
            causal_matrices, cross_matrices: (H, d, D) random matrices, None for those of the
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
        """Whole sequences (B, T, C) after what a state has read, one row for each sentence."""
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
        """One token for each row (B * N, C), the N beams of a sentence side by side."""
        rest = {}

        def causal(y):
            y, rest["causal"] = self.self_attn.step(y, bsz, separators, state.causal, matrices)
            return y

        def cross(y):
            return self.encoder_attn(y.unflatten(0, (bsz, -1)), state.source).flatten(0, 1)

        x = self.sublayers(x, causal, cross)
        return x, RFALayerState(rest["causal"], state.source)
