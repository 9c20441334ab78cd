"""Search strategies with a length limit for each batch row, and a faster beam search on the CPU."""

import math
from typing import List, Optional, Sequence, Tuple

import torch
from fairseq import search
from fairseq.search import BeamSearch
from torch import Tensor

#: strategies that search for the best hypothesis; the others sample or diversify
RANKING = (
    search.BeamSearch,
    search.LengthConstrainedBeamSearch,
    search.LexicallyConstrainedBeamSearch,
    search.PrefixConstrainedBeamSearch,
)


class SentenceSearch(search.Search):
    """Search strategy of fairseq with a length limit per row and a stricter stopping rule.

    It wraps a strategy such as beam search or sampling.

    fairseq's generator has one length limit for a whole batch, so the result of a row can depend on
    the other rows.  Here each row has its own limit.

    fairseq's generator also stops as soon as it has ``beam`` finished hypotheses.  Here a row is
    done when no unfinished hypothesis would beat the worst of its ``nbest`` best finished ones by
    ending at the next step with probability 1.  Greedy search (beam 1) and strategies that do not
    rank hypotheses, such as sampling, stop as in fairseq.

    Args:
        inner: fairseq's strategy.
        tgt_dict: target dictionary.
        separator: index of ``<sep>``.
        beam: number of hypotheses of each row.
        nbest: number of hypotheses to print.
        len_penalty: exponent of the length by which scores are divided; 0 to rank by the sum.
        forbidden: indices of symbols that are never generated within a translation, such as
            language tags.
    """

    def __init__(
        self,
        inner,
        tgt_dict,
        separator: int,
        beam: int,
        nbest: int,
        len_penalty: float,
        forbidden: Sequence[int] = (),
    ):
        super().__init__(tgt_dict)
        self.inner = inner
        self.separator = separator
        self.beam, self.nbest, self.len_penalty = beam, min(nbest, beam), len_penalty
        self._forbidden = list(forbidden)
        self.keeps_best = beam > 1 and isinstance(inner, RANKING)
        self.supports_constraints = inner.supports_constraints
        # After a forced beginning a row may end with fewer hypotheses than beams, and fairseq's
        # diverse searches would wait for the others.
        self.stop_on_max_len = True
        self.needs_src_lengths = getattr(inner, "needs_src_lengths", False)
        self.limits: Optional[Tensor] = None
        self.counts: Optional[Tensor] = None
        self.least: Optional[Tensor] = None
        self.marks: Optional[Tensor] = None
        #: ``limits``, ``counts`` and ``reserved`` as lists
        self._limits: List[int] = []
        self._counts: List[int] = []
        self._reserved: List[List[int]] = []
        #: ``forbidden`` on the device of the batch
        self.forbidden: Optional[Tensor] = None
        #: (bsz, sentences) number of tokens that are left to the sentences after each
        self.reserved: Optional[Tensor] = None
        #: (bsz,) score and length of the target context of each row; None if it does not count
        self.context: Optional[Tuple[Tensor, Tensor]] = None
        #: (bsz, beam) scores of finished hypotheses, best first
        self.finished: Optional[Tensor] = None
        #: (unfinished rows,) whether a row is done after the current step
        self.done: Optional[Tensor] = None
        #: (bsz,) rows whose latest hypothesis is a dummy to end the search
        self.nothing_new: Optional[Tensor] = None
        #: (unfinished rows,) source lengths, for strategies that need them
        self._src_lengths: Optional[Tensor] = None

    def restrict(
        self,
        limits: Tensor,
        sizes: Tensor,
        least: Tensor,
        context: Optional[Tuple[Tensor, Tensor]] = None,
        marks: Optional[Tensor] = None,
    ) -> None:
        """Set the length limits and other requirements for the rows of the next batch.

        If a row must have a certain number of sentences, its limit is divided among them in
        proportion to their source lengths.  A sentence may also use tokens that earlier sentences
        have left over, but not the shares of later sentences.

        Args:
            limits: (bsz,) maximum number of tokens, without ``</s>``.
            sizes: (bsz, sentences) number of source tokens of each required sentence, padded with
                0.  A row of zeros may have any number of sentences.
            least: (bsz,) minimum number of tokens before ``</s>``, unless the limit is reached.
            context: (bsz,) log-probability and (bsz,) length of the target context, if hypotheses
                are to be ranked together with it; otherwise None.
            marks: (bsz,) number of forced tokens before the translation, 0 by default.
        """
        self.context = context
        self.marks = torch.zeros_like(limits) if marks is None else marks
        self.forbidden = torch.tensor(self._forbidden, dtype=torch.long, device=limits.device)
        self.limits, self.counts, self.least = limits, sizes.gt(0).sum(1), least
        room = (limits - self.marks - self.counts + 1).clamp(min=0).unsqueeze(1)
        shares = (room * sizes).div(sizes.sum(1, keepdim=True).clamp(min=1), rounding_mode="floor")
        with_separator = shares + sizes.gt(0)
        self.reserved = with_separator.flip(1).cumsum(1).flip(1) - with_separator
        self._limits, self._counts = limits.tolist(), self.counts.tolist()
        self._reserved = self.reserved.tolist()
        self.finished = torch.full((len(limits), self.beam), -math.inf, device=limits.device)
        self.nothing_new = torch.zeros_like(limits, dtype=torch.bool)

    def step(self, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        """Choose the candidates for the next token of each row, as fairseq's strategies do.

        The arguments are the same as for fairseq's strategies.  ``lprobs`` (bsz, beam, vocabulary)
        is changed in place: words that must not follow get minus infinity.

        Returns:
            scores, tokens and beams of the candidates of each row, each (bsz, candidates).
        """
        rows = original_batch_idxs
        ended = (self.limits[rows] <= step).view(-1, 1).expand(lprobs.shape[:2])
        if self.counts[rows].any():
            self._keep_counts(lprobs, prev_output_tokens, rows, step, ended)
        too_short = (self.least[rows] > step).view(-1, 1) & ~ended
        _forbid(self.eos, lprobs, too_short)
        translates = (self.marks[rows] <= step).view(-1, 1, 1)
        lprobs[..., self.forbidden] = lprobs[..., self.forbidden].masked_fill(translates, -math.inf)
        _allow_only(self.eos, lprobs, ended)
        if self.needs_src_lengths:
            self.inner.set_src_lengths(torch.minimum(self._src_lengths, self.limits[rows]))
        if isinstance(self.inner, search.Sampling):
            return self._sampled(step, lprobs, scores, prev_output_tokens, rows)
        chosen = self.inner.step(step, lprobs, scores, prev_output_tokens, rows)
        return self._end_rows(step, rows, *chosen) if self.keeps_best else chosen

    def _sampled(self, step: int, lprobs: Tensor, *rest):
        """Sample candidates, even where all allowed words have vanishing probability.

        fairseq samples from probabilities, and in single precision these are 0 below e^-104.  If
        the allowed words together have a probability below e^-20, their probabilities are therefore
        normalised before sampling.  The scores of the candidates are not affected.
        """
        total = lprobs.logsumexp(dim=2)
        total = total.masked_fill(total > -20, 0.0)
        scores, words, beams = self.inner.step(step, lprobs - total.unsqueeze(2), *rest)
        return scores + total.gather(1, beams), words, beams

    def _end_rows(self, step: int, rows: Tensor, scores: Tensor, words: Tensor, beams: Tensor):
        """Find the batch rows that are done, and make the generator notice them.

        See :class:`SentenceSearch` for when a row is done.  The generator checks whether a row is
        done only when one of its hypotheses ends.  If a row is done, but none of its hypotheses
        ends at this step, it therefore gets a dummy hypothesis, which is dropped later.

        Args:
            step: number of tokens of each hypothesis before this step.
            rows: (bsz,) indices of the batch rows that are still searched.
            scores, words, beams: (bsz, candidates) chosen candidates, in the generator's order.

        Returns:
            scores, words and beams, with dummy hypotheses as first candidates where needed.
        """
        ends = words.eq(self.eos) & scores.ne(-math.inf)
        new = self.normalised(scores, step + 1, rows).masked_fill(~ends, -math.inf)[:, : self.beam]
        finished = torch.cat([self.finished[rows], new], dim=1).topk(self.beam, dim=1).values
        self.finished[rows] = finished
        unfinished = scores.masked_fill(words.eq(self.eos), -math.inf).amax(dim=1)
        within_reach = self.normalised(unfinished, step + 2, rows)
        self.done = finished[:, 0].gt(-math.inf) & within_reach.le(finished[:, self.nbest - 1])
        silent = self.done & ~ends[:, : self.beam].any(dim=1)
        self.nothing_new[rows] = silent
        words[:, 0].masked_fill_(silent, self.eos)
        scores[:, 0].masked_fill_(silent, 0.0)
        return scores, words, beams

    def normalised(self, scores: Tensor, length: int, rows) -> Tensor:
        """Return the scores by which hypotheses are ranked.

        These are sums of log-probabilities, divided by ``length ** len_penalty``.  If hypotheses
        are ranked together with their target context, its score and length are added first.

        Args:
            scores: (n, ...) sums of log-probabilities for n batch rows, or a scalar for one row.
            length: number of tokens in each sum.
            rows: (n,) indices of the batch rows, or the index of the one row.
        """
        if self.context is None:
            return scores.float() / length**self.len_penalty
        score, tokens = (x[rows] for x in self.context)
        shape = [*score.shape, *[1] * (scores.dim() - score.dim())]
        length = tokens.view(shape) + length
        return (scores.float() + score.view(shape)) / length**self.len_penalty

    def _keep_counts(self, lprobs, tokens, rows, step: int, ended: Tensor) -> None:
        """Enforce the required number of sentences by forbidding ``</s>`` or ``<sep>``.

        ``</s>`` is forbidden before the last sentence, and ``<sep>`` within the last.  A sentence
        that has used up its share of the length limit must end with ``<sep>``.  Rows that may have
        any number of sentences are not changed.

        Args:
            lprobs: (bsz, beam, vocabulary) log-probabilities, changed in place.
            tokens: (bsz * beam, any) hypotheses so far.
            rows: (bsz,) indices of the batch rows that are still searched.
            step: number of tokens of each hypothesis.
            ended: (bsz, beam) True for hypotheses of rows that have reached their total limit.
        """
        finished = tokens.eq(self.separator).sum(1).view(ended.shape)
        counts = self.counts[rows].view(-1, 1)
        counted, in_last = counts > 0, finished >= counts - 1
        reserved = self.reserved[rows].gather(1, finished.clamp(max=self.reserved.size(1) - 1))
        at_limit = step + reserved >= self.limits[rows].view(-1, 1)
        at_limit &= step >= self.marks[rows].view(-1, 1)
        _forbid(self.eos, lprobs, counted & ~in_last & ~ended)
        _forbid(self.separator, lprobs, counted & in_last)
        _allow_only(self.separator, lprobs, counted & at_limit & ~in_last & ~ended)

    def forced_ends(self, tokens: Tensor, row: int) -> List[int]:
        """Return where the sentences of a hypothesis end because of the length limit of their row.

        Args:
            tokens: (T,) hypothesis, which ends in ``</s>``.
            row: index of its batch row.

        Returns:
            Positions of the end symbols in ``tokens``; empty if no sentence reached its limit.
        """
        limit, last = self._limits[row], len(tokens) - 1
        if self._counts[row] < 2:  # nothing is reserved for later sentences
            return [last] if last >= limit else []
        ends = [*tokens[:-1].eq(self.separator).nonzero().view(-1).tolist(), last]
        return [at for at, left in zip(ends, self._reserved[row]) if at + left >= limit]

    def init_constraints(self, batch_constraints: Optional[Tensor], beam_size: int):
        """Initialize the constraint states for constrained decoding, if supported."""
        return self.inner.init_constraints(batch_constraints, beam_size)

    def prune_sentences(self, batch_idxs: Tensor):
        """Keep only the constraint states of the rows ``batch_idxs``; the other rows are done."""
        return self.inner.prune_sentences(batch_idxs)

    def update_constraints(self, active_hypos: Tensor):
        """Reorder the constraint states to follow the hypotheses that the beam has kept."""
        return self.inner.update_constraints(active_hypos)

    def set_src_lengths(self, src_lengths):
        """Store the (rows,) source lengths for strategies that need them."""
        self._src_lengths = src_lengths


def _forbid(symbol: int, lprobs: Tensor, where: Tensor) -> None:
    lprobs[..., symbol].masked_fill_(where, -float("inf"))


def _allow_only(symbol: int, lprobs: Tensor, where: Tensor) -> None:
    if where.any():
        scores = lprobs[..., symbol].clone()
        lprobs.masked_fill_(where.unsqueeze(-1), -float("inf"))
        lprobs[..., symbol] = scores


#: number of words of a block; blocks are compared by their maxima first
BLOCK = 128


class FewWordsBeamSearch(BeamSearch):
    """fairseq's beam search, made faster on a CPU by looking only at the best words of each beam.

    The result is the same, because no other words can be chosen.  At every step, fairseq copies and
    sorts the probabilities of all words; on a CPU this takes as long as a layer of the model.
    """

    def step(self, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        """Return the candidates that fairseq's beam search would choose.

        The arguments are the same as for fairseq's beam search; ``lprobs`` is (bsz, beams,
        vocabulary).  On a CPU, a large vocabulary is first reduced to the best words of each beam.
        """
        rest = (scores, prev_output_tokens, original_batch_idxs)
        # fairseq chooses twice as many candidates as beams, and at most all words but one.
        few = 2 * lprobs.size(1) + 1
        if lprobs.device.type != "cpu" or lprobs.size(2) < 2 * few * BLOCK:
            return super().step(step, lprobs, *rest)
        best, words = most_likely(lprobs, few)
        scores, places, beams = super().step(step, best, *rest)
        return scores, words.flatten(1).gather(1, beams * few + places), beams


def most_likely(lprobs: Tensor, number: int):
    """Return the ``number`` highest values of the last dimension and their indices, like ``topk``.

    This is faster than ``topk`` for a long dimension.  The dimension is divided into blocks of
    BLOCK values.  Only the blocks with the highest maxima and the incomplete block at the end are
    searched.  The dimension must be several times ``number * BLOCK`` long.
    """
    blocks = lprobs.size(-1) // BLOCK
    body = lprobs[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))
    chosen = body.amax(dim=-1).topk(number, dim=-1).indices
    index = chosen.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=lprobs.device)
    behind = torch.arange(blocks * BLOCK, lprobs.size(-1), device=lprobs.device)
    index = torch.cat([index.flatten(-2), behind.expand(*index.shape[:-2], -1)], dim=-1)
    values, places = lprobs.gather(-1, index).topk(number, dim=-1)
    return values, index.gather(-1, places)
