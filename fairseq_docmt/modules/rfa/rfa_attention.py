"""Random feature attention of encoder and decoder, with a sentential gate (Wu et al. 2022).

Parameters have the names of fairseq's attention, so they can come from a trained transformer.

Shapes: H heads of size d, B sentences, N beams, T target or S source tokens, model dimension C, F
features, D random vectors.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.layers import AttentionProjections
from fairseq_docmt.modules.rfa.beam_memory import BeamMemory
from fairseq_docmt.modules.rfa.feature_map import FeatureOptions, RandomFeatureMap
from fairseq_docmt.modules.search_state import BeamRows
from fairseq_docmt.ops.linear_attention import (
    Summary,
    attend_keys,
    attend_summary,
    causal_attention,
    for_few_queries,
    summarise,
    summary_pays,
)
from fairseq_docmt.ops.precision import at_least_single

GATES = ("none", "decay", "average")
#: initial bias of each kind of gate, as in the authors' code
BIAS = {"decay": 2.0, "average": 0.0}


class SentenceWeights(NamedTuple):
    """Decay and token weights that a sentential gate gives to T tokens and to the token after them.

    The token after them has its own entries because it starts a sentence if the last token is a
    separator. H is the number of gates.

    Attributes:
        log_decay: (H, B, T + 1) logarithm of the gate ``f_t``; 0 except at the first token of a
            sentence.
        token_weight: (H, B, T + 1) weight of each token, None if all are 1.
    """

    log_decay: Tensor
    token_weight: Optional[Tensor]


class SentenceGate(nn.Module):
    """Gate that decays the history of earlier sentences when a new sentence starts.

    Its input is the representation of the separator before the sentence, as it enters the attention
    layer.

    Args:
        embed_dim: size of representations.
        gates: number of gates H: one per attention head, as in the authors' code, or 1 for all
            heads, as in the paper's equation.
        average: whether to weight the tokens of a new sentence by one minus its gate
            (``sgate-avg``).
        bias: initial bias ``b_f``.
    """

    def __init__(self, embed_dim: int, gates: int, average: bool, bias: float):
        super().__init__()
        self.average = average
        self.linear = nn.Linear(embed_dim, gates)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def log_gate(self, x: Tensor) -> Tensor:
        """Compute the logarithms of the H gates, (..., H), from the states of separators, (..., C).

        The result has at least single precision.
        """
        opening = self.linear(x)
        return F.logsigmoid(opening.to(at_least_single(opening.dtype)))

    def forward(
        self, x: Tensor, separators: Tensor, token_weight: Optional[Tensor] = None
    ) -> SentenceWeights:
        """Compute the decay and the token weights of whole sequences.

        Args:
            x: (B, T, C) representations.
            separators: (B, T) True at separators.
            token_weight: (H, B, 1) token weight of the sentence that has begun before these tokens,
                for H gates; None at the start of a document.
        """
        at_separators = self.log_gate(x).permute(2, 0, 1).masked_fill(~separators, 0.0)
        log_decay = F.pad(at_separators, (1, 0))
        if not self.average:
            return SentenceWeights(log_decay, None)
        if token_weight is None:
            token_weight = torch.ones_like(log_decay[..., :1])
        weights = torch.cat([token_weight, -torch.expm1(at_separators)], dim=-1)
        # Each token takes the weight of the latest separator before it.
        columns = torch.arange(1, x.size(1) + 1, device=x.device)
        latest = F.pad(separators * columns, (1, 0)).cummax(dim=-1).values
        return SentenceWeights(log_decay, weights.gather(2, latest.expand(len(weights), -1, -1)))


class _RFA(AttentionProjections):
    """Base class of causal and cross attention: projections, feature map and optional gate."""

    def __init__(
        self,
        embed_dim: int,
        heads: int,
        options: FeatureOptions,
        gate: Optional[SentenceGate] = None,
        key_dim: Optional[int] = None,
    ):
        super().__init__(embed_dim, heads, key_dim)
        self.feature_map = RandomFeatureMap(heads, self.head_dim, options)
        self.gate = gate

    def _by_head(self, x: Tensor) -> Tensor:
        """Reshape (..., C) to (H, rows, d), for H heads of size d.

        The rows are the leading dimensions of ``x``, flattened.
        """
        return x.reshape(-1, self.num_heads, self.head_dim).transpose(0, 1)

    def _joined(self, x: Tensor) -> Tensor:
        """Join H heads of size d: reshape (H, B, T, d) to (B, T, C)."""
        return x.permute(1, 2, 0, 3).flatten(2)


class CausalState(NamedTuple):
    """Incremental state of causal attention for B sentences with N beams each.

    Attributes:
        memory: keys and values of all tokens read.
        token_weight: (H or 1, B, N) weight of the tokens of the current sentence; None if it is
            always 1.
    """

    memory: BeamMemory
    token_weight: Optional[Tensor]

    def reorder(self, rows: BeamRows) -> "CausalState":
        """Return the state for a new order of sentences and beams.

        The new order, ``rows``, may leave out sentences, and may repeat or leave out their beams.
        """
        weight = self.token_weight
        if weight is not None and rows.sentences is not None:
            weight = weight.index_select(1, rows.sentences)
        if weight is not None and rows.local is None:
            weight = weight.expand(-1, -1, rows.beams)
        elif weight is not None:
            weight = weight.gather(2, rows.local.expand(len(weight), -1, -1))
        return CausalState(self.memory.reorder(rows), weight)


class CausalRFA(_RFA):
    """Causal random feature attention over target tokens, with an optional sentential gate."""

    @property
    def weight_heads(self) -> int:
        """Number of gates: H for one per head, 1 for a shared gate, 0 without a gate."""
        return 0 if self.gate is None else self.gate.linear.out_features

    def _features(self, x: Tensor, matrices: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:
        """Return the query features, key features and values of inputs ``x``, (..., C).

        The features have shape (H, rows, F), where F is the number of features, and the values
        (H, rows, d); the rows are the leading dimensions of ``x``, flattened. ``matrices`` are the
        random matrices, as in :meth:`forward`.
        """
        matrices = self.feature_map.draw() if matrices is None else matrices
        phi_q = self.feature_map(self._by_head(self.q_proj(x)), matrices)
        phi_k = self.feature_map(self._by_head(self.k_proj(x)), matrices)
        return phi_q, phi_k * self.feature_map.scale, self._by_head(self.v_proj(x))

    def forward(
        self,
        x: Tensor,
        padding: Optional[Tensor] = None,
        before: Optional[CausalState] = None,
        need_state: bool = False,
        *,
        separators: Optional[Tensor] = None,
        matrices: Optional[Tensor] = None,
        bsz: Optional[int] = None,
        keep_log_decay: Optional[Callable[[Tensor], None]] = None,
    ) -> Tuple[Tensor, Optional[CausalState]]:
        """Attend from each target token to itself and all earlier tokens.

        Inputs are whole sequences or, in a step of beam search, one token of each beam.

        Args:
            x: (B, T, C) input; in a single step (B * N, C), where the N beams of a sentence are
                adjacent.
            padding: (B, T) True at padding; None without padding.
            before: state before the first token, with one beam per sentence for whole sequences and
                N beams for a single step; None to start without history.
            need_state: whether to return the state after whole sequences.
            separators: (B, T) True at separators, required with a gate. In a single step (B * N,),
                or None if no token is a separator.
            matrices: (H, d, D) random matrices, None to draw from the layer's own pool.
            bsz: number of sentences B, required in a single step.
            keep_log_decay: function that is called with the (H or 1, B, T) logarithms of the gates
                of whole sequences, if there is a gate; or None.

        Returns:
            Output of the shape of ``x``, and the state after the last token (None for whole
            sequences without ``need_state``).
        """
        if x.dim() == 2:
            return self._step(x, bsz, separators, before, matrices)
        bsz, length = x.shape[:2]
        phi_q, phi_k, v = (y.unflatten(1, (bsz, length)) for y in self._features(x, matrices))
        gates = None
        if self.gate is not None:
            gates = self.gate(x, separators, None if before is None else before.token_weight)
            if gates.token_weight is not None:
                phi_k = phi_k * gates.token_weight[..., :-1, None].to(phi_k.dtype)
        if padding is not None:
            phi_k = phi_k.masked_fill(padding.unsqueeze(-1), 0.0)
        log_decay = None if gates is None else gates.log_decay[..., :-1]
        if keep_log_decay is not None and log_decay is not None:
            keep_log_decay(log_decay)
        output, summary = causal_attention(
            phi_q,
            phi_k,
            v,
            self.feature_map.floor,
            log_decay,
            None if before is None else before.memory.as_summary(),
            need_summary=need_state,
        )
        state = self._state(summary, gates, x.dtype) if need_state else None
        return self.out_proj(self._joined(output)), state

    def _state(self, summary: Summary, gates, dtype) -> CausalState:
        if gates is None:
            return CausalState(BeamMemory.of(summary, self.weight_heads, dtype), None)
        weight = gates.token_weight
        memory = BeamMemory.of(summary, self.weight_heads, dtype)
        memory = memory.decay(gates.log_decay[..., -1:].exp())
        return CausalState(memory, None if weight is None else weight[..., -1:])

    def _step(
        self,
        x: Tensor,
        bsz: int,
        separators: Optional[Tensor],
        state: Optional[CausalState],
        matrices: Optional[Tensor] = None,
    ) -> Tuple[Tensor, CausalState]:
        """Attend from one new token of each beam to itself and the beam's history.

        The arguments are the same as for :meth:`forward`; ``state`` is the state before the new
        tokens.

        Returns:
            (B * N, C) output and the state after the new tokens.
        """
        phi_q, phi_k, v = (y.unflatten(1, (bsz, -1)) for y in self._features(x, matrices))
        if state is None:
            memory = BeamMemory.empty(phi_k, self.head_dim, self.weight_heads)
            weight = None
            if self.gate is not None and self.gate.average:
                weight = memory.shares.new_ones(memory.shares.shape[:3])
            state = CausalState(memory, weight)
        memory, weight = state
        if weight is not None:
            phi_k = phi_k * weight.unsqueeze(-1).to(phi_k.dtype)
        memory = memory.write(phi_k, v)
        output = memory.read(phi_q, self.feature_map.floor)
        if separators is not None:
            log_gate = self.gate.log_gate(x).t().masked_fill(~separators, 0.0)
            gate = log_gate.exp().to(memory.shares.dtype).unflatten(1, (bsz, -1))
            memory = memory.decay(gate)
            if weight is not None:
                weight = torch.where(separators.view(bsz, -1), 1 - gate, weight)
        output = self.out_proj(self._joined(output).flatten(0, 1))
        return output, CausalState(memory, weight)


class SourceFeatures(NamedTuple):
    """Projected source for cross attention: either a summary, or the keys and values of all tokens.

    A short source is cheaper to read token by token than as a summary.

    Attributes:
        summary: summary of all source tokens; None if keys and values are stored instead.
        keys: (H, B, S, F) F key features for each of H heads; None with a summary.
        values: (H, B, S, d) values; None with a summary.
        weights: (H, B, S) key weights; None with a summary.
        matrices: (H, d, D) matrices of D random vectors for the key features; queries must use the
            same.
    """

    summary: Optional[Summary]
    keys: Optional[Tensor]
    values: Optional[Tensor]
    weights: Optional[Tensor]
    matrices: Tensor

    def of_sentences(self, sentences: Tensor) -> "SourceFeatures":
        """Select the source features of the sentences with the indices ``sentences``, (n,)."""

        def take(x):
            return None if x is None else x.index_select(1, sentences)

        memory = SourceFeatures(None, *map(take, self[1:-1]), self.matrices)
        if self.summary is None:
            return memory
        return memory._replace(summary=Summary(*map(take, self.summary))).for_few_queries()

    def for_few_queries(self) -> "SourceFeatures":
        """Return the source features in a memory layout that is fast for single queries."""
        if self.summary is None:
            return self
        sums = for_few_queries(self.summary.sums, self.summary.sums.dtype)
        return self._replace(summary=self.summary._replace(sums=sums))


class CrossRFA(_RFA):
    """Cross attention of every query to all source tokens, with random features.

    Args:
        rescale: whether to multiply the weight of each key k by ``exp(|k|^2 / (2 d t^2))``, with
            head size d and temperature t of the head. As in the authors' code, this restores a
            factor of the kernel that is lost when keys are scaled to unit length. The factors of a
            batch row are divided by the largest of them.
        padding_counts: whether the search for the largest factor includes padding, as in the
            authors' code.
    """

    def __init__(self, *args, rescale: bool = False, padding_counts: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.rescale, self.padding_counts = rescale, padding_counts

    def project_source(
        self,
        source: Tensor,
        padding: Optional[Tensor],
        separators: Optional[Tensor] = None,
        queries: Optional[int] = None,
        matrices: Optional[Tensor] = None,
    ) -> SourceFeatures:
        """Compute key features and values of a source, or their summary if it is cheaper to read.

        Args:
            source: (B, S, C) encoder output.
            padding: (B, S) True at padding; None without padding.
            separators: (B, S) True at separators; required with a gate.
            queries: number of queries of each row, on which the choice depends; None if they come
                one by one.
            matrices: (H, d, D) random matrices, None to draw from the layer's own pool.
        """
        bsz, length = source.shape[:2]
        matrices = self.feature_map.draw() if matrices is None else matrices
        k = self._by_head(self.k_proj(source))
        phi_k = self.feature_map(k, matrices).unflatten(1, (bsz, length))
        values = self._by_head(self.v_proj(source)).unflatten(1, (bsz, length))
        weights = self._key_weights(k.unflatten(1, (bsz, length)), source, padding, separators)
        weights = weights.to(phi_k.dtype)
        if summary_pays(length, queries, phi_k.size(-1), self.head_dim):
            summary = summarise(phi_k, values, weights)
            memory = SourceFeatures(summary, None, None, None, matrices)
            return memory if queries else memory.for_few_queries()
        return SourceFeatures(None, phi_k, values, weights, matrices)

    def _key_weights(self, k, source, padding, separators) -> Tensor:
        """Return the (H, B, S) weights of keys ``k``, (H, B, S, d); padding has weight 0.

        A weight is the product of the rescaling factor, the decay by the gate, the token weight and
        the constant factor of key features. For the other arguments, see :meth:`project_source`.
        """
        log_weights = torch.zeros_like(k[..., 0], dtype=at_least_single(k.dtype))
        if self.rescale:
            scaled = k.to(log_weights) * self.head_dim**-0.5
            scaled = scaled / self.feature_map.temperature.unsqueeze(1)
            lengths = scaled.square().sum(dim=-1) / 2
            # If the longest key is padding, all weights shrink and the floor has more effect.
            all_count = padding is None or self.padding_counts
            real = lengths if all_count else lengths.masked_fill(padding, -float("inf"))
            log_weights = lengths - real.amax(dim=-1, keepdim=True).detach()
        token_weight = None
        if self.gate is not None:
            gates = self.gate(source, separators)
            since = gates.log_decay[..., :-1].cumsum(dim=-1)
            log_weights = log_weights + since[..., -1:] - since
            token_weight = gates.token_weight
        if padding is not None:
            log_weights = log_weights.masked_fill(padding, -float("inf"))
        weights = log_weights.exp() * self.feature_map.scale
        return weights if token_weight is None else weights * token_weight[..., :-1]

    def forward(self, x: Tensor, memory: SourceFeatures, **_) -> Tensor:
        """Attend from target tokens to all tokens of their source.

        Args:
            x: (B, T, C) target tokens; in a single step (B * N, C), where the N beams of a sentence
                are adjacent.
            memory: projected source, see :meth:`project_source`.

        Returns:
            Output of the shape of ``x``.
        """
        if x.dim() == 2:
            features = memory.values if memory.summary is None else memory.summary.sums
            return self(x.unflatten(0, (features.size(1), -1)), memory).flatten(0, 1)
        q = self._by_head(self.q_proj(x))
        phi_q = self.feature_map(q, memory.matrices).unflatten(1, x.shape[:2])
        floor = self.feature_map.floor
        if memory.summary is not None:
            output = attend_summary(phi_q, memory.summary, floor)
        else:
            output = attend_keys(phi_q, memory.keys, memory.values, memory.weights, floor)
        return self.out_proj(self._joined(output))


class EncoderRFA(CrossRFA):
    """Random feature self-attention of source tokens, with the interface of fairseq's attention."""

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, **_):
        """Attend from every source token to all source tokens.

        Args:
            query: (S, B, C) input; ``key`` and ``value`` are the same tensor and are ignored.
            key_padding_mask: (B, S) True at padding; None without padding.

        Returns:
            (S, B, C) output, and None instead of attention weights.

        Raises:
            ValueError: an attention mask is given.
        """
        if attn_mask is not None:
            raise ValueError(
                "random feature attention in the encoder does not support an attention mask"
            )
        x = query.transpose(0, 1)
        memory = self.project_source(x, key_padding_mask, queries=x.size(1))
        return super().forward(x, memory).transpose(0, 1), None
