"""Transformer with attention limited to a window around the token or its aligned source token.

Herold and Ney (2023), "Improving Long Context Document-Level Machine Translation".
"""

import logging
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, base_architecture

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.models.base import (
    DocumentTransformer,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.window.alignment import ALIGNMENTS, TRAINING_ALIGNMENTS, LengthRatio
from fairseq_docmt.modules.window.window_decoder import WindowTransformerDecoder
from fairseq_docmt.modules.window.window_encoder import WindowTransformerEncoder

logger = logging.getLogger(__name__)

#: parameters and buffers that a transformer lacks; newly initialised in finetuning
NEW_PARAMETERS = ("self_attn.relative", "decoder.length_ratio")


#: options that switch off windows
NO_WINDOW = ("full_encoder_attention", "full_decoder_attention", "full_cross_attention")


# fairseq reads these annotations at run time: keep ChoiceEnum here.
@dataclass
class WindowAttentionConfig(FairseqDataclass):
    """Options of ``window_attn_transformer``: window, relative positions and alignment."""

    attention_window: int = field(
        default=20,
        metadata={
            "help": "number of tokens on each side of the alignment (paper: 10, 20, 30)",
            "at_least": 0,
        },
    )
    position: ChoiceEnum(("relative", "absolute")) = field(
        default="relative",
        metadata={
            "help": "relative: learned relative positions in self-attention, up to "
            "--attention-window, and no others; absolute: as in the transformer"
        },
    )
    alignment: ChoiceEnum(ALIGNMENTS) = field(
        default="sentence",
        metadata={
            "help": "alignment of target to source tokens in decoding: one to one within each "
            "sentence (sentence), by the average length ratio of the training data (linear), or "
            "one to one within the document (one-to-one)"
        },
    )
    train_alignment: ChoiceEnum(TRAINING_ALIGNMENTS) = field(
        default="linear",
        metadata={
            "help": "alignment of references in training, validation and scoring: by the length "
            "ratio of each pair (linear), or one to one within each sentence (sentence)"
        },
    )
    full_encoder_attention: bool = field(
        default=False,
        metadata={
            "help": "no window in encoder self-attention; relative positions still end at "
            "--attention-window"
        },
    )
    full_decoder_attention: bool = field(
        default=False,
        metadata={
            "help": "no window in decoder self-attention; relative positions still end at "
            "--attention-window"
        },
    )
    full_cross_attention: bool = field(
        default=False, metadata={"help": "no window in cross attention"}
    )


def window_attn_transformer(args):
    """Set missing options in ``args`` to their defaults, with the sizes of transformer base.

    Transformer base has 6 + 6 layers of width 512, 8 heads and a feed-forward width of 2048.
    """
    set_defaults(args, WindowAttentionConfig)
    base_architecture(args)


@register_model(
    "window_attn_transformer",
    dataclass=options_dataclass(window_attn_transformer, TransformerConfig, WindowAttentionConfig),
)
class WindowAttentionTransformerModel(DocumentTransformer):
    """Transformer with window attention; time and memory are linear in the sequence length."""

    new_parameters = NEW_PARAMETERS
    architecture = staticmethod(window_attn_transformer)
    encoder_class, decoder_class = WindowTransformerEncoder, WindowTransformerDecoder

    @classmethod
    def check_options(cls, args):
        """Check all options, and switch off absolute positions if relative ones are chosen.

        Raises:
            UserError: an option is invalid or not supported.
        """
        super().check_options(args)
        for name in ("encoder_layers", "decoder_layers"):
            if getattr(args, name) < 1:
                raise UserError(f"{flag(name)} must be at least 1, got {getattr(args, name)}")
        for name, default in (("alignment", "sentence"), ("train_alignment", "linear")):
            if args.full_cross_attention and getattr(args, name) != default:
                logger.warning("--full-cross-attention has no window for %s to place", flag(name))
        windows = [getattr(args, name) for name in NO_WINDOW]
        is_default = args.attention_window == WindowAttentionConfig.attention_window
        if all(windows) and args.position == "absolute" and not is_default:
            logger.warning("no effect without windows and relative positions: --attention-window")
        if args.position == "relative":
            args.no_token_positional_embeddings = True

    def upgrade_state_dict_named(self, state_dict, name):
        """Adapt the checkpoint of an older version or of a plain transformer to this model.

        Source and target token counts, which older checkpoints have, are converted to a length
        ratio. Learned absolute positions are left out if the model has none. Modules that the
        checkpoint lacks keep their initial values.
        """
        for part in ("encoder", "decoder"):
            key, absent = f"{part}.embed_positions", getattr(self, part).embed_positions is None
            if absent and state_dict.pop(f"{key}.weight", None) is not None:
                logger.info("%s of the checkpoint is left out: the model has none", key)
        totals = [state_dict.pop(f"decoder.{side}_tokens", None) for side in ("source", "target")]
        if None not in totals:
            ratio = LengthRatio.of_totals(*map(int, totals)).state_dict()
            state_dict.update({f"decoder.length_ratio.{key}": x for key, x in ratio.items()})
        super().upgrade_state_dict_named(state_dict, name)
