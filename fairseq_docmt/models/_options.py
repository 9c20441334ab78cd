"""Options and checkpoint loading shared by the models."""

import logging
from dataclasses import fields
from typing import Callable, Optional, Sequence

from fairseq.dataclass.utils import gen_parser_from_dataclass
from torch import nn

from fairseq_docmt.data.symbols import separator_index
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.models._dataclass_options import name_of
from fairseq_docmt.models.interface import needed_task, needs_several_sentences
from fairseq_docmt.optim.grouped_adam import NEW

logger = logging.getLogger(__name__)

#: options of fairseq's transformer that change its attention, projections, residual connections or
#: kinds of layers
UNSUPPORTED = (
    "no_cross_attention",
    "cross_self_attention",
    "scale_attn",
    "scale_heads",
    "scale_fc",
    "scale_resids",
    "quant_noise_pq",
    "encoder_xformers_att_config",
    "decoder_xformers_att_config",
    "base_layers",
)
#: options that recompute layers in the backward pass; the first implies the second
CHECKPOINTING = ("offload_activations", "checkpoint_activations")
#: options that drop whole layers in training
LAYERDROP = ("encoder_layerdrop", "decoder_layerdrop")
#: options that remove layers, for systems that add parameters to layers by their number
PRUNING = ("encoder_layers_to_keep", "decoder_layers_to_keep")


def set_defaults(args, config: type) -> None:
    """Set missing options to the defaults of a dataclass."""
    for option in fields(config):
        if option.name != "_name":
            setattr(args, option.name, getattr(args, option.name, option.default))


def refuse_stock_options(args, name: str, *more: str) -> None:
    """Refuse options of fairseq's transformer that an architecture would ignore.

    Args:
        args: options of the command.
        name: architecture.
        more: options that this architecture does not support, besides those that none does.

    Raises:
        UserError: naming the option.
    """
    for option in (*UNSUPPORTED, *more):
        if getattr(args, option, False):
            raise UserError(f"{flag(option)} is not supported by {name}; leave it out")


def require_at_least(args, **least: int) -> None:
    """Refuse options that are too small.

    Args:
        args: options of the command.
        least: minimum of each option, by name.

    Raises:
        UserError: naming the option.
    """
    for name, value in least.items():
        if getattr(args, name) < value:
            raise UserError(f"{flag(name)} must be at least {value}, not {getattr(args, name)}")


def mark_new(model: nn.Module, new: Sequence[str]) -> None:
    """Mark parameters without pre-trained values, for ``--optimizer grouped_adam``.

    Args:
        model: model whose parameters are marked.
        new: substrings of the names of such parameters.
    """
    for name, parameter in model.named_parameters():
        if any(part in name for part in new):
            parameter.param_group = NEW


def fill_missing(model: nn.Module, state_dict: dict, new: Sequence[str]) -> None:
    """Keep the initialisation of modules that are missing in a checkpoint.

    A module is completely present or completely missing: if only some of its tensors are in the
    checkpoint, the others are not filled, and fairseq's strict loading reports them.

    Args:
        model: model to load into.
        state_dict: tensors of the checkpoint by name; completed in place.
        new: substrings of the names of new parameters and buffers.
    """

    def owner(key: str) -> Optional[str]:
        part = next((part for part in new if part in key), None)
        return None if part is None else key[: key.index(part) + len(part)]

    known = {None, *(owner(key) for key in state_dict)}
    filled = []
    for key, value in model.state_dict().items():
        if owner(key) not in known:
            state_dict[key] = value
            filled.append(key)
    if filled:
        logger.info(
            "%d tensors are not in the checkpoint and keep their initial values, for example %s",
            len(filled),
            filled[0],
        )


class ExtendedModel:
    """Mixin for models that add options and parameters to a model of fairseq or of this package.

    Attributes:
        architecture: architecture function of the model.
        config: dataclass of the added options.
        new_parameters: substrings of the names of the added parameters and buffers. They keep their
            initialisation when a checkpoint without them is loaded, and ``--optimizer
            grouped_adam`` gives them their own learning rate.
    """

    architecture: Callable
    config: type
    new_parameters: Sequence[str] = ()

    @classmethod
    def add_args(cls, parser):
        """Add the options of the base class and of :attr:`config`."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, cls.config(), delete_default=True)

    @classmethod
    def build_model(cls, args, task):
        """Build a model and mark its new parameters.

        Raises:
            UserError: the model reads context that the task does not give.
        """
        stock = separator_index(task.source_dictionary) < 0  # the task is one of fairseq
        needed = needed_task(cls)
        if stock and needed:
            raise UserError(
                f"--arch {name_of(args)} gets no context from fairseq's own tasks, of which "
                f"translation is the default; give --task {needed}"
            )
        model = super().build_model(args, task)
        if stock and needs_several_sentences(model):
            logger.warning(
                "fairseq's own tasks, of which translation is the default, give --arch %s single "
                "sentences, where its context options have no effect",
                name_of(args),
            )
        mark_new(model, cls.new_parameters)
        return model

    def upgrade_state_dict_named(self, state_dict, name):
        """Keep the initialisation of new parameters that the checkpoint lacks."""
        super().upgrade_state_dict_named(state_dict, name)
        fill_missing(self, state_dict, self.new_parameters)
