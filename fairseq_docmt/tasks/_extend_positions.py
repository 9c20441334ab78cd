"""Loading of pre-trained models with fewer learned positions than the model has."""

import logging
from typing import Optional

import torch
import torch.nn.functional as F
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor, nn

from fairseq_docmt.errors import UserError

logger = logging.getLogger(__name__)


def extend_positions(model: nn.Module, how: Optional[str], path: str) -> None:
    """Let a model load fewer learned positions than it has.

    Args:
        model: model to load into.
        how: ``repeat`` or ``interpolate``; None to refuse.
        path: path of the checkpoint, for messages.

    Raises:
        UserError: the model has no learned positions, or, when a checkpoint is loaded, that has
            another number of them.
    """
    learned = (isinstance(module, LearnedPositionalEmbedding) for module in model.modules())
    if how is not None and not any(learned):
        raise UserError(
            "--extend-positions is for learned positions, which this --arch does not have; leave "
            "it out, or give --encoder-learned-pos and --decoder-learned-pos"
        )

    def extend(loading: nn.Module, state_dict: dict, prefix: str, *_) -> None:
        for name, module in loading.named_modules(prefix=prefix.rstrip(".")):
            key = f"{name}.weight"
            if isinstance(module, LearnedPositionalEmbedding) and key in state_dict:
                state_dict[key] = _extended(state_dict[key], module, key, how, path)

    model._register_load_state_dict_pre_hook(extend, with_module=True)


def _extended(loaded: Tensor, module, key: str, how: Optional[str], path: str) -> Tensor:
    first = module.padding_idx + 1
    known, wanted = len(loaded) - first, module.num_embeddings - first
    if known == wanted or loaded.size(1) != module.embedding_dim:
        return loaded
    side = "source" if "encoder" in key else "target"
    option = f"--max-{side}-positions"
    if known > wanted or how is None:
        more = "" if known > wanted else ", or --extend-positions repeat or interpolate"
        raise UserError(
            f"checkpoint {path} has {known} learned {side} positions, but the model has {wanted} "
            f"({option}); give {option} {known}{more}"
        )
    logger.info("%s: %d positions extended to %d (%s)", key, known, wanted, how)
    longer = positions_of(loaded[first:], wanted, how)
    return torch.cat([loaded[:first], longer])


def positions_of(known: Tensor, wanted: int, how: str) -> Tensor:
    """Extend known positions to a larger number.

    Args:
        known: (n, C) embeddings of the known positions.
        wanted: number of positions, at least n.
        how: ``repeat`` them from the first one on, or ``interpolate`` linearly between them.

    Returns:
        (wanted, C) embeddings.
    """
    if how == "repeat":
        return known[torch.arange(wanted) % len(known)]
    columns = known.float().t().unsqueeze(0)
    longer = F.interpolate(columns, size=wanted, mode="linear", align_corners=True)
    return longer[0].t().to(known)
