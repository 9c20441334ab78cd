"""Construction of the transformers of this package."""

from fairseq.models.transformer import TransformerConfig, TransformerModel

from fairseq_docmt.data.symbols import separator_index
from fairseq_docmt.errors import UserError
from fairseq_docmt.models._options import ExtendedModel


class DocumentTransformer(ExtendedModel, TransformerModel):
    """Base of transformers with their own encoder and decoder, which know the separator.

    Attributes:
        encoder_class, decoder_class: classes of encoder and decoder.
    """

    encoder_class: type
    decoder_class: type

    @classmethod
    def build_model(cls, args, task):
        """Build a model.

        Raises:
            UserError: if attention heads do not divide the width of their side.
        """
        for side in ("encoder", "decoder"):
            heads, width = (getattr(args, f"{side}_{x}") for x in ("attention_heads", "embed_dim"))
            if heads < 1 or width % heads != 0:
                raise UserError(
                    f"--{side}-attention-heads {heads} must divide --{side}-embed-dim {width}; "
                    "change one of them"
                )
        return super().build_model(args, task)

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
