"""Beam search of fairseq with a faster choice of candidates on the CPU."""

import torch
from fairseq.search import BeamSearch
from torch import Tensor

#: number of words of a block; blocks are compared by their maxima first
BLOCK = 128


class FewWordsBeamSearch(BeamSearch):
    """Beam search of fairseq over the best words of each beam only.

    The result is the same, as no other words can be chosen.  On a CPU, fairseq's copy and sort of
    the probabilities of all words at every step takes as long as a layer of the model.
    """

    def step(self, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        """Return candidates as in the base class; lprobs is (bsz, beams, vocabulary)."""
        rest = (scores, prev_output_tokens, original_batch_idxs)
        # fairseq chooses twice as many candidates as beams, and at most all words but one.
        few = 2 * lprobs.size(1) + 1
        if lprobs.device.type != "cpu" or lprobs.size(2) < 2 * few * BLOCK:
            return super().step(step, lprobs, *rest)
        best, words = most_likely(lprobs, few)
        scores, places, beams = super().step(step, best, *rest)
        return scores, words.flatten(1).gather(1, beams * few + places), beams


def most_likely(lprobs: Tensor, number: int):
    """Return the highest of (..., V) values and their indices, like ``topk``.

    They are in the blocks with the highest maxima or after the last whole block.  V must be
    several times ``number * BLOCK``.
    """
    blocks = lprobs.size(-1) // BLOCK
    body = lprobs[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))
    chosen = body.amax(dim=-1).topk(number, dim=-1).indices
    index = chosen.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=lprobs.device)
    behind = torch.arange(blocks * BLOCK, lprobs.size(-1), device=lprobs.device)
    index = torch.cat([index.flatten(-2), behind.expand(*index.shape[:-2], -1)], dim=-1)
    values, places = lprobs.gather(-1, index).topk(number, dim=-1)
    return values, index.gather(-1, places)
