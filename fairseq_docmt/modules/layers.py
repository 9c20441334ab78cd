"""Layers of all transformers with their own attention: multi-head attention, and the decoder layer.

Parameters have fairseq's names and initialisation, so they can come from a trained transformer.
"""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.search_state import BeamRows
from fairseq_docmt.ops.precision import masked_attention


class RecentTokens(NamedTuple):
    """Keys and values of previous tokens, right-aligned: the last column is the latest token.

    Attributes:
        keys, values: (rows, H, n, d).
        hidden: (rows, n) True at empty positions.
        sentences: (rows, n) sentence number of each token, None if not needed.
    """

    keys: Tensor
    values: Tensor
    hidden: Tensor
    sentences: Optional[Tensor]

    @classmethod
    def of(cls, keys, values, padding: Optional[Tensor], sentences: Optional[Tensor] = None):
        """Create a cache from the right-padded keys and values of one pass."""
        if padding is None:
            shape = (keys.size(0), keys.size(2))
            padding = torch.zeros(shape, dtype=torch.bool, device=keys.device)
        return cls(keys, values, padding, sentences)

    def followed_by(self, new: "RecentTokens") -> "RecentTokens":
        """Return the tokens followed by new tokens."""
        return self._each(lambda x, added, dim: torch.cat([x, added], dim), new)

    def right_aligned(self, padding: Optional[Tensor]) -> "RecentTokens":
        """Move the padding (rows, T) from the end of each row to its beginning."""
        if padding is None:
            return self
        columns = torch.arange(self.keys.size(2), device=padding.device)
        columns = columns - padding.sum(dim=1, keepdim=True)
        outside = columns < 0
        columns = columns.clamp(min=0)
        index = columns[:, None, :, None].expand_as(self.keys)
        return RecentTokens(
            self.keys.gather(2, index),
            self.values.gather(2, index),
            self.hidden.gather(1, columns) | outside,
            None if self.sentences is None else self.sentences.gather(1, columns),
        )

    def latest(self, size: Optional[int]) -> "RecentTokens":
        """Return the last ``size`` tokens; all if None."""
        length = self.keys.size(2)
        if size is None or size >= length:
            return self
        return self._each(lambda x, dim: x.narrow(dim, length - size, size))

    def reorder(self, rows: BeamRows) -> "RecentTokens":
        """Return the values with the rows in the new order ``rows``."""
        return self._each(lambda x, dim: x.index_select(0, rows.order))

    def _each(self, function: Callable[..., Tensor], *others: "RecentTokens") -> "RecentTokens":
        """Apply ``function(part, *parts of others, token dimension)`` to each of the tensors."""
        dims = (2, 2, 1, 1)
        return RecentTokens(
            *(None if x[0] is None else function(*x) for x in zip(self, *others, dims))
        )


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
        """Return the values of the sentences with the indices ``sentences`` (n,)."""
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
        """Return (rows, T, C): each of T tokens attends to itself and earlier tokens."""
        raise NotImplementedError

    def attend_cached(self, q: Tensor, tokens: RecentTokens) -> Tensor:
        """Return (rows, T, C): each of the latest T cached tokens attends to the cache up to it."""
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
            before: previously read tokens, or None.
            need_state: True to return the tokens that later tokens will attend to.

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
        return self.attend_cached(q, tokens), tokens.right_aligned(padding).latest(self.window)


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
        """Return (rows, T, C): each of T tokens attends to itself and earlier tokens.

        With right padding the causal mask also hides padding.
        """
        return self._attend(q, k, v, None, causal=True)

    def attend_cached(self, q, tokens):
        """Return (rows, T, C): each of the latest T cached tokens attends to the cache up to it."""
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


class LayerState(NamedTuple):
    """State of a decoder layer after some target tokens.

    Attributes:
        recent: what causal attention needs of these tokens, with ``reorder(rows)``; None before the
            first token.
        source: what cross attention reads, shared by the beams of a sentence, with
            ``of_sentences(sentences)``.
        memory: what further attentions of the layer read, each like ``source``.
    """

    recent: Any
    source: Any
    memory: tuple = ()

    def reorder(self, rows: BeamRows) -> "LayerState":
        """Return the state of selected sentences, their beams reordered, repeated or dropped."""
        recent = None if self.recent is None else self.recent.reorder(rows)
        state = self._replace(recent=recent)
        if rows.sentences is None:
            return state
        source, *memory = (x.of_sentences(rows.sentences) for x in (self.source, *self.memory))
        return state._replace(source=source, memory=tuple(memory))


class Sublayers:
    """Residual connections, layer norms and feed-forward network of fairseq's layers."""

    def residual(self, x, norm, sublayer):
        """Apply a sublayer with dropout, residual connection and pre- or post-norm.

        Args:
            x: (..., C) input.
            norm: layer norm.
            sublayer: function from (..., C) to (..., C).
        """
        if self.normalize_before:
            return x + self.dropout_module(sublayer(norm(x)))
        return norm(x + self.dropout_module(sublayer(x)))

    def feed_forward(self, x):
        """Apply the feed-forward network to (..., C) values."""
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))


class DecoderLayer(Sublayers, TransformerDecoderLayerBase):
    """Batch-first decoder layer with attention to all target tokens before and to the whole source.

    Subclasses build other attentions. Parameters have fairseq's names. The attentions are called as

    * ``self_attn(x, padding, before, need_state, **marks)``, which returns the output and, if
      ``need_state``, the state of the attention after ``x``, else None;
    * ``encoder_attn.project_source(source, padding, **marks)``, which returns the source as
      ``encoder_attn(x, source, **marks)`` reads it, and ``encoder_attn.weights`` with the same
      arguments for the weights.

    Marks are further tensors of the same tokens, such as their sentence numbers; each attention
    uses only the marks that it needs.
    """

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build the attention to earlier target tokens."""
        return CausalAttention(embed_dim, cfg.decoder.attention_heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """Build the attention to the source."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)

    def init_state(self, source: Tensor, padding: Optional[Tensor] = None, **marks) -> LayerState:
        """Return the state before the first token.

        Args:
            source: (B, S, C) encoder output.
            padding: (B, S) True at padding; None without padding.
            **marks: marks of the source.
        """
        return LayerState(None, self.encoder_attn.project_source(source, padding, **marks))

    def cross(self, x: Tensor, state: LayerState, **marks) -> Tensor:
        """Attend from (rows, T, C) target tokens to the source."""
        return self.encoder_attn(x, state.source, **marks)

    def forward(
        self,
        groups: List[Tensor],
        begin: Callable[["DecoderLayer", List[Tensor]], List[LayerState]],
        padding: Optional[Tensor] = None,
        need_state: bool = False,
        between: Optional[Callable[[List[Tensor]], List[Tensor]]] = None,
        weights: Optional[list] = None,
        **marks,
    ) -> Tuple[List[Tensor], List[LayerState]]:
        """Continue states by one or more tokens.

        Args:
            groups: (rows, T, C) inputs, right-padded, of groups of rows of similar length; mostly
                one group. The beams of a sentence are adjacent. In a single step of a search,
                layers may take (rows, C).
            begin: function from the layer and its inputs to the state of each group before these
                tokens.
            padding: (rows, T) True at padding, None without padding; only needed for new states.
            need_state: whether to return the states after these tokens.
            between: sublayer between causal and cross attention, a function of all groups.
            weights: list to which attention weights (rows, T, S), averaged over heads, are
                appended.
            **marks: marks of the target tokens, if there is one group.

        Returns:
            (rows, T, C) output of each group, and its new state.
        """
        states, after = list(begin(self, groups)), []

        def attend(x, state):
            def causal(y):
                y, recent = self.self_attn(y, padding, state.recent, need_state, **marks)
                after.append(state._replace(recent=recent))
                return y

            return self.residual(x, self.self_attn_layer_norm, causal)

        def read_source(x, state):
            def cross(y):
                if weights is not None:
                    found = self.encoder_attn.weights(y, state.source, **marks)
                    weights.append(found.mean(dim=1))
                return self.cross(y, state, **marks)

            x = self.residual(x, self.encoder_attn_layer_norm, cross)
            return self.residual(x, self.final_layer_norm, self.feed_forward)

        groups = [attend(x, state) for x, state in zip(groups, states)]
        if between is not None:
            groups = between(groups)
        return [read_source(x, state) for x, state in zip(groups, states)], after
