"""Beam search over the best words only gives the same results as fairseq's."""

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.search import BeamSearch

from fairseq_docmt.generation import beam_search
from fairseq_docmt.generation.beam_search import FewWordsBeamSearch, most_likely

BSZ, BEAMS = 3, 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(beam_search, "BLOCK", 5)


def dictionary(words):
    made = Dictionary()
    for number in range(words - len(made)):
        made.add_symbol(f"w{number}")
    return made


@pytest.mark.parametrize("words", [8, 60, 199, 200, 203])
@pytest.mark.parametrize("step", [0, 1, 5])
def test_choices_equal_those_of_fairseq(words, step):
    known = dictionary(words)
    lprobs = torch.randn(BSZ, BEAMS, words).log_softmax(dim=-1)
    lprobs[0, :, 7:] = -float("inf")  # fewer words than are asked for
    lprobs[1, 2, known.eos()] = 0.0
    lprobs[2, :, -1] = torch.arange(BEAMS).neg()  # behind the last whole block
    scores = torch.randn(BSZ, BEAMS, step).cumsum(dim=-1) if step else None
    wanted = BeamSearch(known).step(step, lprobs, scores)
    found = FewWordsBeamSearch(known).step(step, lprobs, scores)
    torch.testing.assert_close(found[0], wanted[0])
    possible = wanted[0] > -float("inf")
    for got, want in zip(found[1:], wanted[1:]):
        torch.testing.assert_close(got[possible], want[possible])


@pytest.mark.parametrize("words", [100, 104])
def test_the_most_likely(words):
    x = torch.randn(2, 3, words)
    x[..., -3:] += 2
    for got, want in zip(most_likely(x, 7), x.topk(7)):
        torch.testing.assert_close(got, want)
