"""Optimizer ``grouped_adam``: Adam with separate learning rates for new and pre-trained parameters.

The second training stage of Feng et al. (2022), section 4.2, uses 3e-4 for new and 6e-5 for
pre-trained parameters. fairseq's own composite optimizer cannot be selected on the command line.
"""

import logging
import math
from dataclasses import dataclass, field
from typing import Iterable

from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from torch import nn

from fairseq_docmt.errors import OTHER_PARAMETERS, UserError, flag
from fairseq_docmt.models.base import NEW

logger = logging.getLogger(__name__)


def is_new(parameter: nn.Parameter) -> bool:
    """Return whether a parameter is new, that is, missing from pre-trained models."""
    return getattr(parameter, "param_group", None) == NEW


def freeze_pretrained(model: nn.Module, cfg=None) -> None:
    """Freeze the pre-trained parameters of a model, so that only its new parameters are trained.

    New parameters that are already frozen stay so.

    Args:
        model: the model.
        cfg: its options, by which the new parameters may be unused; None if it is already trained.

    Raises:
        UserError: the model has no new parameters, or does not use them.
    """
    if not any(is_new(p) for p in model.parameters()):
        raise UserError(
            "--freeze-pretrained leaves nothing to train: this --arch adds no parameters to "
            "a pre-trained model"
        )
    for option, value in model.unused_with.items() if cfg else ():
        if getattr(cfg, option) == value:
            given = flag(option) if value is True else f"{flag(option)} {value}"
            raise UserError(
                f"--freeze-pretrained leaves nothing to train: with {given}, the new parameters of "
                "the model are not used; leave out one of the two options"
            )
    for parameter in model.parameters():
        # Sentence language models of memnet_rnn are new, but always frozen.
        parameter.requires_grad &= is_new(parameter)
    model.train(model.training)  # lets models switch off dropout in frozen parts


@dataclass
class GroupedAdamConfig(FairseqAdamConfig):
    """Adam's options, and the relative learning rate of pre-trained parameters."""

    pretrained_lr_scale: float = field(
        default=1.0,
        metadata={
            "help": "learning rate of pre-trained parameters relative to that of new ones, which "
            "--lr and the scheduler set"
        },
    )


@register_optimizer("grouped_adam", dataclass=GroupedAdamConfig)
class GroupedAdam(FairseqAdam):
    """Adam with separate learning rates for new and pre-trained parameters.

    Args:
        cfg: options of the optimizer.
        params: parameters to train.  The architecture has marked the new ones, see :func:`is_new`.

    Raises:
        UserError: no parameter is marked as new, or ``pretrained_lr_scale`` is negative or not
            finite.
    """

    def __init__(self, cfg: GroupedAdamConfig, params: Iterable[nn.Parameter]):
        if not 0 <= cfg.pretrained_lr_scale < math.inf:
            raise UserError(
                "--pretrained-lr-scale must be a number of at least 0, got "
                f"{cfg.pretrained_lr_scale}"
            )
        params = list(params)
        new = [p for p in params if is_new(p)]
        if not new:
            raise UserError(
                "--optimizer grouped_adam finds no new parameters: choose an --arch that adds some "
                "to a transformer (memory_transformer, rfa_transformer ...), and with --fp16 give "
                "--fp16-no-flatten-grads too"
            )
        # fairseq logs the learning rate of the first group.
        groups = [{"params": new, "lr_scale": 1.0}]
        pretrained = [p for p in params if not is_new(p)]
        if pretrained:
            groups.append({"params": pretrained, "lr_scale": cfg.pretrained_lr_scale})
        elif cfg.pretrained_lr_scale != 1:
            logger.warning(
                "no effect without pre-trained parameters to train: --pretrained-lr-scale"
            )
        super().__init__(cfg, groups)

    @property
    def supports_flat_params(self):
        """False, because flattening the parameters would lose the parameter groups."""
        return False

    def set_lr(self, lr):
        """Set the learning rate of new parameters to ``lr``, and scale it for pre-trained ones.

        The factor is ``pretrained_lr_scale``.
        """
        for group in self.param_groups:
            group["lr"] = lr * group["lr_scale"]

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """Load the optimizer state, but keep ``pretrained_lr_scale`` as given on the command line.

        Raises:
            UserError: the numbers of new and of pre-trained parameters differ from those in the
                checkpoint.
        """
        scales = [group["lr_scale"] for group in self.param_groups]
        before = [len(group["params"]) for group in state_dict["param_groups"]]
        if before != [len(group["params"]) for group in self.param_groups]:
            raise UserError(OTHER_PARAMETERS)
        super().load_state_dict(state_dict, optimizer_overrides)
        for group, scale in zip(self.param_groups, scales):
            group["lr_scale"] = scale
        self.set_lr(self.get_lr())
