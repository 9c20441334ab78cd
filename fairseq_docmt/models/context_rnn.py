"""RNNSearch with local context: the baselines of Maruf and Haffari (2018), table 4.

Jean, Lauly, Firat and Cho (2017), "Does Neural Machine Translation Benefit from Larger Context?";
Wang, Tu, Way and Liu (2017), "Exploiting Cross-Sentence Context for Neural Machine Translation".
"""

import logging
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model

from fairseq_docmt.models.base import ExtendedModel, StreamModel, options_dataclass, set_defaults
from fairseq_docmt.models.rnnsearch import RNNSearchConfig, RNNSearchModel, rnnsearch_512
from fairseq_docmt.modules.rnn.context import (
    AttendingToPrevious,
    GatedContext,
    HierarchicalEncoder,
    PreviousSentenceEncoder,
    PreviousTargetDecoder,
    SourceContextDecoder,
)
from fairseq_docmt.modules.rnn.gru_encoder import GRUEncoder

logger = logging.getLogger(__name__)

#: parameters that rnnsearch lacks
NEW_PARAMETERS = (".context_",)
#: --context, and the encoder that goes with it
ENCODERS = {
    "previous-target": GRUEncoder,
    "previous-source-attention": PreviousSentenceEncoder,
    "hierarchical": HierarchicalEncoder,
}


# fairseq reads these annotations at run time: keep ChoiceEnum here.
@dataclass
class ContextConfig(FairseqDataclass):
    """Options that ``context_rnn`` adds to ``rnnsearch``: which context it reads, if any."""

    context: ChoiceEnum(tuple(ENCODERS)) = field(
        default="previous-target",
        metadata={
            "help": "last decoder state of the previous sentence; attention to the words of the "
            "previous source sentence (Jean et al. 2017); or a summary of the three previous "
            "source sentences (Wang et al. 2017)"
        },
    )
    no_context: bool = field(
        default=False, metadata={"help": "translate every sentence without context, as a control"}
    )


def context_rnn(args):
    """Set missing options in ``args`` to defaults, with the sizes of Maruf and Haffari (2018).

    Embeddings and states have size 512, the hidden layer of attention has size 256, and the decoder
    has two layers.
    """
    set_defaults(args, ContextConfig)
    rnnsearch_512(args)


@register_model(
    "context_rnn", dataclass=options_dataclass(context_rnn, RNNSearchConfig, ContextConfig)
)
class ContextRNNModel(StreamModel, ExtendedModel, RNNSearchModel):
    """RNNSearch with context from a few previous sentences of the document."""

    new_parameters = NEW_PARAMETERS
    unused_with = {"no_context": True}
    architecture = staticmethod(context_rnn)

    @property
    def sentences_back(self):
        """Number of previous source sentences; None if the model reads decoder states instead."""
        return getattr(self.encoder, "sentences_back", None)

    @classmethod
    def build_encoder(cls, args, *parts):
        """Build the encoder.

        Depending on ``--context``, it also reads previous source sentences.
        """
        encoder = ENCODERS[str(args.context)](*parts)
        encoder.no_context = args.no_context
        return encoder

    @classmethod
    def build_decoder(cls, args, *parts):
        """Build the decoder, which reads the context chosen by ``--context``."""
        if args.context == "previous-target":
            return PreviousTargetDecoder(*parts)
        hierarchical = args.context == "hierarchical"
        return SourceContextDecoder(
            *parts,
            recurrence=GatedContext if hierarchical else AttendingToPrevious,
            context_size=args.encoder_hidden_size * (1 if hierarchical else 2),
            begins_with_context=hierarchical,
        )

    def upgrade_state_dict_named(self, state_dict, name):
        """Adapt the checkpoint of an older version or of a simpler model to this model.

        A layer that only older checkpoints have is dropped, with a warning. Modules that the
        checkpoint lacks, because it comes from a simpler model, keep their initial values.
        """
        earlier = [key for key in state_dict if ".context_initial." in key and "encoder" in key]
        for key in earlier:
            del state_dict[key]
        if earlier:
            logger.warning(
                "this checkpoint is of an older version, with a layer between the summary of "
                "previous sentences and the initial state of the encoder, and with the summary "
                "outside of the tanh of the initial decoder state; its translations differ from "
                "that version: train it again, or continue from it with --reset-optimizer"
            )
        super().upgrade_state_dict_named(state_dict, name)
