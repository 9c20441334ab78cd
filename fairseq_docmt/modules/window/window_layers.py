"""Window attention and the layers that use it (Herold and Ney 2023).

The parameters have the same names as in fairseq.  Shapes: B batch rows, H heads of size d, T target
or S source tokens, model dimension C, window size w, N beams.
"""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.layers import (
    AttendedSource,
    AttentionDropout,
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
        window: number of keys that a query attends to on each side of the key that it is aligned
            to; None for all keys.
        dropout: dropout probability of attention weights.
        relative: maximum distance of relative positions; None for no relative positions.  Each
            distance up to the maximum has a learned vector, shared by the heads, whose product with
            the query is added to the logit (Shaw et al. 2018).  Keys farther away use the vector of
            the maximum distance.
        key_dim: size of the input of keys and values; default: ``embed_dim``.
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
        self.window, self.farthest = window, relative
        self.dropout = AttentionDropout(dropout, self)
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
        dropout = self.dropout.rate
        output = window_attention(q, k, v, window, self.relative, dropout)
        return self.out_proj(output.transpose(1, 2).flatten(2))


class CausalWindowAttention(CachedCausalAttention, _WindowAttention):
    """Causal attention of each target token to itself and the ``window`` tokens before it."""

    def forward(self, x, padding=None, before=None, need_state=False, **_):
        """Attend from each new token of a row to itself and to the earlier tokens in its window.

        The arguments and results are the same as for ``CachedCausalAttention.forward``.  In
        addition, a single decoding step may be given as (rows, C) input; the output then has the
        same shape.
        """
        if x.dim() > 2:
            return super().forward(x, padding, before, need_state)
        x, tokens = super().forward(x.unsqueeze(1), padding, before, need_state)
        return x.squeeze(1), tokens

    def attend_sequence(self, q, k, v, padding):
        """Attend from each of T tokens to itself and to the tokens before it in its window.

        Args:
            q, k, v: (rows, H, T, d) queries, keys and values of the tokens.
            padding: (rows, T) True at padding; None without padding.

        Returns:
            (rows, T, C) output.
        """
        return self._attend(q, k, v, None, True, padding)

    def attend_cached(self, q, tokens):
        """Attend from the latest T tokens, which are already in the cache, to the cached tokens.

        Each of them attends to itself and to the tokens before it in its window.

        Args:
            q: (rows, H, T, d) queries of the latest tokens.
            tokens: cache of these and earlier tokens.

        Returns:
            (rows, T, C) output.
        """
        first = tokens.keys.size(2) - q.size(2)
        if q.size(2) == 1:
            return self._attend_latest(q, tokens, first)
        return self._attend(q, tokens.keys, tokens.values, None, True, tokens.hidden, first)

    def _attend_latest(self, q, tokens, earlier: int) -> Tensor:
        """Attend from the latest token to the whole cache, which holds only tokens in its window.

        This is a faster version of :meth:`attend_cached` for a single token.

        Args:
            q: (rows, H, 1, d) query of the latest token.
            tokens: cache of the latest token and the ``earlier`` tokens before it.
            earlier: number of tokens before the latest one.

        Returns:
            (rows, 1, C) output.
        """
        logits = q @ tokens.keys.transpose(-1, -2)
        if self.relative is not None:
            distance = torch.arange(-earlier, 1, device=q.device)
            vectors = self.relative[(distance + self.farthest).clamp(min=0)]
            logits = logits + q @ vectors.t()
        # Outputs at padding are not used, but without any key they would be NaN.
        hidden = F.pad(tokens.hidden[:, :-1], (0, 1))
        weights = logits.masked_fill(hidden[:, None, None], -float("inf")).softmax(dim=-1)
        weights = F.dropout(weights, self.dropout.rate)
        return self.out_proj((weights @ tokens.values).transpose(1, 2).flatten(2))


class CrossWindowAttention(_WindowAttention):
    """Attention of each target token to the source tokens around its aligned position."""

    def project_source(self, source: Tensor, padding: Optional[Tensor], **_) -> AttendedSource:
        """Project a source to attention keys and values, once for all target tokens.

        Args:
            source: (B, S, C) encoder output.
            padding: (B, S) True at padding; None without padding.
        """
        return AttendedSource(*self.keys_and_values(source), padding)

    def forward(self, x: Tensor, memory: AttendedSource, centers) -> Tensor:
        """Attend from target tokens to the source tokens around their aligned positions.

        Args:
            x: (B, T, C) target tokens.  In a single decoding step x is (B * N, C), and the N beams
                of a sentence are adjacent.
            memory: keys and values of the source.
            centers: (B, T) aligned source position of each target token; in a single decoding step,
                the result of :meth:`around`.

        Returns:
            Output of the shape of ``x``.
        """
        if x.dim() == 2:
            return self._step(x, memory, centers)
        q = self.queries(x)
        return self._attend(q, memory.keys, memory.values, centers, False, memory.padding)

    def weights(self, x: Tensor, memory: AttendedSource, centers: Tensor) -> Tensor:
        """Compute the full (B, H, T, S) matrix of attention weights, for analysis.

        Unlike :meth:`forward`, this needs memory that is quadratic in the length.
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
        """Find the source positions that each beam may attend to in one decoding step.

        The result serves all layers.  If there is no window, or if it is as wide as the source, the
        result does not list positions, but has a mask over the whole source.

        Args:
            memory: keys and values of the sources of B sentences.
            centers: (B * N,) source position that each beam is aligned to; N beams per sentence.
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
        """Attend from one target token of each beam to its source window.

        Args:
            x: (B * N, C) target tokens.
            memory: keys and values of the source.
            seen: result of :meth:`around` for these tokens.

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
        """Attend from each source token to the source tokens within its window.

        Args:
            query: (S, B, C) input.  ``key`` and ``value`` are ignored, because in self-attention
                they are the same.
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
        """Build window self-attention, or full attention with ``--full-encoder-attention``."""
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
