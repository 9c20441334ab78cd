"""Loading of checkpoints whose vocabulary lacks the document symbols."""

import logging

import torch
from fairseq.data import Dictionary
from torch import nn

from fairseq_docmt.data.symbols import DOCUMENT_SYMBOLS

logger = logging.getLogger(__name__)


def let_vocabulary_grow(model: nn.Module, *dictionaries: Dictionary) -> None:
    """Let vocabulary-sized layers of ``model`` load weights without the document symbols.

    The missing rows keep their initialisation.  Any other difference in size is refused by torch.
    """
    sizes = {len(dictionary) for dictionary in dictionaries}
    for module in model.modules():
        is_embedding = isinstance(module, nn.Embedding) and module.num_embeddings in sizes
        is_projection = isinstance(module, nn.Linear) and module.out_features in sizes
        if is_embedding or is_projection:
            module._register_load_state_dict_pre_hook(_append_new_rows, with_module=True)


def _append_new_rows(module, state_dict, prefix, *_):
    for name, parameter in module.named_parameters(recurse=False):
        loaded = state_dict.get(prefix + name)
        if loaded is None or loaded.shape[1:] != parameter.shape[1:]:
            continue
        if len(parameter) - len(loaded) == len(DOCUMENT_SYMBOLS):
            new_rows = parameter.detach()[len(loaded) :].to(loaded)
            state_dict[prefix + name] = torch.cat([loaded, new_rows])
            symbols = ", ".join(DOCUMENT_SYMBOLS)
            logger.info("%s%s: added %s", prefix, name, symbols)
            if not parameter.requires_grad:
                logger.warning(
                    "%s%s: the parameters of %s are random, and --freeze-pretrained does not train "
                    "them; leave it out if examples have several sentences",
                    prefix,
                    name,
                    symbols,
                )
