"""Transformer with long-short term self-attention.

Zhang et al. (2020), "Long-Short Term Masking Transformer", a baseline of Herold and Ney (2023),
section 3.2.
"""

import logging
from dataclasses import dataclass, field

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import base_architecture

from fairseq_docmt.errors import UserError
from fairseq_docmt.models._document_transformer import DocumentTransformer
from fairseq_docmt.models._options import refuse_stock_options, set_defaults
from fairseq_docmt.modules.window.lst_decoder import LSTTransformerDecoder, LSTTransformerEncoder

logger = logging.getLogger(__name__)


@dataclass
class LSTConfig(FairseqDataclass):
    """Options of ``lst_transformer``."""

    separate_projections: bool = field(
        default=False,
        metadata={
            "help": "separate query, key and value projections for attention to the sentence and "
            "attention to the whole document; default: shared, which keeps the number of "
            "parameters of Herold and Ney"
        },
    )


@register_model("lst_transformer")
class LSTTransformerModel(DocumentTransformer):
    """Transformer with self-attention to the sentence and to the whole document, in parallel."""

    config = LSTConfig
    encoder_class, decoder_class = LSTTransformerEncoder, LSTTransformerDecoder

    @classmethod
    def build_model(cls, args, task):
        """Build a model.

        Raises:
            UserError: if an option is not supported.
        """
        lst_transformer(args)
        refuse_stock_options(args, "lst_transformer")
        if args.checkpoint_activations:
            raise UserError("--checkpoint-activations is not supported by lst_transformer")
        return super().build_model(args, task)

    def upgrade_state_dict_named(self, state_dict, name):
        """See the base class; also converts the self-attention of a transformer.

        Both attentions begin as the one of the transformer and share its output projection, so
        that single sentences have the output of the transformer.
        """
        super().upgrade_state_dict_named(state_dict, name)
        sizes = {key: value.shape for key, value in self.state_dict().items()}
        output = ".self_attn.out_proj.weight"
        converted = [
            key[: -len(output)]
            for key, value in state_dict.items()
            if key.endswith(output) and sizes.get(key) == (len(value), 2 * value.size(1))
        ]
        for layer in converted:
            half = state_dict[f"{layer}{output}"] / 2
            state_dict[f"{layer}{output}"] = torch.cat([half, half], dim=1)
            for part in (f"{x}.{kind}" for x in "qkv" for kind in ("weight", "bias")):
                if f"{layer}.self_attn.long.{part}" in sizes:
                    own = state_dict[f"{layer}.self_attn.{part.replace('.', '_proj.')}"]
                    state_dict[f"{layer}.self_attn.long.{part}"] = own.clone()
        if converted:
            logger.info(
                "the attention of a transformer begins as both attentions of %d layers",
                len(converted),
            )


@register_model_architecture("lst_transformer", "lst_transformer")
def lst_transformer(args):
    """Set the base size: 6 + 6 layers of width 512, 8 heads, feed-forward width 2048."""
    set_defaults(args, LSTConfig)
    base_architecture(args)
