"""Self-attention that knows which tokens are in the same sentence.

The mixins of this module are combined with an attention that defines two methods:

* ``project(x)`` projects inputs (B, T, C) to queries, keys and values, each (B, H, T, d);
* ``attend(q, k, v, seen, same_sentence)`` computes the (B, T, C) output from them. ``seen`` and
  ``same_sentence`` are (B, T, S): where attention is allowed, and where query and key are in the
  same sentence.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.recent_tokens import RecentTokens


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
            ValueError: if an attention mask is given.
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
            before: earlier tokens, None for none.
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
        return output, tokens.packed(padding) if need_state else None
