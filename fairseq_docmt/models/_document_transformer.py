"""Construction of the transformers of this suite."""

from fairseq.models.transformer import TransformerConfig, TransformerModel

from fairseq_docmt.data.symbols import separator_index
from fairseq_docmt.models._options import ExtendedModel


class DocumentTransformer(ExtendedModel, TransformerModel):
    """Base of transformers with their own encoder and decoder, which know the separator.

    Attributes:
        encoder_class, decoder_class: classes of encoder and decoder.
    """

    encoder_class: type
    decoder_class: type

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        """Build the encoder."""
        cfg = TransformerConfig.from_namespace(args)
        return cls.encoder_class(cfg, src_dict, embed_tokens, separator_index(src_dict))

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        """Build the decoder."""
        cfg = TransformerConfig.from_namespace(args)
        return cls.decoder_class(cfg, tgt_dict, embed_tokens, separator_index(tgt_dict))
