"""Adaptation of loaded weights to a model with more symbols or more positions.

When weights are loaded, they can be given rows for new symbols, longer position embeddings, and the
parameters of ``</s>`` as initial values of ``<sep>``.
"""

import logging
from typing import Optional, Sequence

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor, nn

from fairseq_docmt.data.sequence_format import separator_index
from fairseq_docmt.errors import UserError
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS

logger = logging.getLogger(__name__)


def let_vocabulary_grow(
    model: nn.Module,
    *dictionaries: Dictionary,
    new: Sequence[str] = DOCUMENT_SYMBOLS,
    as_mean: bool = False,
) -> None:
    """Let a model load weights that were trained without the last symbols of its dictionaries.

    When such weights are loaded, embeddings and output layers get rows for the missing symbols.  By
    default, these rows keep the values with which the model was initialised.  Any other difference
    in size is still an error in torch.

    Layers of the model may be replaced after this call, because the layers to extend are looked up
    only when weights are loaded.

    Args:
        model: model to load into.
        dictionaries: dictionaries of the model.
        new: symbols at the end of the dictionaries that the weights may lack.
        as_mean: True to initialise the rows of these symbols with the mean of all loaded rows.
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
    """Append rows for new symbols to the loaded weights of one layer, if the weights lack them.

    The layer's tensors in ``state_dict`` are replaced.  The rows are taken from the layer itself
    or, with ``as_mean``, are the mean of the loaded rows.

    Args:
        module: embedding or output layer.
        state_dict: loaded weights of the model.
        name: name of the layer in ``state_dict``.
        new: the symbols.
        as_mean: whether each new row is the mean of the loaded rows.
    """
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


def extend_positions(model: nn.Module, how: Optional[str], path: str) -> None:
    """Let a model load weights that have fewer learned positions than the model.

    Args:
        model: model to load into.
        how: how to make the missing positions: ``repeat`` or ``interpolate``, see
            :func:`positions_of`; None to refuse such weights.
        path: path of the checkpoint, for messages.

    Raises:
        UserError: ``how`` is given, but the model has no learned positions.  The error is also
            raised when weights are loaded that have more positions than the model, or fewer if
            ``how`` is None.
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
    """Extend learned position embeddings to a larger number of positions.

    Args:
        known: (n, C) learned embeddings of n positions.
        wanted: number of positions, at least n.
        how: ``repeat`` appends the embeddings again, beginning with the first; ``interpolate``
            stretches them to the new number by linear interpolation.

    Returns:
        (wanted, C) embeddings.
    """
    if how == "repeat":
        return known[torch.arange(wanted) % len(known)]
    columns = known.float().t().unsqueeze(0)
    longer = F.interpolate(columns, size=wanted, mode="linear", align_corners=True)
    return longer[0].t().to(known)


#: parameters with a row for each source word, and for each target word
SOURCE_ROWS = ("encoder.embed_tokens.weight",)
TARGET_ROWS = (
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
    "decoder.fc_out.weight",  # fairseq's lstm
    "decoder.fc_out.bias",
)


def joins_sentences(options: dict) -> bool:
    """Return whether a model reads several sentences as one sequence, joined by ``<sep>``.

    Args:
        options: options of a document task, as stored in its checkpoints.
    """
    if options["task"] == "full_document_translation":
        return True
    return options.get("window_size", 1) > 1 or options.get("next_sentences", 0) > 0


def begin_as_end(model: nn.Module, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
    """Let a model initialise ``<sep>`` with the parameters of ``</s>`` when it loads weights.

    A sentence-level model has not learned ``<sep>``, but it has learned ``</s>``, which also
    follows a sentence and, as the first decoder input, precedes one.

    Args:
        model: model to load into.
        src_dict, tgt_dict: dictionaries of the model, with ``<sep>``.
    """
    places = [(name, src_dict) for name in SOURCE_ROWS] + [(name, tgt_dict) for name in TARGET_ROWS]

    def copy_rows(_, state_dict: dict, prefix: str, *__) -> None:
        for name, dictionary in places:
            loaded = state_dict.get(prefix + name)
            if loaded is not None and len(loaded) == len(dictionary):
                state_dict[prefix + name] = loaded = loaded.clone()
                loaded[separator_index(dictionary)] = loaded[dictionary.eos()]
                logger.info("%s: <sep> begins as </s>", name)

    model._register_load_state_dict_pre_hook(copy_rows, with_module=True)
