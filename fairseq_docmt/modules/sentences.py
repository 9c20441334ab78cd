"""Attention that knows which tokens are in the same sentence, with its encoder and decoder.

The mixins of attention are combined with a class that defines two methods:

* ``project(x)`` projects inputs (B, T, C) to queries, keys and values, each (B, H, T, d);
* ``attend(q, k, v, seen, same_sentence)`` computes the (B, T, C) output from them. ``seen`` and
  ``same_sentence`` are (B, T, S): where attention is allowed, and where query and key are in the
  same sentence.
"""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.modules.decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.encoder import SharedSourceEncoder, pass_layer_kwargs
from fairseq_docmt.modules.layers import RecentTokens
from fairseq_docmt.modules.search_state import BeamRows


class EncoderSentenceAttention:
    """Self-attention of source tokens: fairseq's interface with ``sentences`` added."""

    def forward(self, query, key, value, sentences, key_padding_mask=None, attn_mask=None, **_):
        """Attend from every source token.

        Args:
            query: (S, B, C) input; ``key`` and ``value`` are ignored, as they are the same.
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
    """Causal self-attention of target tokens."""

    def forward(
        self,
        x: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[RecentTokens] = None,
        need_state: bool = False,
        *,
        sentences: Tensor,
    ) -> Tuple[Tensor, Optional[RecentTokens]]:
        """Attend from one or more new tokens of each row.

        Args:
            x: (rows, T, C) input, right-padded.
            padding: (rows, T) True at padding; None without padding.
            before: earlier tokens, or None.
            need_state: whether to return the tokens that later ones attend to.
            sentences: (rows, T) sentence number of the token predicted at each position.

        Returns:
            (rows, T, C) output, and all tokens so far, or None.
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
    """Current sentence number of each row, (rows,), from 0."""

    number: Tensor

    def reorder(self, rows: BeamRows) -> "SentenceNumber":
        """Return the values with the rows in the new order ``rows``."""
        return SentenceNumber(self.number.index_select(0, rows.order))


def source_sentences(separators: Tensor) -> Tensor:
    """Count the sentences before each token of a source.

    Args:
        separators: (B, S) True at ``<sep>``, which belongs to the sentence that it ends.

    Returns:
        (B, S) sentence number of each token, from 0.
    """
    ends = separators.long()
    return ends.cumsum(dim=1) - ends


class SentenceEncoder(SharedSourceEncoder):
    """Transformer encoder that passes sentence numbers to its attention layers."""

    def forward(self, src_tokens, *args, **kwargs):
        """Add the separator mask ``separators`` [(B, S)] and ``beams`` to fairseq's output."""
        sentences = source_sentences(src_tokens.eq(self.separator))
        with pass_layer_kwargs([layer.self_attn for layer in self.layers], sentences=sentences):
            return super().forward(src_tokens, *args, **kwargs)


class SentenceDecoder(StatefulDecoder):
    """Transformer decoder that passes sentence numbers to layers."""

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute the features of whole sequences (teacher forcing)."""
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
        """Return the layer states before the first token, a row for each sentence, and ``rest``.

        ``rest`` is a state that all layers share, or None.
        """
        layers, _ = super().init_layers(encoder_out)
        return layers, _first_sentences(batch_first_source(encoder_out)[0])

    def marks(self, tokens, rest):
        """Return the sentence number of each token, and of the last token as ``rest``."""
        sentences = rest.number.unsqueeze(1) + tokens.eq(self.separator).cumsum(dim=1)
        return {"sentences": sentences}, SentenceNumber(sentences[:, -1])


def _first_sentences(source: Tensor) -> SentenceNumber:
    return SentenceNumber(torch.zeros(len(source), dtype=torch.long, device=source.device))
