"""RNNSearch: recurrent encoder-decoder with additive attention.

Bahdanau, Cho and Bengio (2015), "Neural Machine Translation by Jointly Learning to Align and
Translate", as the baseline of Tu et al. (2018) and Maruf and Haffari (2018).
"""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.models import FairseqEncoderDecoderModel, register_model, register_model_architecture
from torch import nn

from fairseq_docmt.errors import UserError
from fairseq_docmt.models.base import (
    completed,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.rnn.gru_decoder import GRUDecoder
from fairseq_docmt.modules.rnn.gru_encoder import GRUEncoder


# fairseq reads these annotations at run time: keep typing.Optional here.
@dataclass
class RNNSearchConfig(FairseqDataclass):
    """Options of ``rnnsearch``: layers and sizes, dropout, and shared embeddings."""

    encoder_embed_dim: int = field(
        default=620, metadata={"help": "size of source embeddings", "at_least": 1}
    )
    encoder_hidden_size: int = field(
        default=1000,
        metadata={"help": "size of the encoder state in each direction", "at_least": 1},
    )
    encoder_layers: int = field(
        default=1, metadata={"help": "number of encoder layers", "at_least": 1}
    )
    decoder_embed_dim: int = field(
        default=620, metadata={"help": "size of target embeddings", "at_least": 1}
    )
    decoder_hidden_size: int = field(
        default=1000, metadata={"help": "size of the decoder state", "at_least": 1}
    )
    decoder_layers: int = field(
        default=1, metadata={"help": "number of decoder layers; the lowest attends", "at_least": 1}
    )
    attention_dim: Optional[int] = field(
        default=None,
        metadata={
            "help": "size of the hidden layer of attention; default: decoder state size",
            "at_least": 1,
        },
    )
    dropout: float = field(
        default=0.2,
        metadata={
            "help": "dropout of embeddings, between layers, of encoder states and output layer"
        },
    )
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "share the target embeddings with the output projection"}
    )
    share_all_embeddings: bool = field(
        default=False, metadata={"help": "share the embeddings of source, target and output"}
    )


def _embedding(dictionary, size: int) -> nn.Embedding:
    embedding = nn.Embedding(len(dictionary), size, dictionary.pad())
    nn.init.uniform_(embedding.weight, -0.1, 0.1)
    nn.init.zeros_(embedding.weight[dictionary.pad()])
    return embedding


def rnnsearch(args):
    """Set missing options in ``args`` to their defaults, with the sizes of Tu et al. (2018).

    Embeddings have size 620, states have size 1000, and encoder and decoder have one layer each.
    """
    set_defaults(args, RNNSearchConfig)


@register_model("rnnsearch", dataclass=options_dataclass(rnnsearch, RNNSearchConfig))
class RNNSearchModel(FairseqEncoderDecoderModel):
    """GRU encoder and decoder with additive attention and a deep output layer."""

    architecture = staticmethod(rnnsearch)

    @classmethod
    def build_model(cls, args, task):
        """Build a model from its options ``args`` and the dictionaries of ``task``.

        Raises:
            UserError: an option is invalid, or ``--share-all-embeddings`` is given although
                embedding sizes or dictionaries differ between the two sides.
        """
        args = completed(cls, args)
        source, target = cls._embeddings(args, task)
        encoder = cls.build_encoder(
            args,
            task.source_dictionary,
            source,
            args.encoder_hidden_size,
            args.encoder_layers,
            args.dropout,
        )
        decoder = cls.build_decoder(
            args,
            task.target_dictionary,
            target,
            encoder.output_units,
            args.decoder_hidden_size,
            args.decoder_layers,
            args.attention_dim or args.decoder_hidden_size,
            args.dropout,
            args.share_decoder_input_output_embed or args.share_all_embeddings,
        )
        return cls(encoder, decoder)

    @classmethod
    def build_encoder(cls, args, *parts):
        """Build a GRU encoder; models with context override this method.

        Args:
            args: options of the model.
            *parts: positional arguments of
                :class:`~fairseq_docmt.modules.rnn.gru_encoder.GRUEncoder`.
        """
        return GRUEncoder(*parts)

    @classmethod
    def build_decoder(cls, args, *parts):
        """Build a GRU decoder; models with context override this method.

        Args:
            args: options of the model.
            *parts: positional arguments of
                :class:`~fairseq_docmt.modules.rnn.gru_decoder.GRUDecoder`.
        """
        return GRUDecoder(*parts)

    @staticmethod
    def _embeddings(args, task):
        source = _embedding(task.source_dictionary, args.encoder_embed_dim)
        if not args.share_all_embeddings:
            return source, _embedding(task.target_dictionary, args.decoder_embed_dim)
        if task.source_dictionary != task.target_dictionary:
            raise UserError(
                "--share-all-embeddings needs one dictionary for both sides; prepare the corpus "
                "with --joined-dictionary"
            )
        if args.encoder_embed_dim != args.decoder_embed_dim:
            raise UserError(
                f"--share-all-embeddings needs --encoder-embed-dim {args.encoder_embed_dim} and "
                f"--decoder-embed-dim {args.decoder_embed_dim} to be the same"
            )
        return source, source


@register_model_architecture("rnnsearch", "rnnsearch_512")
def rnnsearch_512(args):
    """Set missing options in ``args`` to defaults, with the sizes of Maruf and Haffari (2018).

    Embeddings and states have size 512, the hidden layer of attention has size 256, and the decoder
    has two layers.
    """
    for side in ("encoder", "decoder"):
        setattr(args, f"{side}_embed_dim", getattr(args, f"{side}_embed_dim", 512))
        setattr(args, f"{side}_hidden_size", getattr(args, f"{side}_hidden_size", 512))
    args.attention_dim = getattr(args, "attention_dim", 256)
    args.decoder_layers = getattr(args, "decoder_layers", 2)
    rnnsearch(args)
