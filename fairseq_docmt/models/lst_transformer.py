"""Transformer with long-short term self-attention.

Zhang et al. (2020), "Long-Short Term Masking Transformer", as compared with in Herold and Ney
(2023), section 3.2.
"""

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel, base_architecture

from fairseq_docmt.data.symbols import separator_index
from fairseq_docmt.errors import UserError
from fairseq_docmt.models._options import refuse_stock_options
from fairseq_docmt.modules.lst_decoder import LSTTransformerDecoder, LSTTransformerEncoder


@register_model("lst_transformer")
class LSTTransformerModel(TransformerModel):
    """Self-attention over the sentence and over everything, combined; cross attention is stock."""

    @classmethod
    def build_model(cls, args, task):
        """Build a model.

        Raises:
            UserError: options that make no sense here.
        """
        base_architecture(args)
        refuse_stock_options(args, "lst_transformer")
        if args.checkpoint_activations:
            raise UserError("--checkpoint-activations is not supported by lst_transformer")
        return super().build_model(args, task)

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        cfg = TransformerConfig.from_namespace(args)
        return LSTTransformerEncoder(cfg, src_dict, embed_tokens, separator_index(src_dict))

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        cfg = TransformerConfig.from_namespace(args)
        return LSTTransformerDecoder(cfg, tgt_dict, embed_tokens, separator_index(tgt_dict))


@register_model_architecture("lst_transformer", "lst_transformer")
def lst_transformer(args):
    """Base size: 6 + 6 layers of width 512, 8 heads, feed-forward networks of 2048."""
    base_architecture(args)
