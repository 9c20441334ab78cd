"""Transformer with recurrent memory.

Feng, Li, Song, Zheng and Koehn (2022), "Learn To Remember: Transformer with Recurrent Memory for
Document-Level Machine Translation".
"""

import logging
from dataclasses import dataclass, field
from typing import List, Optional

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, base_architecture

from fairseq_docmt.errors import UserError
from fairseq_docmt.models.base import (
    CHECKPOINTING,
    LAYERDROP,
    PRUNING,
    DocumentTransformer,
    StreamModel,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.modules.recurrent_memory import (
    MemoryTransformerDecoder,
    MemoryTransformerEncoder,
)

logger = logging.getLogger(__name__)

#: parameters that a transformer lacks; newly initialised in finetuning
NEW_PARAMETERS = (".memories.",)


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class MemoryConfig(FairseqDataclass):
    """Options of ``memory_transformer``: size and place of the memories, and reach of gradients."""

    memory_size: int = field(
        default=16, metadata={"help": "number of vectors of each memory", "at_least": 1}
    )
    context_side: ChoiceEnum(("both", "source", "target")) = field(
        default="both",
        metadata={"help": "side with memories: encoder (source), decoder (target) or both"},
    )
    memory_layers: Optional[str] = field(
        default=None,
        metadata={
            "help": "layers with a memory, numbered from 0, e.g. 4,5; default: the top layer"
        },
    )
    memory_gradient_sentences: int = field(
        default=1,
        metadata={
            "help": "number of previous sentences that the gradient of a sentence reaches through "
            "one memory; 0: all in the batch. With several memories it reaches further, as in the "
            "authors' code",
            "at_least": 0,
        },
    )
    no_context: bool = field(
        default=False,
        metadata={"help": "start every sentence from the initial memory, as a control"},
    )


def layers_with_memory(args, side: str) -> List[int]:
    """Return the numbers of the layers that have a memory, counted from 0, in ascending order.

    The list is empty if ``--context-side`` excludes the side.

    Args:
        args: options of the model.
        side: ``encoder`` or ``decoder``.

    Raises:
        UserError: ``--memory-layers`` is not a list of existing layers, or the side has no layers.
    """
    if args.context_side == {"encoder": "target", "decoder": "source"}[side]:
        return []
    count = getattr(args, f"{side}_layers")
    if count < 1:
        raise UserError(
            f"--{side}-layers {count} leaves no layer for a memory; set it to 1 or more, or choose "
            "the other side with --context-side"
        )
    if args.memory_layers is None:
        return [count - 1]
    try:
        layers = sorted(int(number) for number in args.memory_layers.split(","))
    except ValueError:
        layers = [-1]
    if layers[0] < 0 or layers[-1] >= count:
        raise UserError(
            f"--memory-layers {args.memory_layers} must name layers from 0 to {count - 1} of the "
            f"{side}, separated by commas"
        )
    if len({*layers}) < len(layers):
        raise UserError(f"--memory-layers {args.memory_layers} names a layer twice; give each once")
    return layers


def memory_transformer(args):
    """Set missing options in ``args`` to their defaults, with the sizes of transformer base.

    Transformer base has 6 + 6 layers of width 512, 8 heads and a feed-forward width of 2048.
    """
    set_defaults(args, MemoryConfig)
    base_architecture(args)


@register_model(
    "memory_transformer",
    dataclass=options_dataclass(memory_transformer, TransformerConfig, MemoryConfig),
)
class MemoryTransformerModel(StreamModel, DocumentTransformer):
    """Transformer with a recurrent memory of earlier sentences.

    The cost per sentence does not grow with the number of earlier sentences.
    """

    new_parameters = NEW_PARAMETERS
    doc_state_options = ("memory_gradient_sentences",)
    architecture = staticmethod(memory_transformer)
    encoder_class, decoder_class = MemoryTransformerEncoder, MemoryTransformerDecoder
    unsupported = (*CHECKPOINTING, *LAYERDROP, *PRUNING)

    @classmethod
    def check_options(cls, args):
        """Check all options, and replace the option ``memory_layers`` with a dict.

        The keys of the dict are ``encoder`` and ``decoder``; the values are lists of layer numbers.

        Raises:
            UserError: an option is invalid or not supported.
        """
        super().check_options(args)
        args.memory_layers = {
            side: layers_with_memory(args, side) for side in ("encoder", "decoder")
        }
        if args.no_context and args.memory_gradient_sentences != 1:
            logger.warning("no effect with --no-context: --memory-gradient-sentences")
