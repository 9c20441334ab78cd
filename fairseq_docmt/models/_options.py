"""What the transformers of the suite share in building and loading."""

import logging
from dataclasses import fields
from typing import Optional, Sequence

from torch import nn

from fairseq_docmt.errors import UserError
from fairseq_docmt.optim.grouped_adam import NEW

logger = logging.getLogger(__name__)

#: options of the stock transformer that change what attention is
UNSUPPORTED = (
    "no_cross_attention",
    "cross_self_attention",
    "scale_attn",
    "scale_heads",
    "scale_fc",
    "scale_resids",
)


def set_defaults(args, config: type) -> None:
    """Give the options of a dataclass that are not set their defaults."""
    for option in fields(config):
        if option.name != "_name":
            setattr(args, option.name, getattr(args, option.name, option.default))


def refuse_stock_options(args, name: str) -> None:
    """Refuse options that a transformer with another attention would silently ignore.

    Raises:
        UserError: naming the option.
    """
    for option in UNSUPPORTED:
        if getattr(args, option, False):
            flag = "--" + option.replace("_", "-")
            raise UserError(f"{flag} has no meaning for {name}; leave it out")


def mark_new(model: nn.Module, new: Sequence[str]) -> None:
    """Mark parameters that a pre-trained model lacks, for ``--optimizer grouped_adam``.

    Args:
        new: parts of the names of such parameters.
    """
    for name, parameter in model.named_parameters():
        if any(part in name for part in new):
            parameter.param_group = NEW


def fill_missing(model: nn.Module, state_dict: dict, new: Sequence[str]) -> None:
    """Let parameters that an older kind of model lacks keep their initialisation.

    Where a checkpoint has some tensors of a new module, it has to have all: what is missing then is
    left to the strict loading of fairseq, which names it.

    Args:
        model: model to load into.
        state_dict: loaded tensors by name; completed in place.
        new: parts of the names of such parameters and buffers.
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
        logger.info("%d tensors start anew, as %s", len(filled), filled[0])
