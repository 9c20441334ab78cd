"""RNNSearch with a continuous cache.

Tu, Liu, Shi and Zhang (2018), "Learning to Remember Translation History with a Continuous Cache".
"""

import logging
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model

from fairseq_docmt.data.sequence_format import begin_index
from fairseq_docmt.models.base import ExtendedModel, StreamModel, options_dataclass, set_defaults
from fairseq_docmt.models.rnnsearch import RNNSearchConfig, RNNSearchModel, rnnsearch
from fairseq_docmt.modules.rnn.cache import FUSIONS, CacheDecoder

logger = logging.getLogger(__name__)

#: parameters that rnnsearch lacks; the second training stage trains only these
NEW_PARAMETERS = (".cache_gate.",)


# fairseq reads these annotations at run time: keep ChoiceEnum here.
@dataclass
class CacheConfig(FairseqDataclass):
    """Options that ``cache_rnn`` adds to ``rnnsearch``, for the cache and its use in prediction."""

    cache_size: int = field(
        default=25, metadata={"help": "number of slots of the cache; 0: no cache", "at_least": 0}
    )
    context_integration: ChoiceEnum(FUSIONS) = field(
        default="deep",
        metadata={"help": "interpolate decoder states (deep) or word probabilities (shallow)"},
    )
    no_overwrite: bool = field(
        default=False,
        metadata={"help": "write a word that is already in the cache to a new slot"},
    )


def cache_rnn(args):
    """Set missing options in ``args`` to their defaults, with the sizes of the paper.

    Embeddings have size 620, states have size 1000, and the cache has 25 slots.
    """
    set_defaults(args, CacheConfig)
    rnnsearch(args)


@register_model("cache_rnn", dataclass=options_dataclass(cache_rnn, RNNSearchConfig, CacheConfig))
class CacheRNNModel(StreamModel, ExtendedModel, RNNSearchModel):
    """RNNSearch with a cache of recent target words, attention contexts and decoder states."""

    new_parameters = NEW_PARAMETERS
    unused_with = {"cache_size": 0}
    doc_state_options = ("cache_size",)
    architecture = staticmethod(cache_rnn)

    @classmethod
    def build_decoder(cls, args, *parts):
        """Build the decoder, with a cache of ``--cache-size`` slots."""
        if args.cache_size == 0 and args.no_overwrite:
            logger.warning("no effect without a cache (--cache-size 0): --no-overwrite")
        return CacheDecoder(
            *parts,
            cache_size=args.cache_size,
            fusion=str(args.context_integration),
            overwrite=not args.no_overwrite,
            begin_of_document=begin_index(parts[0]),
        )

    def train(self, mode: bool = True):
        """Set training or evaluation mode, but keep frozen modules in evaluation mode.

        If the encoder is frozen, as in the second training stage, only the output layer has
        dropout. The attention contexts and decoder states that are stored in the cache then "remain
        the same", as in section 3.4 of the paper.
        """
        super().train(mode)
        if not any(parameter.requires_grad for parameter in self.encoder.parameters()):
            for part in (self.encoder, self.decoder.dropout, self.decoder.upper):
                if part is not None:
                    part.eval()
        return self
