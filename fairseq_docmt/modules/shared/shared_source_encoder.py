"""Stock transformer encoder whose output the beams of a sentence share."""

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper

from fairseq_docmt.modules.shared.beam_rows import split_order


def wrapped(layer, cfg):
    """A layer with activation checkpointing and sharding as fairseq wraps its own layers."""
    if cfg.checkpoint_activations:
        return fsdp_wrap(checkpoint_wrapper(layer, cfg.offload_activations), min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)


class SharedSource:
    """Encoder output whose rows are sentences, shared by the beams of each (``beams`` in it).

    An encoder says in ``_select(encoder_out, sentences, beams)`` how some sentences are taken out.
    """

    def reorder_encoder_out(self, encoder_out, new_order):
        """New order of the rows; those of one sentence go on sharing its output."""
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
    """Adds where separators stand, and does not copy what all beams of a sentence share.

    It is for decoders that know this (:class:`StatefulDecoder`).

    Args:
        cfg, dictionary, embed_tokens: as in the stock encoder, with the options of the model.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = separator

    def forward(self, src_tokens, *args, **kwargs):
        """Stock output, with ``separators``: [(B, S)] where ``<sep>`` stands, and ``beams``."""
        return self._shared(super().forward(src_tokens, *args, **kwargs), src_tokens)

    def _shared(self, output, src_tokens):
        return {**output, "separators": [src_tokens.eq(self.separator)], "beams": 1}

    def _select(self, encoder_out, sentences, beams):
        selected = TransformerEncoderBase.reorder_encoder_out(
            self, {**encoder_out, "encoder_states": []}, sentences
        )
        separators = [x.index_select(0, sentences) for x in encoder_out["separators"]]
        return {**selected, "separators": separators, "beams": beams}
