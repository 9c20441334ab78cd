"""Encoder of ``window_attn_transformer``, which can extend the encoding of a growing source.

When a document is translated sentence by sentence, its source grows by a sentence at a time.  With
window attention, this changes the outputs of only a few earlier positions: the previous end of the
source (``</s>`` and, if present, a language tag), which new sentences replace, and tokens that
attend to this end, directly or through lower layers.  All other outputs are reused.
"""

from typing import List, NamedTuple, Optional

import torch
from fairseq import utils
from torch import Tensor

from fairseq_docmt.modules.encoder import SharedSourceEncoder, wrapped
from fairseq_docmt.modules.window.window_layers import WindowEncoderLayer


class GrowingSource(NamedTuple):
    """Encoding of sources that may grow, kept so that their longer versions can be encoded faster.

    Attributes:
        lengths: (B,) number of tokens of each source.
        levels: the embeddings, followed by the output of each layer; all are (B, S, C),
            right-padded.
        final: (B,) number of leading positions of each source whose encoder output is final, that
            is, does not change when sentences are appended.
    """

    lengths: Tensor
    levels: List[Tensor]
    final: Tensor

    def of_rows(self, order: Tensor) -> "GrowingSource":
        """Return the encoding of the sources with the indices ``order``, in this order."""
        if torch.equal(order, torch.arange(len(self.lengths), device=order.device)):
            return self
        levels = [level.index_select(0, order) for level in self.levels]
        return GrowingSource(self.lengths[order], levels, self.final[order])


def encode_growing(
    layers,
    reach: int,
    embedded: Tensor,
    lengths: Tensor,
    before: Optional[GrowingSource],
    ending: int = 1,
) -> GrowingSource:
    """Encode sources, reusing the encoding of their shorter versions from the previous call.

    Up to rounding, the result is the same as when encoding from scratch.

    Args:
        layers: encoder layers with window attention.
        reach: window size, the number of tokens on each side that a token attends to in one layer.
        embedded: (B, S, C) input of the first layer, right-padded.
        lengths: (B,) number of tokens of each source.
        before: result of the previous call, for the same rows; None in the first call.
        ending: number of tokens at the end of a source, such as ``</s>``, that change when
            sentences are appended.

    Returns:
        The encoding of the sources, to be passed as ``before`` in the next call.
    """
    if before is None:
        changed = embedded.size(1)
    else:
        changed = int((lengths - before.lengths).max()) + ending
    levels = [embedded]
    for number, layer in enumerate(layers, start=1):
        changed = min(changed + reach, embedded.size(1))
        known = None if before is None else before.levels[number]
        levels.append(_with_new_end(layer, reach, levels[-1], lengths, known, changed))
    final = (lengths - ending - reach * len(levels[1:])).clamp(min=0)
    return GrowingSource(lengths, levels, final)


def _with_new_end(layer, reach, x, lengths, known: Optional[Tensor], changed: int) -> Tensor:
    """Compute a layer's output for the last ``changed`` tokens of each source; copy the rest.

    Args:
        layer: encoder layer with window attention.
        reach: its window size.
        x: (B, S, C) input of the layer, right-padded.
        lengths: (B,) number of tokens of each source.
        known: (B, S', C) output of the layer in the previous call, from which the rest is copied;
            None in the first call.
        changed: number of tokens at the end of each source whose output is computed.

    Returns:
        (B, S, C) output of the layer.
    """
    size = min(changed + reach, x.size(1))
    columns = lengths.unsqueeze(1) - size + torch.arange(size, device=x.device)
    outside = columns < 0
    end = x.gather(1, columns.clamp(min=0).unsqueeze(-1).expand(-1, -1, x.size(2)))
    found = layer(end.transpose(0, 1), outside if outside.any() else None)
    found = found[0] if isinstance(found, tuple) else found
    output = torch.zeros_like(x)
    if known is not None:
        # The longest earlier source may not be in this batch any more.
        length = min(known.size(1), x.size(1))
        output[:, :length] = known[:, :length]
    rows, places = (~outside[:, size - changed :]).nonzero(as_tuple=True)
    places = places + size - changed
    output[rows, columns[rows, places]] = found.transpose(0, 1)[rows, places]
    return output


class WindowTransformerEncoder(SharedSourceEncoder):
    """Transformer encoder with optional window attention and relative positions."""

    @property
    def reach(self) -> Optional[int]:
        """Number of tokens on each side that a token attends to in one layer; None for all."""
        return getattr(self.layers[0].self_attn, "window", None)

    def encode_further(self, src_tokens: Tensor, before: Optional[GrowingSource]):
        """Encode sources that may have grown, reusing their encoding from the previous call.

        The encoder must have a finite :attr:`reach`.

        Args:
            src_tokens: (B, S) tokens, padded on either side.
            before: second result of the previous call, for the same rows; None in the first call.

        Returns:
            The encoder output in fairseq's format, right-padded; and the encoding of the sources,
            to be passed as ``before`` in the next call.
        """
        tokens = utils.convert_padding_direction(src_tokens, self.padding_idx, left_to_right=True)
        padding = tokens.eq(self.padding_idx)
        embedded, embedding = self.forward_embedding(tokens)
        lengths = (~padding).sum(dim=1)
        # A language tag can follow </s>; further sentences replace both.
        is_end = tokens.eq(self.dictionary.eos()).long().cumsum(dim=1).gt(0) & ~padding
        ending = max(1, int(is_end.sum(dim=1).max()))
        source = encode_growing(self.layers, self.reach, embedded, lengths, before, ending)
        x = source.levels[-1]
        x = x if self.layer_norm is None else self.layer_norm(x)
        output = {
            "encoder_out": [x.transpose(0, 1)],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [embedding],
            "encoder_states": [],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [lengths.to(torch.int32).unsqueeze(1)],
        }
        return self._shared(output, tokens), source

    def build_encoder_layer(self, cfg):
        """Build a layer with window attention or relative positions.

        If the options ask for neither, fairseq's own layer is built.
        """
        if cfg.full_encoder_attention and cfg.position == "absolute":
            return super().build_encoder_layer(cfg)
        return wrapped(WindowEncoderLayer(cfg), cfg)
