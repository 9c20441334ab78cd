"""Stock beam search, choosing among few words in place of the whole vocabulary."""

import torch
from fairseq.search import BeamSearch
from torch import Tensor

#: words of a block of which only the best is looked at first
BLOCK = 128


class FewWordsBeamSearch(BeamSearch):
    """Beam search as fairseq's, which is shown the best words of each beam alone.

    No others can be chosen.  On a CPU fairseq would copy and sort through the probabilities of all
    words at every step, which takes as long as a layer of the model.
    """

    def step(
        self,
        step,
        lprobs,
        scores,
        prev_output_tokens=None,
        original_batch_idxs=None,
        candidate_multiple=2,
    ):
        """As in fairseq's; lprobs is (bsz, beams, vocabulary)."""
        rest = (scores, prev_output_tokens, original_batch_idxs, candidate_multiple)
        # One more than are chosen, as fairseq never takes all that it is shown.
        few = candidate_multiple * lprobs.size(1) + 1
        if lprobs.device.type != "cpu" or lprobs.size(2) < 2 * few * BLOCK:
            return super().step(step, lprobs, *rest)
        best, words = most_likely(lprobs, few)
        scores, places, beams = super().step(step, best, *rest)
        return scores, words.flatten(1).gather(1, beams * few + places), beams


def most_likely(lprobs: Tensor, number: int):
    """The highest of (..., V) values, as ``topk``; V must be several times ``number * BLOCK``.

    The highest are in the blocks whose maxima are highest, or behind the last whole block.
    """
    blocks = lprobs.size(-1) // BLOCK
    body = lprobs[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))
    chosen = body.amax(dim=-1).topk(number, dim=-1).indices
    index = chosen.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=lprobs.device)
    behind = torch.arange(blocks * BLOCK, lprobs.size(-1), device=lprobs.device)
    index = torch.cat([index.flatten(-2), behind.expand(*index.shape[:-2], -1)], dim=-1)
    values, places = lprobs.gather(-1, index).topk(number, dim=-1)
    return values, index.gather(-1, places)
