"""Cutting alignments and scores by hand."""

import pytest
import torch

from fairseq_docmt.generation.hypotheses import cut_alignment, split_hypothesis

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
