"""Transformer layers with random feature attention."""

from typing import Optional

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from fairseq_docmt.modules.rfa.random_feature_map import FeatureOptions
from fairseq_docmt.modules.rfa.rfa_attention import CausalRFA, CrossRFA, EncoderRFA
from fairseq_docmt.modules.rfa.sentence_gate import BIAS, SentenceGate
from fairseq_docmt.modules.shared.decoder_layer import DecoderLayer


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


class RFADecoderLayer(DecoderLayer):
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
