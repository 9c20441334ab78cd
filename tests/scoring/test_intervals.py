"""Confidence intervals by bootstrap over documents."""

import numpy as np
import pytest

from fairseq_docmt.scoring._intervals import interval_over_documents


def share(right, total, axis=-1):
    return right.sum(axis) / total.sum(axis)


def test_both_counts_of_a_document_are_drawn_together():
    total = np.array([1, 10, 100, 1000, 5])
    assert interval_over_documents((total, 2 * total), share) == (0.5, 0.5)


def test_interval_of_a_share():
    """With 40 documents of one item, that of the binomial distribution."""
    right = np.repeat([1, 0], [30, 10])
    low, high = interval_over_documents((right, np.ones(40)), share)
    assert (low, high) == (pytest.approx(0.61, abs=0.03), pytest.approx(0.88, abs=0.03))
    assert interval_over_documents((right, np.ones(40)), share) == (low, high)


def test_a_single_document_has_no_interval():
    assert interval_over_documents((np.array([1]), np.array([2])), share) == (None, None)
