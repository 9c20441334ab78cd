"""Multi-head attention over everything by torch's own kernel; parameters bear fairseq's names."""

from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_docmt.modules.shared.attention_projections import AttentionProjections
from fairseq_docmt.modules.shared.recent_tokens import RecentTokens


class AttendedSource(NamedTuple):
    """Keys and values of a source, shared by the beams of a sentence.

    Attributes:
        keys, values: (B, H, S, d).
        padding: (B, S) where padding stands, None if nowhere.
    """

    keys: Tensor
    values: Tensor
    padding: Optional[Tensor]

    def of_sentences(self, sentences: Tensor) -> "AttendedSource":
        """Of some of the sentences, by index."""
        return AttendedSource(*(None if x is None else x.index_select(0, sentences) for x in self))


class _FullAttention(AttentionProjections):
    def __init__(
        self, embed_dim: int, heads: int, dropout: float = 0.0, key_dim: Optional[int] = None
    ):
        super().__init__(embed_dim, heads, key_dim)
        self.dropout = dropout

    def _attend(self, q, k, v, seen: Optional[Tensor], causal: bool = False) -> Tensor:
        output = F.scaled_dot_product_attention(
            q, k, v, seen, self.dropout if self.training else 0.0, is_causal=causal
        )
        return self.out_proj(output.transpose(1, 2).flatten(2))


class CausalAttention(_FullAttention):
    """Attention of target tokens over those before them and themselves."""

    def forward(
        self,
        x: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[RecentTokens] = None,
        need_state: bool = False,
    ) -> Tuple[Tensor, Optional[RecentTokens]]:
        """Sequences of tokens, one of them or many.

        Args:
            x: (rows, T, C) input.
            padding: (rows, T) where padding stands, behind all tokens of a row; None if nowhere.
            before: the tokens that were read before.
            need_state: return the tokens that later ones will see.

        Returns:
            (rows, T, C) output, and state or None.
        """
        q, k, v = (self.split_heads(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj))
        if before is None and not need_state:
            # Padding lies behind the tokens, none of which looks there.
            return self._attend(q, k, v, None, causal=True), None
        tokens = RecentTokens.of(k, v, padding)
        if before is not None:
            tokens = before.followed_by(tokens)
        seen = ~tokens.hidden[:, None, None]
        if x.size(1) > 1:
            length, total = x.size(1), tokens.keys.size(2)
            order = torch.ones(length, total, dtype=torch.bool, device=x.device)
            seen = seen & order.tril(total - length)
            # What stands at padding is nobody's; it must see something all the same.
            seen = seen | (~seen.any(-1, keepdim=True))
        return self._attend(q, tokens.keys, tokens.values, seen), tokens.packed(padding)


class SourceAttention(_FullAttention):
    """Attention over a source, which the queries of several beams may share."""

    def project_source(self, source: Tensor, padding: Optional[Tensor] = None) -> AttendedSource:
        """Keys and values of a source (B, S, C), of which padding (B, S) is never seen."""
        keys, values = self.split_heads(self.k_proj(source)), self.split_heads(self.v_proj(source))
        return AttendedSource(keys, values, padding)

    def forward(self, x: Tensor, source: AttendedSource) -> Tensor:
        """(B * N, T, C) attention of queries (B * N, T, C), N rows for each source in turn."""
        queries = x.unflatten(0, (len(source.keys), -1)).flatten(1, 2)
        seen = None if source.padding is None else ~source.padding[:, None, None]
        q = self.split_heads(self.q_proj(queries))
        return self._attend(q, source.keys, source.values, seen).view_as(x)

    def weights(self, x: Tensor, source: AttendedSource) -> Tensor:
        """(B, H, T, S) attention weights of queries (B, T, C)."""
        q = self.split_heads(self.q_proj(x)) * self.head_dim**-0.5
        logits = q @ source.keys.transpose(-1, -2)
        if source.padding is not None:
            logits = logits.masked_fill(source.padding[:, None, None], -float("inf"))
        return logits.softmax(dim=-1)
