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

    def restrict(self, limits: Tensor, counts: Optional[Tensor]) -> None:
        """Set the limits of the next batch.

        Args:
            limits: (bsz,) most tokens of each row, ``</s>`` not counted.
            counts: (bsz,) sentences each row must have, 0 for any number; or None.
        """
        self.limits, self.counts = limits, counts

    def step(self, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        """As in the stock strategies; lprobs is (bsz, beam, vocabulary) and masked in place."""
        rows = original_batch_idxs
        ended = (self.limits[rows] <= step).view(-1, 1).expand(lprobs.shape[:2])
        if self.counts is not None:
            self._keep_count(lprobs, prev_output_tokens, self.counts[rows].view(-1, 1), ended)
        if ended.any():
            end_scores = lprobs[..., self.eos].clone()
            lprobs.masked_fill_(ended.unsqueeze(-1), -float("inf"))
            lprobs[..., self.eos] = end_scores
        return self.inner.step(step, lprobs, scores, prev_output_tokens, original_batch_idxs)

    def _keep_count(self, lprobs, tokens, counts, ended) -> None:
        """Forbid ``</s>`` before the last sentence and ``<sep>`` in it."""
        finished = tokens.eq(self.separator).sum(1).view(lprobs.shape[:2])
        counted = counts > 0
        in_last = finished >= counts - 1
        too_early = (counted & ~in_last & ~ended).unsqueeze(-1)
        end = lprobs[..., self.eos : self.eos + 1]
        end.masked_fill_(too_early, -float("inf"))
        separator = lprobs[..., self.separator : self.separator + 1]
        separator.masked_fill_((counted & in_last).unsqueeze(-1), -float("inf"))

    def init_constraints(self, batch_constraints: Optional[Tensor], beam_size: int):
        return self.inner.init_constraints(batch_constraints, beam_size)

    def prune_sentences(self, batch_idxs: Tensor):
        return self.inner.prune_sentences(batch_idxs)

    def update_constraints(self, active_hypos: Tensor):
        return self.inner.update_constraints(active_hypos)

    def set_src_lengths(self, src_lengths):
        return self.inner.set_src_lengths(src_lengths)


def no_limits(rows: int) -> Tensor:
    """(rows,) limits that nothing reaches."""
    return torch.full((rows,), torch.iinfo(torch.int64).max)
