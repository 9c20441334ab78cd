"""``<sep>`` of models that start from one of single sentences."""

import logging

from fairseq.data import Dictionary
from torch import nn

from fairseq_docmt.data.sequence_format import separator_index

logger = logging.getLogger(__name__)

#: parameters with a row for each source word, and for each target word
SOURCE_ROWS = ("encoder.embed_tokens.weight",)
TARGET_ROWS = (
    "decoder.embed_tokens.weight",
    "decoder.output_projection.weight",
    "decoder.fc_out.weight",  # fairseq's lstm
    "decoder.fc_out.bias",
)


def joins_sentences(options: dict) -> bool:
    """Return whether sequences have several sentences, joined by ``<sep>``.

    Args:
        options: options of a document task, as stored in its checkpoints.
    """
    if options["task"] == "full_document_translation":
        return True
    return options.get("window_size", 1) > 1 or options.get("next_sentences", 0) > 0


def begin_as_end(model: nn.Module, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
    """Let ``<sep>`` begin with the parameters of ``</s>`` when weights are loaded.

    A model of single sentences has not learned ``<sep>``, but it has learned ``</s>``, which stands
    in its place: after a sentence, and before one as the first input of the decoder.

    Args:
        model: model to load into.
        src_dict, tgt_dict: its dictionaries, with ``<sep>``.
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
