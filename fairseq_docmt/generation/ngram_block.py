"""Blocking of repeated n-grams (``--no-repeat-ngram-size``)."""

import math

from fairseq.ngram_repeat_block import NGramRepeatBlock


class SentenceNgramBlock(NGramRepeatBlock):
    """Blocker of fairseq that compares the n-grams of the current sentence.

    Without its CUDA extension, fairseq's blocker compares the padding after a hypothesis, and so
    blocks nothing.

    Args:
        no_repeat_ngram_size: number of tokens of an n-gram.
        separator: index of ``<sep>``, after which another sentence begins.
    """

    def __init__(self, no_repeat_ngram_size: int, separator: int):
        super().__init__(no_repeat_ngram_size, use_extension=False)
        self.separator = separator

    def forward(self, tokens, lprobs, bsz: int, beam_size: int, step: int):
        """Forbid the words that would end an n-gram for the second time.

        A word that is the only one allowed, such as that of a prefix, stays.

        Args:
            tokens: (bsz * beams, any) hypotheses, of which ``step`` tokens follow the first.
            lprobs: (bsz * beams, V) log-probabilities of the next word, changed in place.

        Returns:
            lprobs.
        """
        size = self.no_repeat_ngram_size
        if step < size:
            return lprobs
        written = tokens[:, 1 : step + 1]
        ngrams = written.unfold(1, size, 1)
        repeated = ngrams[..., :-1].eq(written[:, None, step + 1 - size :]).all(dim=2)
        # An n-gram is of the current sentence if no separator is in it or after it.
        ends = written.eq(self.separator).flip(1).cumsum(1).flip(1)
        repeated &= ends[:, : ngrams.size(1)].eq(0)
        repeated &= lprobs.ne(-math.inf).sum(1, keepdim=True) > 1
        rows, places = repeated.nonzero(as_tuple=True)
        lprobs[rows, ngrams[rows, places, -1]] = -math.inf
        return lprobs
