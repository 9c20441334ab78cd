"""Transformer with additional encoders for previous sentences.

Li et al. (2020), "Does Multi-Encoder Help? A Case Study on Context-Aware Neural Machine
Translation".
"""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, base_architecture

from fairseq_docmt.errors import UserError
from fairseq_docmt.models.base import (
    CHECKPOINTING,
    PRUNING,
    DocumentTransformer,
    StreamModel,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.multi_encoder import MultiEncoderDecoder, MultiEncoderEncoder

#: parameters that a transformer lacks; newly initialised in finetuning
NEW_PARAMETERS = (".context_attn", ".context_encoder.layer", ".context_encoder.embed_positions")


# fairseq reads these annotations at run time: keep ChoiceEnum here.
@dataclass
class MultiEncoderConfig(FairseqDataclass):
    """Options of ``multi_encoder_transformer``: which context it reads, and how."""

    context_side: ChoiceEnum(("source", "target", "both")) = field(
        default="source",
        metadata={"help": "side of the previous sentences to encode"},
    )
    context_sentences: int = field(
        default=1,
        metadata={"help": "number of previous sentences (authors' code: 1)", "at_least": 1},
    )
    context_layers: int = field(
        default=1, metadata={"help": "number of layers of each context encoder", "at_least": 1}
    )
    context_integration: ChoiceEnum(("outside", "inside")) = field(
        default="outside",
        metadata={
            "help": "outside: source states attend to the context before the decoder reads them; "
            "inside: the layers of the decoder attend to source and context in parallel"
        },
    )
    context_fusion: ChoiceEnum(("gate", "sum")) = field(
        default="gate",
        metadata={"help": "combine the result of attention to the context by a gate, or by a sum"},
    )
    share_context_encoder: bool = field(
        default=False,
        metadata={"help": "encode previous source sentences with the encoder of the current one"},
    )
    no_context: bool = field(
        default=False, metadata={"help": "translate every sentence without context, as a control"}
    )


def multi_encoder_transformer(args):
    """Set missing options in ``args`` to their defaults, with the sizes of transformer base.

    Transformer base has 6 + 6 layers of width 512, 8 heads and a feed-forward width of 2048.
    """
    set_defaults(args, MultiEncoderConfig)
    base_architecture(args)


@register_model(
    "multi_encoder_transformer",
    dataclass=options_dataclass(multi_encoder_transformer, TransformerConfig, MultiEncoderConfig),
)
class MultiEncoderTransformerModel(StreamModel, DocumentTransformer):
    """Transformer that encodes previous sentences separately from the current sentence."""

    new_parameters = NEW_PARAMETERS
    unused_with = {"no_context": True}
    doc_state_options = ("context_sentences",)
    architecture = staticmethod(multi_encoder_transformer)
    unsupported = (*CHECKPOINTING, *PRUNING)
    encoder_class, decoder_class = MultiEncoderEncoder, MultiEncoderDecoder

    @property
    def sentences_back(self):
        """Number of previous sentences, ``--context-sentences``."""
        return self.decoder.count

    @classmethod
    def check_options(cls, args):
        """Check all options of the model.

        Raises:
            UserError: an option is invalid or not supported, or ``--share-context-encoder`` is
                given with an option that contradicts it.
        """
        super().check_options(args)
        if args.share_context_encoder and args.context_side == "target":
            raise UserError(
                "--share-context-encoder is for previous source sentences, which --context-side "
                "target does not read; leave it out"
            )
        if args.share_context_encoder and args.context_side == "source" and args.context_layers > 1:
            raise UserError(
                f"--context-layers {args.context_layers} is for separate context encoders, which "
                "--share-context-encoder replaces; leave one of them out"
            )
        joined = args.share_context_encoder and args.context_sentences > 1
        if joined and args.encoder_learned_pos:
            raise UserError(
                "--share-context-encoder has learned positions for single sentences, not for "
                f"--context-sentences {args.context_sentences}; leave out --encoder-learned-pos"
            )
