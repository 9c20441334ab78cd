"""G-Transformer: attention to a token's sentence and, in the top layers, to the whole document.

Bao et al. (2021), "G-Transformer for Document-level Machine Translation".
"""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, base_architecture

from fairseq_docmt.errors import UserError
from fairseq_docmt.models.base import (
    CHECKPOINTING,
    LAYERDROP,
    PRUNING,
    DocumentTransformer,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.group import GroupTransformerDecoder, GroupTransformerEncoder

NEW_PARAMETERS = ("attn.document", "attn.gate")


@dataclass
class GTransformerConfig(FairseqDataclass):
    """Options of ``g_transformer``: how many top layers also attend to the whole document."""

    encoder_context_layers: int = field(
        default=2,
        metadata={
            "help": "number of top encoder layers that also attend to the whole source document; "
            "the others attend to the sentence only"
        },
    )
    decoder_context_layers: int = field(
        default=2,
        metadata={
            "help": "number of top decoder layers whose self-attention also attends to previous "
            "target sentences"
        },
    )
    cross_context_layers: int = field(
        default=2,
        metadata={
            "help": "number of top decoder layers whose cross attention also attends to the whole "
            "source document; the others attend to the source of the sentence"
        },
    )


def g_transformer(args):
    """Set missing options in ``args`` to their defaults, with the sizes of transformer base.

    Transformer base has 6 + 6 layers of width 512, 8 heads and a feed-forward width of 2048.
    """
    set_defaults(args, GTransformerConfig)
    base_architecture(args)


@register_model(
    "g_transformer",
    dataclass=options_dataclass(g_transformer, TransformerConfig, GTransformerConfig),
)
class GTransformerModel(DocumentTransformer):
    """Transformer whose lower layers attend to one sentence only (group attention).

    The top layers also attend to the whole document. The model can be finetuned from a transformer
    trained on single sentences.
    """

    architecture = staticmethod(g_transformer)
    unsupported = (*CHECKPOINTING, *LAYERDROP, *PRUNING)
    encoder_class, decoder_class = GroupTransformerEncoder, GroupTransformerDecoder
    new_parameters = NEW_PARAMETERS
    needs_several_sentences = True

    @classmethod
    def check_options(cls, args):
        """Check all options of the model.

        Raises:
            UserError: an option is invalid or not supported, or the number of layers that attend to
                the whole document exceeds the number of layers.
        """
        super().check_options(args)
        for part, layers in (
            ("encoder", args.encoder_layers),
            ("decoder", args.decoder_layers),
            ("cross", args.decoder_layers),
        ):
            number = getattr(args, f"{part}_context_layers")
            if not 0 <= number <= layers:
                raise UserError(
                    f"--{part}-context-layers is {number}, but must be from 0 to {layers}, the "
                    "number of layers"
                )
