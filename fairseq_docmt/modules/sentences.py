"""Encoder, decoder and mixins for attention that know which tokens are in the same sentence.

An attention mixin is combined with a class that defines two methods:

* ``project(x)`` projects inputs (B, T, C) to queries, keys and values, each (B, H, T, d);
* ``attend(q, k, v, seen, same_sentence)`` computes the (B, T, C) output from them. ``seen`` is True
  where attention is allowed, ``same_sentence`` where query and key are in the same sentence; both
  are (B, T, S).

Shapes: B rows, H heads, T queries, S keys, model dimension C, head dimension d.
"""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.modules.decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.encoder import SharedSourceEncoder, pass_layer_kwargs
from fairseq_docmt.modules.layers import RecentTokens
from fairseq_docmt.modules.search_state import BeamRows


class EncoderSentenceAttention:
    """Mixin for self-attention of source tokens that are numbered by sentence.

    The interface is that of fairseq's attention, with one more argument ``sentences``.
    """

    def forward(self, query, key, value, sentences, key_padding_mask=None, attn_mask=None, **_):
        """Attend from every source token to all source tokens, given the sentence of each token.

        Args:
            query: (S, B, C) input; ``key`` and ``value`` are the same tensor and are ignored.
            sentences: (B, S) sentence number of each token.
            key_padding_mask: (B, S) True at padding; None without padding.

        Returns:
            (S, B, C) output, and None instead of attention weights.

        Raises:
            ValueError: an attention mask is given.
        """
        if attn_mask is not None:
            raise ValueError("attention by sentence does not support an attention mask")
        x = query.transpose(0, 1)
        same = sentences.unsqueeze(2) == sentences.unsqueeze(1)
        seen = torch.ones_like(same)
        if key_padding_mask is not None:
            # Padding attends to itself: a fully masked row would give NaN.
            own = torch.eye(x.size(1), dtype=torch.bool, device=x.device)
            seen = ~key_padding_mask.unsqueeze(1) | own
        return self.attend(*self.project(x), seen, same).transpose(0, 1), None


class CausalSentenceAttention:
    """Mixin for causal self-attention in which each target token has the number of its sentence.

    The layer knows which tokens are in the same sentence, also in incremental decoding.
    """

    def forward(
        self,
        x: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[RecentTokens] = None,
        need_state: bool = False,
        *,
        sentences: Tensor,
    ) -> Tuple[Tensor, Optional[RecentTokens]]:
        """Attend from each new token to itself and to all earlier tokens of its row.

        Subclasses decide in ``attend`` how tokens of the same sentence and of others are treated.

        Args:
            x: (rows, T, C) input, right-padded.
            padding: (rows, T) True at padding; None without padding.
            before: cache of earlier tokens, or None.
            need_state: whether to return the cache to which later tokens will attend.
            sentences: (rows, T) sentence number of the token that is predicted at each position.

        Returns:
            (rows, T, C) output, and the cache of all tokens so far; None without ``need_state``.
        """
        q, k, v = self.project(x)
        tokens = RecentTokens.of(k, v, padding, sentences)
        if before is not None:
            tokens = before.followed_by(tokens)
        length, past = tokens.keys.size(2), tokens.keys.size(2) - x.size(1)
        columns = torch.arange(length, device=x.device)
        own = columns[past:].unsqueeze(1)
        seen = (columns <= own) & ~tokens.hidden.unsqueeze(1) | (columns == own)
        same = sentences.unsqueeze(2) == tokens.sentences.unsqueeze(1)
        output = self.attend(q, tokens.keys, tokens.values, seen, same)
        return output, tokens.right_aligned(padding) if need_state else None


class SentenceNumber(NamedTuple):
    """Number of the current sentence of each row, counted from 0.

    Attributes:
        number: (rows,) int64 sentence numbers.
    """

    number: Tensor

    def reorder(self, rows: BeamRows) -> "SentenceNumber":
        """Return the sentence numbers with the batch rows in the new order ``rows``."""
        return SentenceNumber(self.number.index_select(0, rows.order))


def source_sentences(separators: Tensor) -> Tensor:
    """Return the sentence number of each source token.

    Args:
        separators: (B, S) True at ``<sep>``, which belongs to the sentence that it ends.

    Returns:
        (B, S) sentence numbers, from 0.
    """
    ends = separators.long()
    return ends.cumsum(dim=1) - ends


class SentenceEncoder(SharedSourceEncoder):
    """Transformer encoder that passes sentence numbers to its attention layers."""

    def forward(self, src_tokens, *args, **kwargs):
        """Encode the source, passing the sentence number of each token to the attention modules.

        The result is that of :meth:`SharedSourceEncoder.forward`: fairseq's encoder output, the
        positions of ``<sep>`` as ``separators``, and the number of beams per sentence as ``beams``.
        """
        sentences = source_sentences(src_tokens.eq(self.separator))
        with pass_layer_kwargs([layer.self_attn for layer in self.layers], sentences=sentences):
            return super().forward(src_tokens, *args, **kwargs)


class SentenceDecoder(StatefulDecoder):
    """Transformer decoder that passes sentence numbers to its layers."""

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute features with sentence-aware attention over whole sequences (teacher forcing).

        Arguments and results are the same as for :meth:`StatefulDecoder.forward_sequence`.
        """
        source, padding, separators = batch_first_source(encoder_out)
        marks, _ = self.marks(tokens, _first_sentences(source))
        (x,), _, weights = self.run_layers(
            [x],
            lambda number, layer, _: [layer.init_state(source, padding, separators=separators)],
            weights_of=weights_of,
            padding=self._padding(tokens),
            **marks,
        )
        return x, {"attn": weights or [None]}

    def init_layers(self, encoder_out):
        """Return the initial state of each layer, and the sentence number of each row, which is 0.

        The sentence numbers are the state that all layers share.
        """
        layers, _ = super().init_layers(encoder_out)
        return layers, _first_sentences(batch_first_source(encoder_out)[0])

    def marks(self, tokens, rest):
        """Compute the sentence number at each new token, as an additional input of the layers.

        Args:
            tokens: (rows, T) new tokens.
            rest: sentence numbers before these tokens, the state that all layers share.

        Returns:
            Dict with ``sentences``, the (rows, T) sentence numbers; and the sentence number after
            the last token of each row, as the new shared state.
        """
        sentences = rest.number.unsqueeze(1) + tokens.eq(self.separator).cumsum(dim=1)
        return {"sentences": sentences}, SentenceNumber(sentences[:, -1])


def _first_sentences(source: Tensor) -> SentenceNumber:
    return SentenceNumber(torch.zeros(len(source), dtype=torch.long, device=source.device))
