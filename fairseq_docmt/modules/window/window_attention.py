"""Multi-head attention within a window (Herold and Ney 2023); parameters bear fairseq's names."""

from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_docmt.modules.shared.attention_projections import AttentionProjections
from fairseq_docmt.modules.shared.full_attention import AttendedSource
from fairseq_docmt.modules.shared.recent_tokens import RecentTokens
from fairseq_docmt.ops.window_attention import Window, window_attention


class _WindowAttention(AttentionProjections):
    """Projections, and relative positions if asked for.

    Args:
        embed_dim: size of queries and of the output.
        heads: attention heads.
        window: keys to see on each side of the alignment; None for all.
        dropout: probability of dropping an attention weight in training.
        relative: learn a vector, shared by the heads, for each relative position up to this
            distance; keys farther away have the position of that distance.  None for none.
        key_dim: size of keys, that of queries by default.
    """

    def __init__(
        self,
        embed_dim: int,
        heads: int,
        window: Optional[int],
        dropout: float = 0.0,
        relative: Optional[int] = None,
        key_dim: Optional[int] = None,
    ):
        super().__init__(embed_dim, heads, key_dim)
        self.window, self.dropout, self.farthest = window, dropout, relative
        self.relative = None
        if relative is not None:
            self.relative = nn.Parameter(torch.empty(2 * relative + 1, self.head_dim))
            nn.init.normal_(self.relative, std=self.head_dim**-0.5)

    def _queries(self, x: Tensor) -> Tensor:
        return self.split_heads(self.q_proj(x)) * self.head_dim**-0.5

    def _attend(self, q, k, v, centers, causal, padding) -> Tensor:
        size = k.size(2) if self.window is None else self.window
        window = Window(centers, size, causal, padding, self.farthest)
        dropout = self.dropout if self.training else 0.0
        output = window_attention(q, k, v, window, self.relative, dropout)
        return self.out_proj(output.transpose(1, 2).flatten(2))


class CausalWindowAttention(_WindowAttention):
    """Attention of target tokens over the w before them and themselves."""

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
        q = self._queries(x)
        k, v = self.split_heads(self.k_proj(x)), self.split_heads(self.v_proj(x))
        if before is None and not need_state:
            columns = torch.arange(x.size(1), device=x.device).expand(len(x), -1)
            return self._attend(q, k, v, columns, True, padding), None
        tokens = RecentTokens.of(k, v, padding)
        if before is not None:
            tokens = before.followed_by(tokens)
        past = tokens.keys.size(2) - x.size(1)
        columns = torch.arange(past, past + x.size(1), device=x.device).expand(len(x), -1)
        output = self._attend(q, tokens.keys, tokens.values, columns, True, tokens.hidden)
        return output, tokens.packed(padding).latest(self.window)


class CrossWindowAttention(_WindowAttention):
    """Attention of target tokens over the source around their alignment."""

    def project_source(self, source: Tensor, padding: Optional[Tensor]) -> AttendedSource:
        """Keys and values of a source (B, S, C)."""
        keys, values = self.split_heads(self.k_proj(source)), self.split_heads(self.v_proj(source))
        return AttendedSource(keys, values, padding)

    def forward(self, x: Tensor, memory: AttendedSource, centers: Tensor) -> Tensor:
        """(B, T, C) attention of queries (B, T, C) aligned to source columns (B, T)."""
        q = self._queries(x)
        return self._attend(q, memory.keys, memory.values, centers, False, memory.padding)

    def weights(self, x: Tensor, memory: AttendedSource, centers: Tensor) -> Tensor:
        """(B, H, T, S) attention weights, all of them; for analysis, not for long sequences."""
        logits = self._queries(x) @ memory.keys.transpose(-1, -2)
        columns = torch.arange(logits.size(-1), device=x.device)
        size = logits.size(-1) if self.window is None else self.window
        hidden = (columns - centers.unsqueeze(-1)).abs() > size
        if memory.padding is not None:
            hidden = hidden | memory.padding.unsqueeze(1)
        return logits.masked_fill(hidden.unsqueeze(1), -float("inf")).softmax(dim=-1)

    def step(self, x: Tensor, memory: AttendedSource, centers: Tensor) -> Tensor:
        """(B * N, C) attention of one query for each row, N beams of a sentence side by side."""
        bsz, length = memory.keys.size(0), memory.keys.size(2)
        if self.window is None or 2 * self.window + 1 >= length:
            return self(x.unflatten(0, (bsz, -1)), memory, centers.view(bsz, -1)).flatten(0, 1)
        around = torch.arange(-self.window, self.window + 1, device=x.device)
        columns = centers.unsqueeze(1) + around
        hidden = (columns < 0) | (columns >= length)
        columns = columns.clamp(0, length - 1)
        owners = torch.arange(bsz, device=x.device).repeat_interleave(len(x) // bsz).unsqueeze(1)
        if memory.padding is not None:
            hidden = hidden | memory.padding[owners, columns]
        keys, values = memory.keys[owners, :, columns], memory.values[owners, :, columns]
        q = self._queries(x.unsqueeze(1))  # (rows, H, 1, d)
        logits = q @ keys.permute(0, 2, 3, 1)
        weights = logits.masked_fill(hidden[:, None, None], -float("inf")).softmax(dim=-1)
        return self.out_proj((weights @ values.transpose(1, 2)).flatten(1))


class EncoderWindowAttention(_WindowAttention):
    """Attention of source tokens over those around them, called as fairseq calls its own."""

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, **_):
        """(S, B, C) attention within the window, and None in place of weights."""
        if attn_mask is not None:
            raise ValueError("window attention takes no attention mask")
        x = query.transpose(0, 1)
        q, k, v = (
            self._queries(x),
            self.split_heads(self.k_proj(x)),
            self.split_heads(self.v_proj(x)),
        )
        columns = torch.arange(x.size(1), device=x.device).expand(len(x), -1)
        output = self._attend(q, k, v, columns, False, key_padding_mask)
        return output.transpose(0, 1), None
