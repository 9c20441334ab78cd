"""Confidence intervals by bootstrap."""

import warnings

import numpy as np
import pytest
import scipy.stats

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


def test_the_intervals_of_every_scipy(monkeypatch):
    """With the keywords of SciPy 1.10, the last for Python 3.8, and no warning of a new one."""
    bootstrap = scipy.stats.bootstrap

    def older(data, statistic, *, n_resamples, batch, paired, method, random_state):
        options = {"n_resamples": n_resamples, "batch": batch, "paired": paired, "method": method}
        return bootstrap(data, statistic, random_state=random_state, **options)

    monkeypatch.setattr(scipy.stats, "bootstrap", older)
    counts = (np.array([3, 1, 4, 1, 5]), np.array([9, 2, 6, 5, 8]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = bootstrap_interval(counts, share)
    assert found == pytest.approx((0.3, 19 / 30), abs=1e-12)


def test_a_single_unit_has_no_interval():
    assert bootstrap_interval((np.array([1]), np.array([2])), share) == (None, None)
