"""Transformer with long-short term self-attention.

Zhang et al. (2020), "Long-Short Term Masking Transformer", a baseline of Herold and Ney (2023),
section 3.2.
"""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, base_architecture

from fairseq_docmt.models.base import (
    CHECKPOINTING,
    LAYERDROP,
    DocumentTransformer,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.lst import LSTTransformerDecoder, LSTTransformerEncoder


@dataclass
class LSTConfig(FairseqDataclass):
    """Option of ``lst_transformer``: whether attention to the document has its own projections."""

    separate_projections: bool = field(
        default=False,
        metadata={
            "help": "separate query, key and value projections for attention to the sentence and "
            "attention to the whole document; default: shared, which keeps the number of "
            "parameters of Herold and Ney"
        },
    )


def lst_transformer(args):
    """Set missing options in ``args`` to their defaults, with the sizes of transformer base.

    Transformer base has 6 + 6 layers of width 512, 8 heads and a feed-forward width of 2048.
    """
    set_defaults(args, LSTConfig)
    base_architecture(args)


@register_model(
    "lst_transformer", dataclass=options_dataclass(lst_transformer, TransformerConfig, LSTConfig)
)
class LSTTransformerModel(DocumentTransformer):
    """Transformer with self-attention to the sentence and, in parallel, to the whole document."""

    architecture = staticmethod(lst_transformer)
    unsupported = (*CHECKPOINTING, *LAYERDROP)
    encoder_class, decoder_class = LSTTransformerEncoder, LSTTransformerDecoder
    needs_several_sentences = True
