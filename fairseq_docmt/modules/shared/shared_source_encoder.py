"""Transformer encoder whose output is shared by the beams of a sentence."""

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper

from fairseq_docmt.modules.shared.beam_rows import split_order


def wrapped(layer, cfg):
    """Wrap a layer for activation checkpointing and sharding, as fairseq does with its layers."""
    if cfg.checkpoint_activations:
        return fsdp_wrap(checkpoint_wrapper(layer, cfg.offload_activations), min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)


class SharedSource:
    """Mixin for encoders whose output has one row for each sentence, shared by its beams.

    Subclasses define ``_select(encoder_out, sentences, beams)``, which returns the output for a
    selection of sentences. The output has the number of beams as ``beams``.
    """

    def reorder_encoder_out(self, encoder_out, new_order):
        """Reorder the rows; the beams of a sentence still share its output."""
        bsz = encoder_out["encoder_padding_mask"][0].size(0)
        beams = encoder_out["beams"]
        rows = split_order(new_order, bsz, beams)
        if rows is None:
            sentences = torch.div(new_order, beams, rounding_mode="floor")
            return self._select(encoder_out, sentences, 1)
        if rows.sentences is None:
            return {**encoder_out, "beams": rows.beams}
        return self._select(encoder_out, rows.sentences, rows.beams)


class SharedSourceEncoder(SharedSource, TransformerEncoderBase):
    """Transformer encoder that adds a separator mask and does not copy its output for beams.

    Its output is meant for a :class:`StatefulDecoder`.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's encoder.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = separator

    def forward(self, src_tokens, *args, **kwargs):
        """Add the separator mask ``separators`` [(B, S)] and ``beams`` to fairseq's output."""
        return self._shared(super().forward(src_tokens, *args, **kwargs), src_tokens)

    def _shared(self, output, src_tokens):
        return {**output, "separators": [src_tokens.eq(self.separator)], "beams": 1}

    def _select(self, encoder_out, sentences, beams):
        selected = TransformerEncoderBase.reorder_encoder_out(
            self, {**encoder_out, "encoder_states": []}, sentences
        )
        separators = [x.index_select(0, sentences) for x in encoder_out["separators"]]
        return {**selected, "separators": separators, "beams": beams}
