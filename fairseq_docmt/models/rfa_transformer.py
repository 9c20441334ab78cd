"""Transformer with random feature attention and a sentential gate.

Wu, Peng, Pappas and Smith (2022), "Modeling Context With Linear Attention for Scalable
Document-Level Translation".
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig, TransformerModel, base_architecture

from fairseq_docmt.data.symbols import separator_index
from fairseq_docmt.errors import UserError
from fairseq_docmt.models._options import (
    fill_missing,
    mark_new,
    refuse_stock_options,
    set_defaults,
)
from fairseq_docmt.modules.rfa.random_feature_map import FEATURE_MAPS
from fairseq_docmt.modules.rfa.rfa_decoder import RFATransformerDecoder
from fairseq_docmt.modules.rfa.rfa_layers import RFAEncoderLayer
from fairseq_docmt.modules.rfa.sentence_gate import GATES
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSourceEncoder, wrapped

#: parameters that a transformer or an ungated model lacks; they start anew in finetuning
NEW_PARAMETERS = ("feature_map.temperature", "feature_map.pool", "gate.linear")
NEW_PARAMETERS += ("causal_matrices.pool", "cross_matrices.pool")


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class RFAConfig(FairseqDataclass):
    cross_feature_dim: int = field(
        default=256,
        metadata={
            "help": "random vectors of each head in cross attention; it has twice as many features"
        },
    )
    causal_feature_dim: int = field(
        default=32,
        metadata={
            "help": "random vectors of each head in causal attention; it has twice as many features"
        },
    )
    feature_map: ChoiceEnum(FEATURE_MAPS) = field(
        default="sincos",
        metadata={"help": "random features: of sine and cosine, or positive ones"},
    )
    random_matrices: int = field(
        default=64,
        metadata={
            "help": "random matrices of each attention to draw from in training; decoding uses "
            "the first of them, one for each head (code of the paper: 500, shared)"
        },
    )
    share_random_matrices: bool = field(
        default=False,
        metadata={
            "help": "one pool of --random-matrices for the causal attentions of all layers and one "
            "for the cross attentions, no matrix twice in a pass of training (code of the paper); "
            "default: a pool for each attention of each layer"
        },
    )
    same_matrices_in_decoding: bool = field(
        default=False,
        metadata={
            "help": "decode with the same random matrices in all layers (code of the paper); needs "
            "--share-random-matrices; default: other ones in each layer"
        },
    )
    denominator_floor: Optional[float] = field(
        default=None,
        metadata={
            "help": "least denominator of attention; default: 10 / feature dim for sincos, 1e-6 "
            "for positive features"
        },
    )
    no_key_rescale: bool = field(
        default=False,
        metadata={
            "help": "forget the length of keys in cross attention instead of weighting by it"
        },
    )
    key_rescale_with_padding: bool = field(
        default=False,
        metadata={
            "help": "take the weight of keys relative to the longest key of all columns, padding "
            "among them (code of the paper): a row then depends on its batch; default: relative to "
            "the longest key of its own tokens"
        },
    )
    rfa_encoder: bool = field(
        default=False,
        metadata={"help": "random feature attention (of --cross-feature-dim) in the encoder too"},
    )
    sentence_gate: ChoiceEnum(GATES) = field(
        default="none",
        metadata={
            "help": "sentential gate in causal attention: decay the past when a sentence starts, "
            "or average it with the new sentence"
        },
    )
    shared_gate: bool = field(
        default=False,
        metadata={
            "help": "one gate for all heads of a layer (equation of the paper); default: one for "
            "each head (code of the paper)"
        },
    )
    gate_bias_init: Optional[float] = field(
        default=None,
        metadata={"help": "initial bias of the gate; default: 2 for decay, 0 for average"},
    )
    gate_cross_attention: bool = field(
        default=False, metadata={"help": "gate the sentences of the source in cross attention too"}
    )


class RFATransformerEncoder(SharedSourceEncoder):
    """Stock encoder, with random feature attention if asked for."""

    def build_encoder_layer(self, cfg):
        if cfg.rfa_encoder:
            return wrapped(RFAEncoderLayer(cfg), cfg)
        return super().build_encoder_layer(cfg)


@register_model("rfa_transformer")
class RFATransformerModel(TransformerModel):
    """Linear-time causal and cross attention in the decoder; the encoder is stock by default."""

    @classmethod
    def add_args(cls, parser):
        """Options of the stock transformer and of :class:`RFAConfig`."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, RFAConfig(), delete_default=True)

    @classmethod
    def build_model(cls, args, task):
        """Build a model.

        Raises:
            UserError: options that make no sense here.
        """
        rfa_transformer(args)
        refuse_stock_options(args, "rfa_transformer")
        for name in ("cross_feature_dim", "causal_feature_dim"):
            if getattr(args, name) < 1:
                option = "--" + name.replace("_", "-")
                raise UserError(f"{option} must be at least 1, not {getattr(args, name)}")
        _check_pool(args)
        for option in ("gate_cross_attention", "shared_gate"):
            if getattr(args, option) and args.sentence_gate == "none":
                flag = "--" + option.replace("_", "-")
                raise UserError(f"{flag} needs --sentence-gate decay or average")
        if args.key_rescale_with_padding and args.no_key_rescale:
            raise UserError("--key-rescale-with-padding contradicts --no-key-rescale")
        model = super().build_model(args, task)
        mark_new(model, NEW_PARAMETERS)
        return model

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        cfg = TransformerConfig.from_namespace(args)
        return RFATransformerEncoder(cfg, src_dict, embed_tokens, separator_index(src_dict))

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        cfg = TransformerConfig.from_namespace(args)
        return RFATransformerDecoder(cfg, tgt_dict, embed_tokens, separator_index(tgt_dict))

    def upgrade_state_dict_named(self, state_dict, name):
        """Let checkpoints of transformers, and of models without a gate, be the start."""
        super().upgrade_state_dict_named(state_dict, name)
        fill_missing(self, state_dict, NEW_PARAMETERS)


def _check_pool(args) -> None:
    """Refuse a pool of random matrices that is too small for a draw.

    Raises:
        UserError: it is, or decoding is to share matrices that are not in one pool.
    """
    heads = max(args.decoder_attention_heads, args.encoder_attention_heads)
    wanted, users = heads, f"{heads} attention heads"
    if args.share_random_matrices:
        wanted = max(heads, args.decoder_layers * args.decoder_attention_heads)
        users = f"the attention heads of all {args.decoder_layers} layers"
    elif args.same_matrices_in_decoding:
        raise UserError("--same-matrices-in-decoding needs --share-random-matrices")
    if args.random_matrices < wanted:
        raise UserError(
            f"--random-matrices {args.random_matrices} does not suffice for {users}; give "
            f"{wanted} or more"
        )


@register_model_architecture("rfa_transformer", "rfa_transformer")
def rfa_transformer(args):
    """Base size: 6 + 6 layers of width 512, 8 heads, feed-forward networks of 2048."""
    set_defaults(args, RFAConfig)
    base_architecture(args)


@register_model_architecture("rfa_transformer", "rfa_transformer_iwslt")
def rfa_transformer_iwslt(args):
    """Size of the paper's models: as base, with feed-forward networks of 1024."""
    args.encoder_ffn_embed_dim = getattr(args, "encoder_ffn_embed_dim", 1024)
    args.decoder_ffn_embed_dim = getattr(args, "decoder_ffn_embed_dim", 1024)
    rfa_transformer(args)
