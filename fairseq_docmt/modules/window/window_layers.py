"""Window attention and the layers that use it (Herold and Ney 2023).

Parameters have fairseq's names. Shapes: B batch rows, H heads of size d, T target or S source
tokens, model dimension C, window size w, N beams.
"""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.layers import (
    AttendedSource,
    AttentionProjections,
    CachedCausalAttention,
    DecoderLayer,
)
from fairseq_docmt.ops.window_attention import Window, window_attention


class _WindowAttention(AttentionProjections):
    """Base class of window attention with optional relative positions.

    Args:
        embed_dim: size of queries and outputs.
        heads: number of attention heads.
        window: number of keys to attend to on each side of the key that a query is aligned to;
            None for all keys.
        dropout: dropout probability of attention weights.
        relative: maximum distance of relative positions. Each distance up to it has a learned
            vector shared by the heads, whose product with the query is added to the logit (Shaw et
            al. 2018); farther keys use the vector of the maximum distance. None for no relative
            positions.
        key_dim: size of keys; default: ``embed_dim``.
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

    def queries(self, x: Tensor) -> Tensor:
        """Project inputs (B, T, C) to queries (B, H, T, d), scaled by ``d ** -0.5``."""
        return self.split_heads(self.q_proj(x)) * self.head_dim**-0.5

    def _attend(self, q, k, v, centers, causal, padding, first: int = 0) -> Tensor:
        size = k.size(2) if self.window is None else self.window
        window = Window(centers, size, causal, padding, self.farthest, first)
        dropout = self.dropout if self.training else 0.0
        output = window_attention(q, k, v, window, self.relative, dropout)
        return self.out_proj(output.transpose(1, 2).flatten(2))


class CausalWindowAttention(CachedCausalAttention, _WindowAttention):
    """Causal attention of each target token to itself and the ``window`` tokens before it."""

    def forward(self, x, padding=None, before=None, need_state=False, **_):
        """Attend from one or more new tokens of each row to the tokens in their windows.

        Arguments and results are those of ``CachedCausalAttention.forward``, but in a single step
        input and output may be (rows, C).
        """
        if x.dim() > 2:
            return super().forward(x, padding, before, need_state)
        x, tokens = super().forward(x.unsqueeze(1), padding, before, need_state)
        return x.squeeze(1), tokens

    def attend_sequence(self, q, k, v, padding):
        """Attend from each of T tokens to itself and its window; return (rows, T, C)."""
        return self._attend(q, k, v, None, True, padding)

    def attend_cached(self, q, tokens):
        """Attend from the latest T tokens in the cache ``tokens``; return (rows, T, C).

        Each of these tokens attends to itself and the cached tokens before it, within the window.
        """
        first = tokens.keys.size(2) - q.size(2)
        if q.size(2) == 1:
            return self._attend_latest(q, tokens, first)
        return self._attend(q, tokens.keys, tokens.values, None, True, tokens.hidden, first)

    def _attend_latest(self, q, tokens, earlier: int) -> Tensor:
        """Attend from the latest token to the whole cache, which holds only tokens in its window.

        Args:
            q: (rows, H, 1, d) query.
            tokens: cache of the token and ``earlier`` tokens before it.
            earlier: number of earlier tokens.
        """
        logits = q @ tokens.keys.transpose(-1, -2)
        if self.relative is not None:
            distance = torch.arange(-earlier, 1, device=q.device)
            vectors = self.relative[(distance + self.farthest).clamp(min=0)]
            logits = logits + q @ vectors.t()
        # Outputs at padding are not used, but without any key they would be NaN.
        hidden = F.pad(tokens.hidden[:, :-1], (0, 1))
        weights = logits.masked_fill(hidden[:, None, None], -float("inf")).softmax(dim=-1)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.out_proj((weights @ tokens.values).transpose(1, 2).flatten(2))


class CrossWindowAttention(_WindowAttention):
    """Attention of each target token to the source tokens around its aligned position."""

    def project_source(self, source: Tensor, padding: Optional[Tensor], **_) -> AttendedSource:
        """Compute keys and values of a source (B, S, C) with padding mask (B, S)."""
        return AttendedSource(*self.keys_and_values(source), padding)

    def forward(self, x: Tensor, memory: AttendedSource, centers) -> Tensor:
        """Attend from target tokens to the source tokens around their aligned positions.

        Args:
            x: (B, T, C) target tokens; in a single step (B * N, C), the N beams of a sentence
                adjacent.
            memory: keys and values of the source.
            centers: (B, T) aligned source positions; in a single step the result of :meth:`around`.

        Returns:
            Output of the shape of ``x``.
        """
        if x.dim() == 2:
            return self._step(x, memory, centers)
        q = self.queries(x)
        return self._attend(q, memory.keys, memory.values, centers, False, memory.padding)

    def weights(self, x: Tensor, memory: AttendedSource, centers: Tensor) -> Tensor:
        """Compute the full matrix of attention weights, (B, H, T, S).

        For analysis: memory is quadratic in length.
        """
        logits = self.queries(x) @ memory.keys.transpose(-1, -2)
        return logits.masked_fill(self._hidden(memory, centers), -float("inf")).softmax(dim=-1)

    def _hidden(self, memory: AttendedSource, centers: Tensor) -> Tensor:
        """Return a (B, 1, T, S) mask, True at source positions outside the window or at padding."""
        length = memory.keys.size(2)
        columns = torch.arange(length, device=centers.device)
        size = length if self.window is None else self.window
        hidden = (columns - centers.unsqueeze(-1)).abs() > size
        if memory.padding is not None:
            hidden = hidden | memory.padding.unsqueeze(1)
        return hidden.unsqueeze(1)

    def around(self, memory: AttendedSource, centers: Tensor) -> "SourceWindow":
        """Return the source windows of a decoding step.

        Args:
            memory: keys and values of the sources of B sentences.
            centers: (B * N,) aligned source positions of N beams per sentence.
        """
        bsz, length = memory.keys.size(0), memory.keys.size(2)
        if self.window is None or 2 * self.window + 1 >= length:
            return SourceWindow(None, None, self._hidden(memory, centers.view(bsz, -1)))
        offsets = torch.arange(-self.window, self.window + 1, device=centers.device)
        columns = centers.unsqueeze(1) + offsets
        hidden = (columns < 0) | (columns >= length)
        columns = columns.clamp(0, length - 1)
        owners = torch.arange(bsz, device=centers.device).unsqueeze(1)
        owners = owners.repeat_interleave(len(centers) // bsz, dim=0)
        if memory.padding is not None:
            hidden = hidden | memory.padding[owners, columns]
        return SourceWindow(columns, owners, hidden[:, None, None])

    def _step(self, x: Tensor, memory: AttendedSource, seen: "SourceWindow") -> Tensor:
        """Attend from one query of each beam to its source window.

        Args:
            x: (B * N, C) target tokens.
            memory: keys and values of the source.
            seen: source windows of the queries.

        Returns:
            (B * N, C) output.
        """
        if seen.columns is None:
            q = self.queries(x.unflatten(0, (memory.keys.size(0), -1)))  # (B, H, N, d)
            keys, values = memory.keys.transpose(-1, -2), memory.values
        else:
            q = self.queries(x.unsqueeze(1))  # (B * N, H, 1, d)
            keys = memory.keys[seen.owners, :, seen.columns].permute(0, 2, 3, 1)
            values = memory.values[seen.owners, :, seen.columns].transpose(1, 2)
        weights = (q @ keys).masked_fill(seen.hidden, -float("inf")).softmax(dim=-1)
        output = weights @ values
        return self.out_proj(output.transpose(1, 2).reshape(x.shape))


class SourceWindow(NamedTuple):
    """Source positions that the queries of a decoding step attend to, the same in all layers.

    Shapes: B sentences, N beams, S source positions, window w.

    Attributes:
        columns: (B * N, 2 w + 1) source positions of each query, w on each side of its aligned
            position; None for all positions of the source.
        owners: (B * N, 1) index of the sentence of each query; None if ``columns`` is None.
        hidden: mask, True at positions that are not attended to: (B * N, 1, 1, 2 w + 1), or
            (B, 1, N, S) if ``columns`` is None.
    """

    columns: Optional[Tensor]
    owners: Optional[Tensor]
    hidden: Tensor


class EncoderWindowAttention(_WindowAttention):
    """Self-attention of source tokens within a window, with fairseq's attention interface."""

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, **_):
        """Attend from every source token to the source tokens within its window.

        Args:
            query: (S, B, C) input; ``key`` and ``value`` are ignored, as they are the same.
            key_padding_mask: (B, S) True at padding; None without padding.

        Returns:
            (S, B, C) output, and None instead of attention weights.

        Raises:
            ValueError: an attention mask is given.
        """
        if attn_mask is not None:
            raise ValueError("window attention does not support an attention mask")
        x = query.transpose(0, 1)
        q = self.queries(x)
        k, v = self.keys_and_values(x)
        output = self._attend(q, k, v, None, False, key_padding_mask)
        return output.transpose(0, 1), None


def _farthest(cfg) -> Optional[int]:
    """Return the maximum distance of relative positions, or None for absolute positions."""
    return cfg.attention_window if cfg.position == "relative" else None


class WindowEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with window attention or relative positions."""

    def build_self_attention(self, embed_dim, cfg):
        """Build self-attention within a window, or full self-attention if the options say so."""
        return EncoderWindowAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            None if cfg.full_encoder_attention else cfg.attention_window,
            cfg.attention_dropout,
            relative=_farthest(cfg),
        )


class WindowDecoderLayer(DecoderLayer):
    """Decoder layer with window attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build causal window attention, or full attention with ``--full-decoder-attention``."""
        return CausalWindowAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            None if cfg.full_decoder_attention else cfg.attention_window,
            cfg.attention_dropout,
            relative=_farthest(cfg),
        )

    def build_encoder_attention(self, embed_dim, cfg):
        """Build window cross-attention, or full attention with ``--full-cross-attention``."""
        return CrossWindowAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            None if cfg.full_cross_attention else cfg.attention_window,
            cfg.attention_dropout,
            key_dim=cfg.encoder.embed_dim,
        )
