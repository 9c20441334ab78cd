"""Constant-size state of causal linear attention for beam search.

If every beam had its own state matrix, these matrices would be copied whenever beams are reordered,
that is, at every step. Here the beams of a sentence share the keys and values that any of them has
written. Each beam has a row of weights that selects its own history, and only these weights are
reordered. The latest tokens are stored one by one in a buffer; when it is full, they are merged
into one summary for each beam.
"""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.modules.search_state import BeamRows
from fairseq_docmt.ops import step_kernels
from fairseq_docmt.ops.linear_attention import Summary, denominators, for_few_queries, ratio
from fairseq_docmt.ops.precision import at_least_single

#: Number of steps in the buffer of recent tokens; a larger buffer is hardly faster.
RECENT_TOKENS = 32


class BeamMemory(NamedTuple):
    """Keys and values that one decoder layer has read, for B sentences with N beams each.

    Older tokens are kept as M summaries per sentence. The recent tokens of all beams, up to E, are
    kept one by one in buffers, which are None if there are no recent tokens.

    Further sizes are H heads, F features and value size D.

    Attributes:
        sums: (H, B, M, F, D) sums of products of key features and values, in at least single
            precision. The beams of a sentence share its summaries.
        norms: (H, B, M, F) sums of key features, in at least single precision.
        shares: (1 or H, B, N, M) weight of each summary for each beam; in at least single precision
            with a gate.
        rounded: (H, B, M * F, D) ``sums`` in the precision of the model, used for reading.
        rounded_norms: (H, B, M * F) ``norms`` in the precision of the model, used for reading.
        keys: (H, B, E, F) buffer for key features, written in place.
        values: (H, B, E, D) buffer for values, written in place.
        weights: (1 or H, B, N, E) weight of each recent token for each beam.
        used: number of used columns of the buffers.
    """

    sums: Tensor
    norms: Tensor
    shares: Tensor
    rounded: Tensor
    rounded_norms: Tensor
    keys: Optional[Tensor]
    values: Optional[Tensor]
    weights: Optional[Tensor]
    used: int

    @classmethod
    def of(cls, summary: Summary, weight_heads: int, dtype: torch.dtype) -> "BeamMemory":
        """Create the memory that holds the tokens of a summary, with one beam per sentence.

        Args:
            summary: sums (H, B, F, D) and norms (H, B, F) of the tokens read so far.
            weight_heads: H if each head has its own gate, 1 if all heads share one, 0 without a
                gate.
            dtype: precision of the model.
        """
        shares = _shares(weight_heads, (summary.norms.size(1), 1, 1), dtype, summary.norms)
        return cls._of_summaries(summary.sums[:, :, None], summary.norms[:, :, None], shares, dtype)

    @classmethod
    def _of_summaries(cls, sums, norms, shares, dtype) -> "BeamMemory":
        rounded = for_few_queries(sums.flatten(2, 3), dtype)
        rounded_norms = norms.flatten(2).to(dtype)
        return cls(sums, norms, shares, rounded, rounded_norms, None, None, None, 0)

    @classmethod
    def empty(cls, like: Tensor, values: int, weight_heads: int) -> "BeamMemory":
        """Return an empty memory, as it is before the first token.

        Args:
            like: (H, B, N, F) key features, which give the number of heads, sentences and beams.
            values: width of the value vectors.
            weight_heads: number of gates: H for one per head, 1 for a shared gate, 0 without a
                gate.
        """
        heads, bsz, beams, features = like.shape
        exact = like.new_empty(0, dtype=at_least_single(like.dtype))
        sums = exact.new_empty(heads, bsz, 0, features, values)
        shares = _shares(weight_heads, (bsz, beams, 0), like.dtype, exact)
        return cls._of_summaries(sums, sums[..., 0], shares, like.dtype)

    @property
    def bsz(self) -> int:
        """Number of sentences B."""
        return self.shares.size(1)

    @property
    def beams(self) -> int:
        """Number of beams N of each sentence."""
        return self.shares.size(2)

    def write(self, phi_k: Tensor, v: Tensor) -> "BeamMemory":
        """Return the memory with one more token per beam.

        Args:
            phi_k: (H, B, N, F) key features of the tokens.
            v: (H, B, N, D) values of the tokens.
        """
        memory = self
        if self.keys is None:
            memory = self._with_room(phi_k, v)
        elif self.used + self.beams > self.keys.size(2):
            memory = self.merged()._replace(keys=self.keys, values=self.values)
            memory = memory._replace(weights=torch.empty_like(self.weights))
        start, end = memory.used, memory.used + self.beams
        memory.keys[:, :, start:end] = phi_k
        memory.values[:, :, start:end] = v
        memory.weights[..., start:end] = _identity(self.beams, memory.weights)
        return memory._replace(used=end)

    def _with_room(self, phi_k: Tensor, v: Tensor) -> "BeamMemory":
        room = RECENT_TOKENS * self.beams
        return self._replace(
            keys=phi_k.new_empty(*phi_k.shape[:2], room, phi_k.size(-1)),
            values=v.new_empty(*v.shape[:2], room, v.size(-1)),
            weights=self.shares.new_empty(*self.shares.shape[:3], room),
        )

    def read(self, phi_q: Tensor, floor: float) -> Tensor:
        """Attend from one query per beam to the beam's history.

        Args:
            phi_q: (H, B, N, F) features of the queries.
            floor: minimum denominator.

        Returns:
            (H, B, N, D) output of attention.
        """
        if self.used > 0 and step_kernels.can_serve(phi_q, self.rounded, self.keys, self.values):
            return self._read_by_kernel(phi_q, floor)
        numerator = denominator = 0.0
        if self.sums.size(2) > 0:
            # One product over all summaries of a sentence; summaries of other beams have weight 0.
            spread = phi_q.unsqueeze(3) * self.shares.unsqueeze(-1).to(phi_q.dtype)
            spread = spread.flatten(3)
            numerator = spread @ self.rounded
            denominator = denominators(spread, self.rounded_norms)
        if self.used > 0:
            keys, values = self.keys[:, :, : self.used], self.values[:, :, : self.used]
            scores = phi_q @ keys.transpose(-1, -2)
            scores = scores * self.weights[..., : self.used].to(scores.dtype)
            numerator = numerator + scores @ values
            denominator = denominator + scores.sum(dim=-1)
        return ratio(numerator, denominator, floor)

    def _read_by_kernel(self, phi_q: Tensor, floor: float) -> Tensor:
        return step_kernels.recall(
            phi_q.contiguous(),
            self.rounded,
            self.rounded_norms,
            self.shares.contiguous(),
            self.keys,
            self.values,
            self.weights,
            self.used,
            floor,
        )

    def decay(self, gate: Tensor) -> "BeamMemory":
        """Return the memory with the history of each beam multiplied by a gate.

        Args:
            gate: (H, B, N) gate of each beam; (1, B, N) if all heads share a gate.
        """
        gate = gate.unsqueeze(-1)
        weights = None if self.weights is None else self.weights * gate
        return self._replace(shares=self.shares * gate, weights=weights)

    def merged(self) -> "BeamMemory":
        """Return an equivalent memory with a single summary for each beam and no recent tokens."""
        sums, norms = self._summaries_of_beams()
        if self.used > 0:
            keys, values, weights = self._tokens_of_beams()
            weighted = weights.unsqueeze(-1).to(keys.dtype) * keys
            # Head by head, which avoids a cast copy of all heads; these few tokens are summed in
            # the precision of the model.
            for total, k, v in zip(sums, weighted, values):
                total += k.transpose(-1, -2) @ v
            norms += weighted.sum(dim=3, dtype=norms.dtype)
        ones = _identity(self.beams, self.shares).expand(*self.shares.shape[:2], -1, -1)
        return self._of_summaries(sums, norms, ones, self.rounded.dtype)

    def _summaries_of_beams(self) -> Tuple[Tensor, Tensor]:
        """Return a copy of the summary that each beam uses, multiplied by its weight.

        This is the only summary that has a weight other than 0 for the beam. If there are no
        summaries yet, the result is zero.

        Returns:
            (H, B, N, F, D) sums and (H, B, N, F) norms, as in :class:`BeamMemory`.
        """
        heads, bsz, known, features, values = self.sums.shape
        if known == 0:
            sums = self.sums.new_zeros(heads, bsz, self.beams, features, values)
            return sums, sums[..., 0].clone()
        column = self.shares.amax(dim=0).argmax(dim=-1)
        sentences = torch.arange(bsz, device=column.device).unsqueeze(-1)
        index = column.expand(len(self.shares), -1, -1).unsqueeze(-1)
        share = self.shares.gather(-1, index).to(self.norms.dtype)
        sums, norms = self.sums[:, sentences, column], self.norms[:, sentences, column]
        return sums.mul_(share.unsqueeze(-1)), norms.mul_(share)

    def _tokens_of_beams(self) -> Tuple[Tensor, Tensor, Tensor]:
        """Collect the recent tokens in the history of each beam, one for each of S steps.

        In each step, the N beams of a sentence write N tokens to the buffers. Only one of them
        belongs to the history of a given beam: the token whose weight for this beam is not 0.

        Returns:
            Keys (H, B, N, S, F), values (H, B, N, S, D) and weights of these tokens (1 or H, B, N,
            S), where the first size of the weights is 1 if all heads share them.
        """
        keys, values = (
            x[:, :, : self.used].unflatten(2, (-1, self.beams)) for x in (self.keys, self.values)
        )
        weights = self.weights[..., : self.used].unflatten(-1, (-1, self.beams))
        column = weights.amax(dim=0).argmax(dim=-1)
        sentences = torch.arange(len(column), device=column.device).view(-1, 1, 1)
        steps = torch.arange(column.size(2), device=column.device)
        index = column.expand(len(weights), *column.shape).unsqueeze(-1)
        weights = weights.gather(-1, index).squeeze(-1)
        return keys[:, sentences, steps, column], values[:, sentences, steps, column], weights

    def reorder(self, rows: BeamRows) -> "BeamMemory":
        """Return the memory for a new order of sentences and beams.

        The new order, ``rows``, may leave out sentences, and may repeat or leave out their beams.
        """
        if rows.local is None:
            memory = self if self.used == 0 else self.merged()
            shares = memory.shares.expand(-1, -1, rows.beams, -1)
            return memory._replace(shares=shares, keys=None, values=None, weights=None)
        memory = self if rows.sentences is None else self._of_sentences(rows.sentences)
        if self.beams == 1:
            return memory
        weights = None if memory.weights is None else _take_beams(memory.weights, rows.local)
        return memory._replace(shares=_take_beams(memory.shares, rows.local), weights=weights)

    def _of_sentences(self, sentences: Tensor) -> "BeamMemory":
        parts = [None if x is None else x.index_select(1, sentences) for x in self[:-1]]
        memory = BeamMemory(*parts, self.used)
        return memory._replace(rounded=for_few_queries(memory.rounded, memory.rounded.dtype))

    def as_summary(self) -> Summary:
        """Summarise the history of each beam.

        Each beam becomes a row: the sums are (H, B * N, F, D) and the norms (H, B * N, F).
        """
        memory = self.merged()
        return Summary(memory.sums.flatten(1, 2), memory.norms.flatten(1, 2))


def _shares(weight_heads: int, shape: Tuple[int, ...], dtype: torch.dtype, exact: Tensor) -> Tensor:
    """Return the initial weights with which each beam reads the shared summaries: all ones.

    With a gate the weights become products of gate values and need at least single precision.
    Without a gate they are only ever 0 or 1, so the precision of the model is sufficient.

    Args:
        weight_heads: number of gates, 0 without a gate.
        shape: shape of the weights after the dimension of the gates.
        dtype: precision of the model, used without a gate.
        exact: tensor on the device of the weights; its precision is used with a gate.
    """
    dtype = exact.dtype if weight_heads > 0 else dtype
    return exact.new_ones(max(weight_heads, 1), *shape, dtype=dtype)


def _identity(beams: int, like: Tensor) -> Tensor:
    return torch.eye(beams, dtype=like.dtype, device=like.device)


def _take_beams(weights: Tensor, local: Tensor) -> Tensor:
    index = local.unsqueeze(0).unsqueeze(-1).expand(weights.size(0), -1, -1, weights.size(3))
    return weights.gather(2, index)
