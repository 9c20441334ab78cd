"""Encoder and decoder of ``g_transformer``."""

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from fairseq_docmt.modules.group.group_attention import (
    CausalGroupAttention,
    EncoderGroupAttention,
    SourceGroupAttention,
)
from fairseq_docmt.modules.shared.decoder_layer import DecoderLayer
from fairseq_docmt.modules.shared.sentence_decoder import SentenceDecoder, SentenceEncoder
from fairseq_docmt.modules.shared.shared_source_encoder import wrapped


class GroupEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with group attention."""

    def build_self_attention(self, embed_dim, cfg):
        """See the base class."""
        heads = cfg.encoder.attention_heads
        return EncoderGroupAttention(embed_dim, heads, cfg.attention_dropout)


class GroupTransformerEncoder(SentenceEncoder):
    """Transformer encoder with group attention, combined attention in the top layers."""

    _layers_built = 0

    def build_encoder_layer(self, cfg):
        """See the base class."""
        layer = GroupEncoderLayer(cfg)
        if cfg.encoder.layers - self._layers_built <= cfg.encoder_context_layers:
            layer.self_attn.combine()
        self._layers_built += 1
        return wrapped(layer, cfg)


class GroupDecoderLayer(DecoderLayer):
    """Decoder layer with group attention to the target and to the source."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        heads = cfg.decoder.attention_heads
        return CausalGroupAttention(embed_dim, heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """See the base class."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceGroupAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)


class GroupTransformerDecoder(SentenceDecoder):
    """Transformer decoder with group attention, combined attention in the top layers."""

    layer_class = GroupDecoderLayer
    _layers_built = 0

    def layer_built(self, layer):
        """Add attention to the document in the top layers."""
        top = self.cfg.decoder.layers - self._layers_built
        if top <= self.cfg.decoder_context_layers:
            layer.self_attn.combine()
        if top <= self.cfg.cross_context_layers:
            layer.encoder_attn.combine()
        self._layers_built += 1
