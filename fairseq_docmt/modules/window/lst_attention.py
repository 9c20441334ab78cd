"""Long-short term attention (Zhang et al. 2020; Herold and Ney 2023, section 3.2)."""

from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.shared.attention_projections import AttentionProjections
from fairseq_docmt.modules.shared.recent_tokens import RecentTokens


class _LongShortTermAttention(AttentionProjections):
    """Attention to the sentence of a token and to the whole sequence, in parallel.

    The outputs of both are concatenated and projected.

    Args:
        embed_dim: size of inputs and outputs.
        heads: number of attention heads.
        dropout: dropout probability of attention weights.
        separate: whether attention to the whole sequence has its own query, key and value
            projections; default: shared.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float = 0.0, separate: bool = False):
        super().__init__(embed_dim, heads, contexts=2)
        self.dropout, self.separate = dropout, separate
        if separate:
            self.long = nn.ModuleDict({name: nn.Linear(embed_dim, embed_dim) for name in "qkv"})
            for projection in self.long.values():
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)

    def _projected(self, x: Tensor) -> List[Tensor]:
        """Project inputs to queries, keys and values (B, H, T, d).

        With separate projections they are (B, 2 H, T, d), sentence attention first.
        """
        parts = [self.split_heads(self.q_proj(x)), *self.keys_and_values(x)]
        if not self.separate:
            return parts
        own = (self.split_heads(self.long[name](x)) for name in "qkv")
        return [torch.cat(pair, dim=1) for pair in zip(parts, own)]

    def _attend(self, q, k, v, seen: Tensor, same_sentence: Tensor) -> Tensor:
        """Compute (B, T, C) output.

        Args:
            q, k, v: projected queries, keys and values.
            seen: (B, T, S) True where attention is allowed.
            same_sentence: (B, T, S) True where query and key are in the same sentence.
        """
        dropout = self.dropout if self.training else 0.0
        parts = zip(*(x.chunk(2, dim=1) if self.separate else (x, x) for x in (q, k, v)))
        outputs = [
            F.scaled_dot_product_attention(*part, mask.unsqueeze(1), dropout)
            for part, mask in zip(parts, (seen & same_sentence, seen))
        ]
        return self.out_proj(torch.cat([x.transpose(1, 2).flatten(2) for x in outputs], dim=-1))


class EncoderLSTAttention(_LongShortTermAttention):
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
            raise ValueError("long-short term attention does not support an attention mask")
        x = query.transpose(0, 1)
        q, k, v = self._projected(x)
        same = sentences.unsqueeze(2) == sentences.unsqueeze(1)
        seen = torch.ones_like(same)
        if key_padding_mask is not None:
            # Padding attends to itself: a fully masked row would give NaN.
            own = torch.eye(x.size(1), dtype=torch.bool, device=x.device)
            seen = ~key_padding_mask.unsqueeze(1) | own
        return self._attend(q, k, v, seen, same).transpose(0, 1), None


class CausalLSTAttention(_LongShortTermAttention):
    """Causal attention of target tokens."""

    def forward(
        self,
        x: Tensor,
        sentences: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[RecentTokens] = None,
    ) -> Tuple[Tensor, RecentTokens]:
        """Attend from one or more new tokens of each row.

        Args:
            x: (rows, T, C) input, right-padded.
            sentences: (rows, T) sentence number of the token predicted at each position.
            padding: (rows, T) True at padding; None without padding.
            before: previously read tokens, None for none.

        Returns:
            (rows, T, C) output, and all tokens read.
        """
        q, k, v = self._projected(x)
        tokens = RecentTokens.of(k, v, padding, sentences)
        if before is not None:
            tokens = before.followed_by(tokens)
        length, past = tokens.keys.size(2), tokens.keys.size(2) - x.size(1)
        columns = torch.arange(length, device=x.device)
        own = columns[past:].unsqueeze(1)
        seen = (columns <= own) & ~tokens.hidden.unsqueeze(1) | (columns == own)
        same = sentences.unsqueeze(2) == tokens.sentences.unsqueeze(1)
        output = self._attend(q, tokens.keys, tokens.values, seen, same)
        return output, tokens.packed(padding)
