"""n-grams that a sentence has had already are not written again."""

import math

import pytest
import torch

from fairseq_docmt.generation.ngram_block import SentenceNgramBlock

SEP, END, WORDS = 9, 2, 10


def banned(size, *hypotheses, forced=None):
    """Return the words that may not follow each of two hypotheses of the same length."""
    step = len(hypotheses[0])
    tokens = torch.full((len(hypotheses), step + 5), 1)  # padding follows
    tokens[:, 0] = END
    tokens[:, 1 : step + 1] = torch.tensor(hypotheses, dtype=torch.long)
    lprobs = torch.zeros(len(hypotheses), WORDS)
    if forced is not None:
        lprobs[:, torch.arange(WORDS) != forced] = -math.inf
    found = SentenceNgramBlock(size, SEP)(tokens, lprobs, 1, len(hypotheses), step)
    return [row.eq(-math.inf).nonzero().view(-1).tolist() for row in found]


@pytest.mark.parametrize(
    "size, hypothesis, want",
    [
        (1, [], []),
        (1, [5, 6, 5], [5, 6]),
        (2, [5], []),
        (2, [5, 5], [5]),
        (2, [5, 6, 7, 5], [6]),
        (2, [5, 6, 5, 7, 5], [6, 7]),
        (3, [5, 6, 7, 5], []),
        (3, [5, 6, 7, 5, 6], [7]),
        (3, [5, 5, 5], [5]),
        # the sentence before does not count
        (1, [5, 6, SEP, 7], [7]),
        (1, [5, 6, SEP], []),
        (2, [5, 6, SEP, 5], []),
        (2, [7, SEP, 5, 6, SEP, 7, SEP], []),
        (2, [6, 5, SEP, 5, 6, 5], [6]),
        (3, [5, 6, SEP, 5, 6], []),
    ],
)
def test_words_that_may_not_follow(size, hypothesis, want):
    assert banned(size, hypothesis) == [want]


def test_each_hypothesis_by_itself():
    assert banned(2, [5, 6, 5], [5, 6, 7], [6, 6, 6]) == [[6], [], [6]]


def test_a_word_that_is_forced_may_be_repeated():
    others = [word for word in range(WORDS) if word != 5]
    assert banned(2, [5, 5], forced=5) == [others]
