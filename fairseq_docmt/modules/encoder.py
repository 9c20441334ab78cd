"""Transformer encoder whose output is shared by the beams of a sentence."""

import contextlib
from typing import Sequence

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import nn

from fairseq_docmt.modules.search_state import SharedSource


def wrapped(layer, cfg):
    """Wrap a layer as fairseq does, for activation checkpointing and sharding if they are on."""
    if cfg.checkpoint_activations:
        return fsdp_wrap(checkpoint_wrapper(layer, cfg.offload_activations), min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)


class SharedSourceEncoder(SharedSource, TransformerEncoderBase):
    """Transformer encoder whose output has one row per sentence, which all its beams share.

    The output also has a mask of ``<sep>`` and is meant for a :class:`StatefulDecoder`.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's encoder.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = separator

    def forward(self, src_tokens, *args, **kwargs):
        """Encode the source, and add two entries to the output of fairseq's encoder.

        ``separators`` is [(B, S)], True at ``<sep>``. ``beams`` is the number of beams per
        sentence, 1 before beam search.
        """
        return self._shared(super().forward(src_tokens, *args, **kwargs), src_tokens)

    def _shared(self, output, src_tokens):
        return {**output, "separators": [src_tokens.eq(self.separator)], "beams": 1}

    def _select(self, encoder_out, sentences, beams):
        selected = TransformerEncoderBase.reorder_encoder_out(
            self, {**encoder_out, "encoder_states": []}, sentences
        )
        separators = [x.index_select(0, sentences) for x in encoder_out["separators"]]
        return {**selected, "separators": separators, "beams": beams}


@contextlib.contextmanager
def pass_layer_kwargs(modules: Sequence[nn.Module], **values):
    """Pass extra keyword arguments to every call of some modules inside a ``with`` block.

    Args:
        modules: modules whose ``forward`` accepts the arguments.
        **values: values of the arguments. If a value is a list, each module gets one of its items;
            otherwise all modules get the value.
    """
    with contextlib.ExitStack() as hooks:
        for number, module in enumerate(modules):
            own = {k: v[number] if isinstance(v, list) else v for k, v in values.items()}

            def add_kwargs(_, args, kwargs, own=own):
                return args, {**kwargs, **own}

            hooks.enter_context(module.register_forward_pre_hook(add_kwargs, with_kwargs=True))
        yield
