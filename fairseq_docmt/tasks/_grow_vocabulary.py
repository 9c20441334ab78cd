"""Loading of checkpoints whose vocabulary lacks the document symbols."""

import logging
from typing import Sequence

import torch
from fairseq.data import Dictionary
from torch import nn

from fairseq_docmt.data.sequence_format import DOCUMENT_SYMBOLS

logger = logging.getLogger(__name__)


def let_vocabulary_grow(
    model: nn.Module,
    *dictionaries: Dictionary,
    new: Sequence[str] = DOCUMENT_SYMBOLS,
    as_mean: bool = False,
) -> None:
    """Let a model load weights of vocabularies without the document symbols.

    The missing rows keep their initialisation.  Any other difference in size is refused by torch.
    Layers may still be replaced afterwards: those of vocabulary size are looked up when weights are
    loaded.

    Args:
        model: model to load into.
        dictionaries: its dictionaries.
        new: last symbols of the dictionaries, which the weights may lack.
        as_mean: the missing rows begin as the mean of the others instead.
    """
    sizes = {len(dictionary) for dictionary in dictionaries}

    def append_new_rows(loading: nn.Module, state_dict: dict, prefix: str, *_) -> None:
        for name, module in loading.named_modules(
            prefix=prefix.rstrip("."), remove_duplicate=False
        ):
            is_embedding = isinstance(module, nn.Embedding) and module.num_embeddings in sizes
            is_projection = isinstance(module, nn.Linear) and module.out_features in sizes
            if is_embedding or is_projection:
                _append_new_rows(module, state_dict, name, new, as_mean)

    model._register_load_state_dict_pre_hook(append_new_rows, with_module=True)


def _append_new_rows(module, state_dict: dict, name: str, new: Sequence[str], as_mean: bool):
    """Append the rows of new symbols to loaded parameters that lack them."""
    for of_module, parameter in module.named_parameters(recurse=False):
        key = f"{name}.{of_module}"
        loaded = state_dict.get(key)
        if loaded is None or loaded.shape[1:] != parameter.shape[1:]:
            continue
        if len(parameter) - len(loaded) != len(new):
            continue
        rows = parameter.detach()[len(loaded) :]
        if as_mean:
            rows = loaded.float().mean(dim=0, keepdim=True).expand_as(rows)
        state_dict[key] = torch.cat([loaded, rows.to(loaded)])
        symbols = ", ".join(new)
        logger.info("%s: added %s", key, symbols)
        if not parameter.requires_grad:
            logger.warning(
                "%s: the parameters of %s are new, and --freeze-pretrained does not train them; "
                "leave it out if examples have several sentences",
                key,
                symbols,
            )
