"""A search strategy that keeps each row of a batch to its own length and number of sentences."""

from typing import Optional

import torch
from fairseq.search import Search
from torch import Tensor


class SentenceSearch(Search):
    """Wraps the stock strategy of a generator (beam search, sampling, ...).

    The stock generator has one length limit for a whole batch, so that neighbours could change a
    row; here each row has its own.

    Args:
        inner: the strategy that chooses.
        tgt_dict: target dictionary.
        separator: index of ``<sep>``.
    """

    def __init__(self, inner: Search, tgt_dict, separator: int):
        super().__init__(tgt_dict)
        self.inner = inner
        self.eos = tgt_dict.eos()
        self.separator = separator
        self.supports_constraints = inner.supports_constraints
        self.stop_on_max_len = inner.stop_on_max_len
        self.needs_src_lengths = getattr(inner, "needs_src_lengths", False)
        self.limits: Optional[Tensor] = None
        self.counts: Optional[Tensor] = None
        self.least: Optional[Tensor] = None
        self.sentence_limits: Optional[Tensor] = None

    def restrict(self, limits: Tensor, counts: Tensor, least: Tensor) -> None:
        """Set the limits of the next batch.

        Args:
            limits: (bsz,) most tokens of each row, ``</s>`` not counted.
            least: (bsz,) tokens that must come before ``</s>``, unless the limit is reached.
            counts: (bsz,) sentences each row must have, 0 for any number.  Where a number is set,
                the limit is shared out evenly, so that no sentence takes the place of others.
        """
        self.limits, self.counts, self.least = limits, counts, least
        self.sentence_limits = (limits - counts + 1).div(counts.clamp(min=1), rounding_mode="floor")

    def step(self, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        """As in the stock strategies; lprobs is (bsz, beam, vocabulary) and masked in place."""
        rows = original_batch_idxs
        ended = (self.limits[rows] <= step).view(-1, 1).expand(lprobs.shape[:2])
        if self.counts[rows].any():
            at_limit = self._keep_counts(lprobs, prev_output_tokens, rows, step)
            ended = ended | at_limit
        too_short = (self.least[rows] > step).view(-1, 1) & ~ended
        _forbid(self.eos, lprobs, too_short)
        _allow_only(self.eos, lprobs, ended)
        return self.inner.step(step, lprobs, scores, prev_output_tokens, original_batch_idxs)

    def _keep_counts(self, lprobs, tokens, rows, step: int) -> Tensor:
        """Forbid ``</s>`` before the last sentence and ``<sep>`` in it.

        Returns:
            (bsz, beam) whether the last sentence has reached its limit.
        """
        shape = lprobs.shape[:2]
        is_separator = tokens.eq(self.separator)
        finished = is_separator.sum(1).view(shape)
        columns = torch.arange(tokens.size(1), device=tokens.device)
        length = step - (is_separator * columns).max(1).values.view(shape)
        counts = self.counts[rows].view(-1, 1)
        counted, in_last = counts > 0, finished >= counts - 1
        at_limit = counted & (length >= self.sentence_limits[rows].view(-1, 1))
        _forbid(self.eos, lprobs, counted & ~in_last)
        _forbid(self.separator, lprobs, counted & in_last)
        _allow_only(self.separator, lprobs, at_limit & ~in_last)
        return at_limit & in_last

    def init_constraints(self, batch_constraints: Optional[Tensor], beam_size: int):
        return self.inner.init_constraints(batch_constraints, beam_size)

    def prune_sentences(self, batch_idxs: Tensor):
        return self.inner.prune_sentences(batch_idxs)

    def update_constraints(self, active_hypos: Tensor):
        return self.inner.update_constraints(active_hypos)

    def set_src_lengths(self, src_lengths):
        return self.inner.set_src_lengths(src_lengths)


def _forbid(symbol: int, lprobs: Tensor, where: Tensor) -> None:
    lprobs[..., symbol].masked_fill_(where, -float("inf"))


def _allow_only(symbol: int, lprobs: Tensor, where: Tensor) -> None:
    if where.any():
        scores = lprobs[..., symbol].clone()
        lprobs.masked_fill_(where.unsqueeze(-1), -float("inf"))
        lprobs[..., symbol] = scores
