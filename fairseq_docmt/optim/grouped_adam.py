"""``--optimizer grouped_adam``: Adam with a learning rate of its own for what was trained before.

The second stage of Feng et al. (2022), section 4.2: 3e-4 for new and 6e-5 for pre-trained
parameters.  fairseq's own composite optimizer cannot be chosen on the command line.
"""

from dataclasses import dataclass, field
from typing import Iterable

from fairseq.optim import register_optimizer
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from torch import nn

from fairseq_docmt.errors import UserError

#: value of ``param_group`` (fairseq's name for it) of parameters that a pre-trained model lacks
NEW = "new"


def is_new(parameter: nn.Parameter) -> bool:
    """Whether an architecture has marked a parameter as new."""
    return getattr(parameter, "param_group", None) == NEW


def freeze_pretrained(model: nn.Module) -> None:
    """Let nothing but the new parameters of a model be trained.

    Raises:
        UserError: it has none.
    """
    if not any(is_new(p) for p in model.parameters()):
        raise UserError(
            "--freeze-pretrained would leave nothing to train: this --arch adds no parameters to "
            "a pre-trained model"
        )
    for parameter in model.parameters():
        parameter.requires_grad = is_new(parameter)
    model.train(model.training)  # a model may leave dropout out of what is frozen


@dataclass
class GroupedAdamConfig(FairseqAdamConfig):
    pretrained_lr_scale: float = field(
        default=1.0,
        metadata={
            "help": "learning rate of pre-trained parameters in terms of that of new ones, which "
            "--lr and the scheduler set"
        },
    )


@register_optimizer("grouped_adam", dataclass=GroupedAdamConfig)
class GroupedAdam(FairseqAdam):
    """Adam with a group for new and one for pre-trained parameters.

    Args:
        cfg: options.
        params: parameters to train; an architecture marks new ones.
    """

    def __init__(self, cfg: GroupedAdamConfig, params: Iterable[nn.Parameter]):
        """Raises UserError where nothing is marked as new, or for a negative scale."""
        if cfg.pretrained_lr_scale < 0:
            raise UserError(
                f"--pretrained-lr-scale must not be negative, as {cfg.pretrained_lr_scale}"
            )
        params = list(params)
        new = [p for p in params if is_new(p)]
        if not new:
            raise UserError(
                "--optimizer grouped_adam finds no new parameters: choose an --arch that adds some "
                "to a transformer (memory_transformer, rfa_transformer ...), and with --fp16 give "
                "--fp16-no-flatten-grads too"
            )
        # What the host logs as the learning rate is that of the first group.
        groups = [{"params": new, "lr_scale": 1.0}]
        pretrained = [p for p in params if not is_new(p)]
        if pretrained:
            groups.append({"params": pretrained, "lr_scale": cfg.pretrained_lr_scale})
        super().__init__(cfg, groups)

    @property
    def supports_flat_params(self):
        """Flattened parameters have no groups; the host then asks for --fp16-no-flatten-grads."""
        return False

    def set_lr(self, lr):
        """Set the learning rate of new parameters; the other follows."""
        for group in self.param_groups:
            group["lr"] = lr * group["lr_scale"]

    def load_state_dict(self, state_dict, optimizer_overrides=None):
        """As in the host; the scale is that of the command line, as the learning rate is.

        Raises:
            UserError: other parameters were trained before.
        """
        scales = [group["lr_scale"] for group in self.param_groups]
        before = [len(group["params"]) for group in state_dict["param_groups"]]
        if before != [len(group["params"]) for group in self.param_groups]:
            raise UserError(
                "the checkpoint's optimizer trained other parameters than this run does: keep "
                "--freeze-pretrained as it was, or add --reset-optimizer"
            )
        super().load_state_dict(state_dict, optimizer_overrides)
        for group, scale in zip(self.param_groups, scales):
            group["lr_scale"] = scale
        self.set_lr(self.get_lr())
