"""Cutting alignments and scores by hand."""

import pytest
import torch

from fairseq_docmt.generation.hypotheses import (
    JointHypothesis,
    cut_alignment,
    nbest_of_sentences,
    split_hypothesis,
)

EOS, SEP = 2, 9


def test_alignments_leave_out_end_symbols_and_other_sentences():
    # Source: a b <sep> c </s>; target: x <sep> y z </s>.
    links = [(0, 0), (2, 0), (1, 1), (0, 2), (3, 2), (4, 3), (2, 3)]
    assert cut_alignment(links, 0, 3, 0, 1) == [(0, 0)]
    assert cut_alignment(links, 3, 5, 2, 4) == [(0, 0)]


def test_split_hypothesis():
    hypothesis = {
        "tokens": torch.tensor([5, SEP, 6, 7, EOS]),
        "positional_scores": torch.tensor([-1.0, -2.0, -3.0, -4.0, -5.0]),
        "alignment": torch.empty(0),
    }
    first, second = split_hypothesis(hypothesis, [3, 2], SEP, 0, None)
    assert first["tokens"].tolist() == [5, EOS] and second["tokens"].tolist() == [6, 7, EOS]
    assert float(first["score"]) == pytest.approx(-1.5)
    assert float(second["score"]) == pytest.approx(-4.0)


def sentence(*tokens):
    scores = torch.zeros(len(tokens) + 1)
    ended = torch.tensor([*tokens, EOS])
    return {"tokens": ended, "score": torch.tensor(-9.0), "positional_scores": scores}


def test_nbest_lists_have_no_sentence_twice_and_are_in_order():
    ranked = [
        JointHypothesis(-1.0, [sentence(5), sentence(6)]),
        JointHypothesis(-2.0, [sentence(5), sentence(7)]),
        JointHypothesis(-3.0, [sentence(8), sentence(6)]),
    ]
    found = [
        [(h["tokens"].tolist(), float(h["score"])) for h in row]
        for row in nbest_of_sentences(ranked, 3)
    ]
    assert found == [[([5, EOS], -1.0), ([8, EOS], -3.0)], [([6, EOS], -1.0), ([7, EOS], -2.0)]]
    assert [len(row) for row in nbest_of_sentences(ranked, 1)] == [1, 1]


def test_a_wrong_number_of_sentences_is_matched_without_loss():
    two = JointHypothesis(-1.0, [sentence(5), sentence(6, 7)])
    for count, wanted in (
        (3, [[5, EOS], [6, 7, EOS], [EOS]]),
        (2, [[5, EOS], [6, 7, EOS]]),
        (1, [[5, 6, 7, EOS]]),
    ):
        assert [h["tokens"].tolist() for h in two.matched(count, EOS).sentences] == wanted
    four = JointHypothesis(-1.0, [scored(1.0), scored(2.0), scored(3.0, 4.0), scored(5.0)])
    last = four.matched(2, EOS).sentences[-1]
    assert last["positional_scores"].tolist() == [2.0, 3.0, 4.0, 5.0, 0.0]


def scored(*values):
    return {
        "tokens": torch.tensor([4] * len(values) + [EOS]),
        "positional_scores": torch.tensor([*values, 0.0]),
    }
