"""Transformer with hierarchical attention to previous sentences.

Miculicich, Ram, Pappas and Henderson (2018), "Document-Level Neural Machine Translation with
Hierarchical Attention Networks".
"""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, base_architecture

from fairseq_docmt.errors import UserError
from fairseq_docmt.models.base import (
    CHECKPOINTING,
    DocumentTransformer,
    StreamModel,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.hierarchical import HANDecoder, HANEncoder

#: parameters that a transformer lacks; newly initialised in finetuning
NEW_PARAMETERS = (".hierarchical.",)


# fairseq reads these annotations at run time: keep ChoiceEnum here.
@dataclass
class HANConfig(FairseqDataclass):
    """Options that ``han_transformer`` adds to the transformer: side and amount of context."""

    context_side: ChoiceEnum(("both", "source", "target")) = field(
        default="both",
        metadata={
            "help": "states that attend to previous sentences: of the encoder (source), of the "
            "decoder (target) or both"
        },
    )
    context_sentences: int = field(
        default=3,
        metadata={"help": "number of previous sentences (authors' code: 3)", "at_least": 1},
    )
    no_context: bool = field(
        default=False, metadata={"help": "translate every sentence without context, as a control"}
    )


def han_transformer(args):
    """Set missing options in ``args`` to their defaults, with the sizes of transformer base.

    Transformer base has 6 + 6 layers of width 512, 8 heads and a feed-forward width of 2048.
    """
    set_defaults(args, HANConfig)
    base_architecture(args)


@register_model(
    "han_transformer", dataclass=options_dataclass(han_transformer, TransformerConfig, HANConfig)
)
class HANTransformerModel(StreamModel, DocumentTransformer):
    """Transformer with hierarchical attention (HAN) to previous sentences.

    HAN layers stand on top of the encoder, of the decoder or of both.
    """

    new_parameters = NEW_PARAMETERS
    unused_with = {"no_context": True}
    doc_state_options = ("context_sentences",)
    architecture = staticmethod(han_transformer)
    unsupported = CHECKPOINTING
    encoder_class, decoder_class = HANEncoder, HANDecoder

    @property
    def sentences_back(self):
        """Number of previous sentences: ``--context-sentences``, doubled if both sides have HAN.

        The states that the decoder attends to then depend on the context of their own sentences.
        """
        parts = (self.encoder, self.decoder)
        return sum(part.count for part in parts if part.hierarchical is not None)

    @classmethod
    def check_options(cls, args):
        """Check all options of the model.

        Raises:
            UserError: an option is invalid or not supported, or the decoder is to attend to
                previous sentences although its output is not as wide as its embeddings.
        """
        super().check_options(args)
        output_dim = int(args.decoder_output_dim)  # fairseq-train gives it as text
        if args.context_side != "source" and output_dim != args.decoder_embed_dim:
            raise UserError(
                f"--context-side {args.context_side} needs --decoder-output-dim "
                f"{output_dim} to be the same as --decoder-embed-dim "
                f"{args.decoder_embed_dim}; leave --decoder-output-dim out"
            )
