"""Multi-head attention: projections with fairseq's parameter names, and full attention."""

from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.search_state import RecentTokens
from fairseq_docmt.ops.masked_attention import masked_attention


class AttentionProjections(nn.Module):
    """Base class of all attention modules; parameters can come from a trained transformer.

    Args:
        embed_dim: size of queries and outputs.
        heads: number of attention heads.
        key_dim: input size of the key and value projections; default: ``embed_dim``.
        contexts: number of context vectors concatenated before the output projection.
    """

    def __init__(
        self, embed_dim: int, heads: int, key_dim: Optional[int] = None, contexts: int = 1
    ):
        super().__init__()
        key_dim = key_dim or embed_dim
        self.num_heads, self.head_dim = heads, embed_dim // heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(key_dim, embed_dim)
        self.v_proj = nn.Linear(key_dim, embed_dim)
        self.out_proj = nn.Linear(contexts * embed_dim, embed_dim)
        # As in fairseq's attention with equal sizes of queries, keys and values.
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def split_heads(self, x):
        """Reshape (B, T, C) to (B, H, T, d)."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def keys_and_values(self, x):
        """Project inputs (B, T, C) to keys and values, both (B, H, T, d)."""
        return self.split_heads(self.k_proj(x)), self.split_heads(self.v_proj(x))


class AttendedSource(NamedTuple):
    """Keys and values of a source, shared by the beams of a sentence.

    Attributes:
        keys, values: (B, H, S, d).
        padding: (B, S) True at padding; None without padding.
        sentences: (B, S) sentence number of each token, None if not needed.
    """

    keys: Tensor
    values: Tensor
    padding: Optional[Tensor]
    sentences: Optional[Tensor] = None

    def of_sentences(self, sentences: Tensor) -> "AttendedSource":
        """Select sentences by index."""
        return AttendedSource(*(None if x is None else x.index_select(0, sentences) for x in self))


class CachedCausalAttention:
    """Mixin for causal attention of target tokens, in one pass or continued from a cache.

    The other base class gives ``queries`` and ``keys_and_values`` of (rows, T, C) input. A subclass
    defines :meth:`attend_sequence` and :meth:`attend_cached`.

    Attributes:
        window: number of earlier tokens that a token attends to; None for all.
    """

    window: Optional[int] = None

    def attend_sequence(self, q: Tensor, k: Tensor, v: Tensor, padding: Optional[Tensor]) -> Tensor:
        """Attend from the queries of T tokens to the same tokens, giving (rows, T, C)."""
        raise NotImplementedError

    def attend_cached(self, q: Tensor, tokens: RecentTokens) -> Tensor:
        """Attend from the queries of the latest T cached tokens to the cache: (rows, T, C)."""
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[RecentTokens] = None,
        need_state: bool = False,
        **_,
    ) -> Tuple[Tensor, Optional[RecentTokens]]:
        """Attend from one or more new tokens of each row.

        Args:
            x: (rows, T, C) input, right-padded.
            padding: (rows, T) True at padding; None without padding.
            before: previously read tokens, None for none.
            need_state: whether to return the tokens that later ones attend to.

        Returns:
            (rows, T, C) output; and these tokens, or None if neither ``before`` nor ``need_state``
            is given.
        """
        q = self.queries(x)
        k, v = self.keys_and_values(x)
        if before is None and not need_state:
            return self.attend_sequence(q, k, v, padding), None
        tokens = RecentTokens.of(k, v, padding)
        if before is not None:
            tokens = before.followed_by(tokens)
        return self.attend_cached(q, tokens), tokens.packed(padding).latest(self.window)


class _FullAttention(AttentionProjections):
    def __init__(self, embed_dim: int, heads: int, dropout: float, key_dim: Optional[int] = None):
        super().__init__(embed_dim, heads, key_dim)
        self.dropout = dropout

    def queries(self, x: Tensor) -> Tensor:
        """Project inputs (B, T, C) to queries (B, H, T, d)."""
        return self.split_heads(self.q_proj(x))

    def _attend(self, q, k, v, seen: Optional[Tensor], causal: bool = False) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        if seen is None:
            output = F.scaled_dot_product_attention(q, k, v, None, dropout, is_causal=causal)
        else:
            output = masked_attention(q, k, v, seen, dropout)
        return self.out_proj(output.transpose(1, 2).flatten(2))


class CausalAttention(CachedCausalAttention, _FullAttention):
    """Attention of target tokens to themselves and all earlier target tokens."""

    def attend_sequence(self, q, k, v, padding):
        """See the base class. With right padding the causal mask also hides padding."""
        return self._attend(q, k, v, None, causal=True)

    def attend_cached(self, q, tokens):
        """See the base class."""
        seen = ~tokens.hidden[:, None, None]
        if q.size(2) > 1:
            length, total = q.size(2), tokens.keys.size(2)
            order = torch.ones(length, total, dtype=torch.bool, device=q.device)
            seen = seen & order.tril(total - length)
            # Padding outputs are unused, but a fully masked row would give NaN.
            seen = seen | (~seen.any(-1, keepdim=True))
        return self._attend(q, tokens.keys, tokens.values, seen)


class SourceAttention(_FullAttention):
    """Attention to a source; the queries of several beams can share a source."""

    def project_source(
        self, source: Tensor, padding: Optional[Tensor] = None, **_
    ) -> AttendedSource:
        """Compute keys and values of a source (B, S, C) with padding mask (B, S)."""
        return AttendedSource(*self.keys_and_values(source), padding)

    def forward(self, x: Tensor, source: AttendedSource, **_) -> Tensor:
        """Attend from queries (B * N, T, C), N consecutive rows for each source."""
        by_source = x.unflatten(0, (len(source.keys), -1)).flatten(1, 2)
        seen = None if source.padding is None else ~source.padding[:, None, None]
        return self._attend(self.queries(by_source), source.keys, source.values, seen).view_as(x)

    def weights(self, x: Tensor, source: AttendedSource, **_) -> Tensor:
        """Compute (B, H, T, S) attention weights of queries (B, T, C)."""
        q = self.queries(x) * self.head_dim**-0.5
        logits = q @ source.keys.transpose(-1, -2)
        if source.padding is not None:
            logits = logits.masked_fill(source.padding[:, None, None], -float("inf"))
        return logits.softmax(dim=-1)
