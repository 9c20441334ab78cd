"""Confidence intervals by bootstrap."""

import numpy as np
import pytest

from fairseq_docmt.scoring._intervals import bootstrap_interval


def share(right, total, axis=-1):
    return right.sum(axis) / total.sum(axis)


def test_both_counts_of_a_unit_are_drawn_together():
    total = np.array([1, 10, 100, 1000, 5])
    assert bootstrap_interval((total, 2 * total), share) == (0.5, 0.5)


def test_interval_of_a_share():
    """With 40 units of one item, that of the binomial distribution."""
    right = np.repeat([1, 0], [30, 10])
    low, high = bootstrap_interval((right, np.ones(40)), share)
    assert (low, high) == (pytest.approx(0.61, abs=0.03), pytest.approx(0.88, abs=0.03))
    assert bootstrap_interval((right, np.ones(40)), share) == (low, high)


def test_a_single_unit_has_no_interval():
    assert bootstrap_interval((np.array([1]), np.array([2])), share) == (None, None)
