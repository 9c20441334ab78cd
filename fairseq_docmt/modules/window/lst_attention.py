"""Long-short term attention (Zhang et al. 2020; Herold and Ney 2023, section 3.2)."""

from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.shared.attention_projections import AttentionProjections
from fairseq_docmt.modules.shared.recent_tokens import RecentTokens


class _LongShortTermAttention(AttentionProjections):
    """Attention over the sentence of a token and over everything, side by side.

    Both see the same queries, keys and values, or each its own; their outputs are concatenated and
    projected.

    Args:
        embed_dim: size of input and output.
        heads: attention heads.
        dropout: probability of dropping an attention weight in training.
        separate: attention over everything has queries, keys and values of its own.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float = 0.0, separate: bool = False):
        super().__init__(embed_dim, heads, contexts=2)
        self.dropout, self.separate = dropout, separate
        if separate:
            self.long = nn.ModuleDict({name: nn.Linear(embed_dim, embed_dim) for name in "qkv"})
            for projection in self.long.values():
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)

    def _projected(self, x: Tensor) -> List[Tensor]:
        """Queries, keys and values (B, H, T, d); if separate (B, 2 H, T, d), sentence first."""
        parts = [self.split_heads(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj)]
        if not self.separate:
            return parts
        own = (self.split_heads(self.long[name](x)) for name in "qkv")
        return [torch.cat(pair, dim=1) for pair in zip(parts, own)]

    def _attend(self, q, k, v, seen: Tensor, same_sentence: Tensor) -> Tensor:
        """(B, T, C) output; q, k, v: as projected; seen and same_sentence: (B, T, S)."""
        dropout = self.dropout if self.training else 0.0
        parts = zip(*(x.chunk(2, dim=1) if self.separate else (x, x) for x in (q, k, v)))
        outputs = [
            F.scaled_dot_product_attention(*part, mask.unsqueeze(1), dropout)
            for part, mask in zip(parts, (seen & same_sentence, seen))
        ]
        return self.out_proj(torch.cat([x.transpose(1, 2).flatten(2) for x in outputs], dim=-1))


class EncoderLSTAttention(_LongShortTermAttention):
    """Over source tokens, called as fairseq calls its own attention, with ``sentences`` added."""

    def forward(self, query, key, value, sentences, key_padding_mask=None, attn_mask=None, **_):
        """Attention of source tokens.

        Args:
            query: (S, B, C) input; key and value are the same.
            sentences: (B, S) number of the sentence of each token.
            key_padding_mask: (B, S) where padding stands, None if nowhere.

        Returns:
            (S, B, C) output, and None in place of weights.
        """
        if attn_mask is not None:
            raise ValueError("long-short term attention takes no attention mask")
        x = query.transpose(0, 1)
        q, k, v = self._projected(x)
        same = sentences.unsqueeze(2) == sentences.unsqueeze(1)
        seen = torch.ones_like(same)
        if key_padding_mask is not None:
            # Padding sees itself, so that no query is left with nothing.
            own = torch.eye(x.size(1), dtype=torch.bool, device=x.device)
            seen = ~key_padding_mask.unsqueeze(1) | own
        return self._attend(q, k, v, seen, same).transpose(0, 1), None


class CausalLSTAttention(_LongShortTermAttention):
    """Over target tokens so far."""

    def forward(
        self,
        x: Tensor,
        sentences: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[RecentTokens] = None,
    ) -> Tuple[Tensor, RecentTokens]:
        """Sequences of tokens, one of them or many.

        Args:
            x: (rows, T, C) input.
            sentences: (rows, T) number of the sentence that each output belongs to.
            padding: (rows, T) where padding stands, behind all tokens of a row; None if nowhere.
            before: the tokens that were read before.

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
