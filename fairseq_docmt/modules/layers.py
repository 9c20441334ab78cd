"""Multi-head attention and the decoder layer, on which all transformers of this package build.

Parameters have the same names and initialisation as in fairseq, so they can be loaded from a
trained transformer.

Shapes: B sentences, H heads, T target or S source positions, model dimension C, head dimension d.
"""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.search_state import BeamRows
from fairseq_docmt.ops.precision import masked_attention


class RecentTokens(NamedTuple):
    """Cache of keys and values of earlier target tokens; the last column is the latest token.

    Attributes:
        keys, values: (rows, H, n, d) for H heads of size d and the last n positions.
        hidden: (rows, n) True at positions without a token, which are not attended to.
        sentences: (rows, n) sentence number of each token; None if not needed.
    """

    keys: Tensor
    values: Tensor
    hidden: Tensor
    sentences: Optional[Tensor]

    @classmethod
    def of(cls, keys, values, padding: Optional[Tensor], sentences: Optional[Tensor] = None):
        """Create a cache from the keys and values of right-padded tokens.

        Args:
            keys, values: (rows, H, T, d) keys and values.
            padding: (rows, T) True at padding; None without padding.
            sentences: (rows, T) sentence number of each token; None if not needed.
        """
        if padding is None:
            shape = (keys.size(0), keys.size(2))
            padding = torch.zeros(shape, dtype=torch.bool, device=keys.device)
        return cls(keys, values, padding, sentences)

    def followed_by(self, new: "RecentTokens") -> "RecentTokens":
        """Return a cache of these tokens followed by the tokens of another cache."""
        return self._each(lambda x, added, dim: torch.cat([x, added], dim), new)

    def right_aligned(self, padding: Optional[Tensor]) -> "RecentTokens":
        """Return the cache with the padding of each row moved from its end to its beginning.

        Args:
            padding: (rows, T) True at padding among the latest T tokens; None without padding.
        """
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
        """Return a cache of only the last ``size`` tokens, or of all tokens if ``size`` is None."""
        length = self.keys.size(2)
        if size is None or size >= length:
            return self
        return self._each(lambda x, dim: x.narrow(dim, length - size, size))

    def reorder(self, rows: BeamRows) -> "RecentTokens":
        """Return the cache with its rows reordered, repeated or dropped for beam search."""
        return self._each(lambda x, dim: x.index_select(0, rows.order))

    def _each(self, function: Callable[..., Tensor], *others: "RecentTokens") -> "RecentTokens":
        """Apply a function to each kind of tensor, and return a cache with the results.

        Args:
            function: called for each kind of tensor, such as the keys. It gets the tensor of this
                kind from each cache, then the index of the token dimension. It returns the new
                tensor. A tensor that is None remains None.
            *others: further caches, whose tensors follow the tensor of this cache.
        """
        dims = (2, 2, 1, 1)
        return RecentTokens(
            *(None if x[0] is None else function(*x) for x in zip(self, *others, dims))
        )


class AttentionProjections(nn.Module):
    """Base class of attention modules, with query, key, value and output projections.

    The parameters can be loaded from a trained transformer.

    Args:
        embed_dim: size of queries and outputs.
        heads: number of attention heads.
        key_dim: input size of the key and value projections; default: ``embed_dim``.
        contexts: number of attention results that are concatenated before the output projection.
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
        """Reshape (B, T, C) to (B, H, T, d), for H heads of size d."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def keys_and_values(self, x):
        """Project inputs (B, T, C) to keys and values, both (B, H, T, d), for H heads of size d."""
        return self.split_heads(self.k_proj(x)), self.split_heads(self.v_proj(x))


class AttendedSource(NamedTuple):
    """Keys and values of a source, shared by the beams of a sentence.

    Attributes:
        keys, values: (B, H, S, d) for H heads of size d.
        padding: (B, S) True at padding; None without padding.
        sentences: (B, S) sentence number of each token; None if not needed.
    """

    keys: Tensor
    values: Tensor
    padding: Optional[Tensor]
    sentences: Optional[Tensor] = None

    def of_sentences(self, sentences: Tensor) -> "AttendedSource":
        """Select the keys, values and masks of some sentences by an (n,) tensor of indices."""
        return AttendedSource(*(None if x is None else x.index_select(0, sentences) for x in self))


class CachedCausalAttention:
    """Mixin for causal attention of target tokens, in one pass or continued from a cache.

    A subclass defines :meth:`attend_sequence` and :meth:`attend_cached`. Its other base class must
    provide the methods ``queries`` and ``keys_and_values``, which project (rows, T, C) input.

    Attributes:
        window: number of earlier tokens that a token attends to; None for all.
    """

    window: Optional[int] = None

    def attend_sequence(self, q: Tensor, k: Tensor, v: Tensor, padding: Optional[Tensor]) -> Tensor:
        """Compute attention in whole sequences; each token attends to itself and to earlier tokens.

        Args:
            q, k, v: (rows, H, T, d) queries, keys and values.
            padding: (rows, T) True at padding; None without padding.

        Returns:
            (rows, T, C) output.
        """
        raise NotImplementedError

    def attend_cached(self, q: Tensor, tokens: RecentTokens) -> Tensor:
        """Compute attention of the latest tokens; each attends to itself and to earlier tokens.

        Args:
            q: (rows, H, T, d) queries of the latest T tokens.
            tokens: cache of earlier tokens and of these T tokens.

        Returns:
            (rows, T, C) output.
        """
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[RecentTokens] = None,
        need_state: bool = False,
        **_,
    ) -> Tuple[Tensor, Optional[RecentTokens]]:
        """Let one or more new tokens of each row attend to themselves and to earlier tokens.

        Args:
            x: (rows, T, C) input, right-padded.
            padding: (rows, T) True at padding; None without padding.
            before: cache of earlier tokens, or None.
            need_state: whether to return a cache even if ``before`` is None.

        Returns:
            (rows, T, C) output, and the cache to which later tokens will attend. If ``before`` is
            None and no state is needed, None is returned instead of the cache.
        """
        q = self.queries(x)
        k, v = self.keys_and_values(x)
        if before is None and not need_state:
            return self.attend_sequence(q, k, v, padding), None
        tokens = RecentTokens.of(k, v, padding)
        if before is not None:
            tokens = before.followed_by(tokens)
        return self.attend_cached(q, tokens), tokens.right_aligned(padding).latest(self.window)


class AttentionDropout(FairseqDropout):
    """Dropout of attention weights, which functions such as ``masked_attention`` apply.

    In decoding it is 0, except with ``--retain-dropout``.

    Args:
        probability: probability of dropping a weight in training.
        owner: module with the attention, whose class ``--retain-dropout-modules`` names.
    """

    def __init__(self, probability: float, owner: nn.Module):
        super().__init__(probability, module_name=type(owner).__name__)

    @property
    def rate(self) -> float:
        """Probability of dropping a weight now."""
        return self.p if self.training or self.apply_during_inference else 0.0


class _FullAttention(AttentionProjections):
    def __init__(self, embed_dim: int, heads: int, dropout: float, key_dim: Optional[int] = None):
        super().__init__(embed_dim, heads, key_dim)
        self.dropout = AttentionDropout(dropout, self)

    def queries(self, x: Tensor) -> Tensor:
        """Project inputs (B, T, C) to queries (B, H, T, d), for H heads of size d."""
        return self.split_heads(self.q_proj(x))

    def _attend(self, q, k, v, seen: Optional[Tensor], causal: bool = False) -> Tensor:
        dropout = self.dropout.rate
        if seen is None:
            output = F.scaled_dot_product_attention(q, k, v, None, dropout, is_causal=causal)
        else:
            output = masked_attention(q, k, v, seen, dropout)
        return self.out_proj(output.transpose(1, 2).flatten(2))


class CausalAttention(CachedCausalAttention, _FullAttention):
    """Attention of target tokens to themselves and all earlier target tokens."""

    def attend_sequence(self, q, k, v, padding):
        """Attend from each of T tokens to itself and all earlier tokens; return (rows, T, C).

        Padding needs no mask of its own: it is on the right, where the causal mask hides it.
        """
        return self._attend(q, k, v, None, causal=True)

    def attend_cached(self, q, tokens):
        """Attend from the latest T tokens to the cache, which includes them; return (rows, T, C).

        Each of these tokens attends to itself and to all cached tokens before it.
        """
        seen = ~tokens.hidden[:, None, None]
        if q.size(2) > 1:
            length, total = q.size(2), tokens.keys.size(2)
            order = torch.ones(length, total, dtype=torch.bool, device=q.device)
            seen = seen & order.tril(total - length)
            # Padding outputs are unused, but a fully masked row would give NaN.
            seen = seen | (~seen.any(-1, keepdim=True))
        return self._attend(q, tokens.keys, tokens.values, seen)


class SourceAttention(_FullAttention):
    """Attention to a source, whose keys and values can be shared by several beams."""

    def project_source(
        self, source: Tensor, padding: Optional[Tensor] = None, **_
    ) -> AttendedSource:
        """Compute the keys and values of a source, to be passed to :meth:`forward`.

        Args:
            source: (B, S, C) states of the source.
            padding: (B, S) True at padding; None without padding.
        """
        return AttendedSource(*self.keys_and_values(source), padding)

    def forward(self, x: Tensor, source: AttendedSource, **_) -> Tensor:
        """Attend from target tokens to a source.

        Args:
            x: (B * N, T, C) inputs of the queries; N consecutive rows (beams) share a source.
            source: keys and values of B sources.

        Returns:
            (B * N, T, C) output.
        """
        by_source = x.unflatten(0, (len(source.keys), -1)).flatten(1, 2)
        seen = None if source.padding is None else ~source.padding[:, None, None]
        return self._attend(self.queries(by_source), source.keys, source.values, seen).view_as(x)

    def weights(self, x: Tensor, source: AttendedSource, **_) -> Tensor:
        """Compute the (B, H, T, S) attention weights for query inputs ``x``, (B, T, C)."""
        q = self.queries(x) * self.head_dim**-0.5
        logits = q @ source.keys.transpose(-1, -2)
        if source.padding is not None:
            logits = logits.masked_fill(source.padding[:, None, None], -float("inf"))
        return logits.softmax(dim=-1)


class LayerState(NamedTuple):
    """State of a decoder layer after some target tokens.

    Attributes:
        recent: state of causal attention, for example a cache of earlier tokens, with a method
            ``reorder(rows)``; None before the first token.
        source: keys and values of the source for cross attention, or a summary of them. It is
            shared by the beams of a sentence and has a method ``of_sentences(sentences)``.
        memory: inputs of further attention modules of the layer, each like ``source``.
    """

    recent: Any
    source: Any
    memory: tuple = ()

    def reorder(self, rows: BeamRows) -> "LayerState":
        """Return the state of the sentences and beams that a search keeps, in their new order."""
        recent = None if self.recent is None else self.recent.reorder(rows)
        state = self._replace(recent=recent)
        if rows.sentences is None:
            return state
        source, *memory = (x.of_sentences(rows.sentences) for x in (self.source, *self.memory))
        return state._replace(source=source, memory=tuple(memory))


class Sublayers:
    """Mixin with the residual connections, layer norms and feed-forward network of a layer."""

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
        """Apply the feed-forward network to (..., C) input."""
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))


class DecoderLayer(Sublayers, TransformerDecoderLayerBase):
    """Batch-first decoder layer with attention to all earlier target tokens and all source tokens.

    Parameters have the same names as in fairseq. Subclasses replace the attention modules, which
    are called as follows:

    * ``self_attn(x, padding, before, need_state, **marks)`` returns the output and, if
      ``need_state``, the state of the attention after ``x``, otherwise None;
    * ``encoder_attn.project_source(source, padding, **marks)`` returns the projected source;
    * ``encoder_attn(x, projected_source, **marks)`` returns the output, and
      ``encoder_attn.weights`` with the same arguments returns the attention weights.

    Marks are additional tensors that describe the tokens, such as their sentence numbers. Each
    attention module uses only the marks that it needs.
    """

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build full causal attention to all earlier target tokens."""
        return CausalAttention(embed_dim, cfg.decoder.attention_heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """Build full attention to all source tokens."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)

    def init_state(self, source: Tensor, padding: Optional[Tensor] = None, **marks) -> LayerState:
        """Return the layer state before the first token, with the keys and values of the source.

        Args:
            source: (B, S, C) encoder output.
            padding: (B, S) True at padding; None without padding.
            **marks: additional tensors that describe the source tokens, such as a separator mask.
        """
        return LayerState(None, self.encoder_attn.project_source(source, padding, **marks))

    def cross(self, x: Tensor, state: LayerState, **marks) -> Tensor:
        """Attend from target tokens to the source.

        Args:
            x: (rows, T, C) target states.
            state: state of the layer, which contains the projected source.
            **marks: additional tensors that describe the target tokens, such as sentence
                numbers.

        Returns:
            (rows, T, C) output.
        """
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
        """Run the layer over one or more new tokens of each row, starting from given states.

        Args:
            groups: (rows, T, C) inputs, right-padded, one tensor for each group of rows of similar
                length. Usually there is a single group. The beams of a sentence are adjacent. For a
                single token of each row, some subclasses also take (rows, C).
            begin: function that takes the layer and its inputs ``groups``, and returns the state of
                each group before these tokens.
            padding: (rows, T) True at padding; None without padding. It is not needed if the new
                states are not used.
            need_state: whether the new states are needed. Otherwise their attribute ``recent`` may
                be None.
            between: sublayer to run between causal and cross attention, or None. It maps the states
                of all groups to new states.
            weights: list to which the (rows, T, S) cross-attention weights of each group, averaged
                over heads, are appended; or None.
            **marks: additional tensors that describe the target tokens; only for a single group.

        Returns:
            (rows, T, C) output of each group, and the new state of each group.
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
