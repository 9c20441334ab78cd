"""Encoder and decoder of ``lst_transformer``."""

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from fairseq_docmt.modules.shared.decoder_layer import DecoderLayer
from fairseq_docmt.modules.shared.sentence_decoder import SentenceDecoder, SentenceEncoder
from fairseq_docmt.modules.shared.shared_source_encoder import wrapped
from fairseq_docmt.modules.window.lst_attention import CausalLSTAttention, EncoderLSTAttention


class LSTEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with long-short term attention."""

    def build_self_attention(self, embed_dim, cfg):
        """See the base class."""
        options = (cfg.attention_dropout, cfg.separate_projections)
        return EncoderLSTAttention(embed_dim, cfg.encoder.attention_heads, *options)


class LSTTransformerEncoder(SentenceEncoder):
    """Transformer encoder with long-short term self-attention."""

    def build_encoder_layer(self, cfg):
        """See the base class."""
        return wrapped(LSTEncoderLayer(cfg), cfg)


class LSTDecoderLayer(DecoderLayer):
    """Decoder layer with long-short term self-attention and full cross attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        options = (cfg.attention_dropout, cfg.separate_projections)
        return CausalLSTAttention(embed_dim, cfg.decoder.attention_heads, *options)


class LSTTransformerDecoder(SentenceDecoder):
    """Transformer decoder with long-short term self-attention."""

    layer_class = LSTDecoderLayer
