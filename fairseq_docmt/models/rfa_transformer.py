"""Transformer with random feature attention and a sentential gate.

Wu, Peng, Pappas and Smith (2022), "Modeling Context With Linear Attention for Scalable
Document-Level Translation".
"""

import logging
from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, base_architecture

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.models.base import (
    DocumentTransformer,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.encoder import SharedSourceEncoder, wrapped
from fairseq_docmt.modules.rfa.feature_map import FEATURE_MAPS
from fairseq_docmt.modules.rfa.rfa_attention import GATES
from fairseq_docmt.modules.rfa.rfa_decoder import RFAEncoderLayer, RFATransformerDecoder

logger = logging.getLogger(__name__)

#: parameters that a transformer or an ungated model lacks; newly initialised in finetuning
NEW_PARAMETERS = ("feature_map.temperature", "feature_map.pool", "gate.linear")
NEW_PARAMETERS += ("causal_matrices.pool", "cross_matrices.pool")


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class RFAConfig(FairseqDataclass):
    """Options of ``rfa_transformer``: random features, rescaling of keys, and sentential gate."""

    cross_feature_dim: int = field(
        default=256,
        metadata={
            "help": "number of random vectors per head in cross attention; the number of features "
            "is twice as large",
            "at_least": 1,
        },
    )
    causal_feature_dim: int = field(
        default=32,
        metadata={
            "help": "number of random vectors per head in causal attention; the number of features "
            "is twice as large",
            "at_least": 1,
        },
    )
    feature_map: ChoiceEnum(FEATURE_MAPS) = field(
        default="sincos",
        metadata={"help": "random features: sine and cosine, or positive (exponential)"},
    )
    random_matrices: int = field(
        default=64,
        metadata={
            "help": "number of random matrices of each attention to draw from in training; "
            "decoding uses the first ones, one per head (authors' code: 500, shared)"
        },
    )
    share_random_matrices: bool = field(
        default=False,
        metadata={
            "help": "share one pool of --random-matrices between the causal attention of all "
            "layers and another between their cross attention, without repetition within a forward "
            "pass (authors' code); default: a separate pool for each attention"
        },
    )
    same_matrices_in_decoding: bool = field(
        default=False,
        metadata={
            "help": "decode with the same random matrices in all layers (authors' code); needs "
            "--share-random-matrices; default: different ones in each layer",
            "needs": "share_random_matrices",
        },
    )
    denominator_floor: Optional[float] = field(
        default=None,
        metadata={
            "help": "minimum denominator of attention; default: 10 / feature dimension for sincos, "
            "1e-6 for positive features"
        },
    )
    no_key_rescale: bool = field(
        default=False,
        metadata={"help": "do not weight keys by their norm in cross attention"},
    )
    key_rescale_with_padding: bool = field(
        default=False,
        metadata={
            "help": "weight keys relative to the longest key of their batch row including padding, "
            "so that a row depends on its batch (authors' code); default: relative to the longest "
            "key without padding"
        },
    )
    rfa_encoder: bool = field(
        default=False,
        metadata={
            "help": "use random feature attention in the encoder too, with --cross-feature-dim"
        },
    )
    sentence_gate: ChoiceEnum(GATES) = field(
        default="none",
        metadata={
            "help": "sentential gate in causal attention: decay the past when a sentence starts, "
            "or average the past with the new sentence"
        },
    )
    shared_gate: bool = field(
        default=False,
        metadata={
            "help": "one gate for all heads of a layer (equation of the paper); default: one per "
            "head (authors' code)"
        },
    )
    gate_bias_init: Optional[float] = field(
        default=None,
        metadata={"help": "initial bias of the gate; default: 2 for decay, 0 for average"},
    )
    gate_cross_attention: bool = field(
        default=False, metadata={"help": "use a sentential gate in cross attention too"}
    )


class RFATransformerEncoder(SharedSourceEncoder):
    """Transformer encoder with softmax or (``--rfa-encoder``) random feature attention."""

    def build_encoder_layer(self, cfg):
        """Build an encoder layer, with random feature attention if ``--rfa-encoder`` is given."""
        if cfg.rfa_encoder:
            return wrapped(RFAEncoderLayer(cfg), cfg)
        return super().build_encoder_layer(cfg)


def rfa_transformer(args):
    """Set missing options in ``args`` to their defaults, with the sizes of transformer base.

    Transformer base has 6 + 6 layers of width 512, 8 heads and a feed-forward width of 2048.
    """
    set_defaults(args, RFAConfig)
    base_architecture(args)


@register_model(
    "rfa_transformer", dataclass=options_dataclass(rfa_transformer, TransformerConfig, RFAConfig)
)
class RFATransformerModel(DocumentTransformer):
    """Transformer with random feature attention in the decoder and optionally in the encoder."""

    new_parameters = NEW_PARAMETERS
    architecture = staticmethod(rfa_transformer)
    encoder_class, decoder_class = RFATransformerEncoder, RFATransformerDecoder

    @classmethod
    def check_options(cls, args):
        """Check all options of the model.

        Raises:
            UserError: an option is invalid or not supported, or does not fit the other options.
        """
        super().check_options(args)
        _check_pool(args)
        of_gates = {
            "gate_cross_attention": args.gate_cross_attention,
            "shared_gate": args.shared_gate,
            "gate_bias_init": args.gate_bias_init is not None,
        }
        for option, given in of_gates.items():
            if given and args.sentence_gate == "none":
                raise UserError(f"{flag(option)} needs --sentence-gate decay or average")
        if args.denominator_floor is not None and args.denominator_floor <= 0:
            raise UserError(f"--denominator-floor must be positive, not {args.denominator_floor}")
        if args.key_rescale_with_padding and args.no_key_rescale:
            raise UserError(
                "--key-rescale-with-padding contradicts --no-key-rescale; leave one out"
            )
        if args.rfa_encoder and args.attention_dropout:
            logger.warning("no effect with --rfa-encoder: --attention-dropout")

    @property
    def needs_several_sentences(self) -> bool:
        """Whether the decoder has sentential gates, which act only where a new sentence begins."""
        return any(layer.self_attn.gate is not None for layer in self.decoder.layers)


def _check_pool(args) -> None:
    """Check that there are enough random matrices to draw a different one for each head.

    With ``--share-random-matrices``, the heads of all decoder layers draw from the same pool;
    otherwise only the heads of one layer do.

    Raises:
        UserError: ``--random-matrices`` is too small.
    """
    heads = args.decoder_attention_heads
    if args.rfa_encoder:
        heads = max(heads, args.encoder_attention_heads)
    wanted, users = heads, f"{heads} attention heads"
    if args.share_random_matrices:
        wanted = max(heads, args.decoder_layers * args.decoder_attention_heads)
        users = f"the attention heads of all {args.decoder_layers} layers"
    if args.random_matrices < wanted:
        raise UserError(
            f"--random-matrices {args.random_matrices} is not enough for {users}; set "
            f"it to {wanted} or more"
        )


@register_model_architecture("rfa_transformer", "rfa_transformer_iwslt")
def rfa_transformer_iwslt(args):
    """Set missing options in ``args`` to the sizes of the paper's IWSLT models.

    These are the sizes of transformer base, except that the feed-forward width is 1024.
    """
    args.encoder_ffn_embed_dim = getattr(args, "encoder_ffn_embed_dim", 1024)
    args.decoder_ffn_embed_dim = getattr(args, "decoder_ffn_embed_dim", 1024)
    rfa_transformer(args)
