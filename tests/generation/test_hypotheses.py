"""Splitting of hypotheses, alignments and scores, with values computed by hand."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_docmt.generation.hypotheses import (
    JointHypothesis,
    best_tokens,
    cut_alignment,
    empty_hypothesis,
    nbest_of_sentences,
    sentence_score,
    split_hypothesis,
)

EOS, SEP = 2, 9
#: of hypotheses that no length limit has ended
FREE = {"at_limit": []}


def test_alignments_leave_out_end_symbols_and_other_sentences():
    # Source: a b <sep> c </s>; target: x <sep> y z </s>.
    links = [(0, 0), (2, 0), (1, 1), (0, 2), (3, 2), (4, 3), (2, 3)]
    assert cut_alignment(links, 0, 3, 0, 1) == [(0, 0)]
    assert cut_alignment(links, 3, 5, 2, 4) == [(0, 0)]


def test_soft_alignments_keep_the_weights_of_the_sentence_pair():
    # Source: tag a b <sep> c </s> tag; target: tag x <sep> y </s>.
    weights = [[f"{target}{source}" for source in range(7)] for target in range(5)]
    assert cut_alignment(weights, 1, 4, 1, 2) == [["11", "12", "13"], ["21", "22", "23"]]
    assert cut_alignment(weights, 4, 6, 3, 4) == [["34", "35"], ["44", "45"]]


def test_split_hypothesis():
    hypothesis = {
        "tokens": torch.tensor([5, SEP, 6, 7, EOS]),
        "positional_scores": torch.tensor([-1.0, -2.0, -3.0, -4.0, -5.0]),
        "alignment": torch.empty(0),
    }
    first, second = split_hypothesis(hypothesis, [(0, 3), (3, 5)], [(0, 2), (2, 5)], None)
    assert first["tokens"].tolist() == [5, EOS] and second["tokens"].tolist() == [6, 7, EOS]
    assert float(first["score"]) == pytest.approx(-1.5)
    assert float(second["score"]) == pytest.approx(-4.0)
    assert first["positional_scores"].tolist() == [-1, -2]
    assert second["positional_scores"].tolist() == [-3, -4, -5]


def test_split_hypothesis_after_a_symbol_at_the_front():
    """The third sentence of the output has no source, so it has no links."""
    tokens = torch.tensor([8, 5, SEP, 6, SEP, 7, EOS])
    links = [(0, 0), (1, 1), (2, 1), (3, 1), (4, 3), (5, 3), (4, 5), (6, 5)]
    scores = -torch.arange(7.0)
    hypothesis = {"tokens": tokens, "positional_scores": scores, "alignment": links}
    places = [(1, 4), (4, 6)], [(1, 3), (3, 5), (5, 7)]
    parts = split_hypothesis(hypothesis, *places, None)
    assert [part["tokens"].tolist() for part in parts] == [[5, EOS], [6, EOS], [7, EOS]]
    assert [part["alignment"] for part in parts] == [[(0, 0), (1, 0)], [(0, 0)], []]
    assert [float(part["score"]) for part in parts] == [-1.5, -3.5, -5.5]
    assert tokens.tolist() == [8, 5, SEP, 6, SEP, 7, EOS] and scores.tolist()[2] == -2
    del hypothesis["alignment"]
    assert split_hypothesis(hypothesis, *places, None)[0]["alignment"] is None


def test_scores_are_normalised_with_the_options_of_the_generator():
    scores = torch.tensor([-1.0, -2.0, -5.0])
    assert float(sentence_score(scores, None)) == pytest.approx(-8 / 3)
    assert float(sentence_score(scores, SimpleNamespace(len_penalty=2.0))) == pytest.approx(-8 / 9)
    plain = SimpleNamespace(normalize_scores=False, len_penalty=2.0)
    assert float(sentence_score(scores, plain)) == -8
    assert float(sentence_score(scores[:0], None)) == 0
    assert float(sentence_score(scores[:1], None)) == -1


def test_an_empty_hypothesis():
    empty = empty_hypothesis(EOS)
    assert empty["tokens"].tolist() == [EOS] and empty["positional_scores"].tolist() == [0]
    assert float(empty["score"]) == 0 and empty["alignment"] == [] and empty["attention"] is None


def test_best_tokens():
    hypotheses = [{"tokens": torch.tensor([1, 5, 6, EOS])}, {"tokens": torch.tensor([7, EOS])}]
    assert best_tokens(hypotheses, pad=1).tolist() == [5, 6]


def sentence(*tokens):
    scores = torch.zeros(len(tokens) + 1)
    ended = torch.tensor([*tokens, EOS])
    return {"tokens": ended, "score": torch.tensor(-9.0), "positional_scores": scores, **FREE}


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
    assert [len(row) for row in nbest_of_sentences(ranked, 3, distinct=False)] == [3, 3]


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
    assert last["at_limit"] == []
    four.sentences[3]["at_limit"] = [1]
    assert four.matched(2, EOS).sentences[-1]["at_limit"] == [4]
    assert last["positional_scores"].tolist() == [2.0, 3.0, 4.0, 5.0, 0.0]


def scored(*values):
    return {
        "tokens": torch.tensor([4] * len(values) + [EOS]),
        "positional_scores": torch.tensor([*values, 0.0]),
        **FREE,
    }
