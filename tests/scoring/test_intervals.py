"""Confidence intervals by bootstrap."""

import warnings

import numpy as np
import pytest
import scipy.stats

from fairseq_docmt.scoring._intervals import as_json, bootstrap_interval, compare, table_of


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


@pytest.mark.parametrize("count", [2, 3, 5])
def test_rare_words(count):
    """Samples without any of them have no score, and one sentence no interval."""
    right, none = np.zeros(200), np.zeros(200)
    right[:count] = 1
    one = (np.eye(200)[0], np.eye(200)[0])
    found = compare({"formality": {"wrong": (none, right), "right": (right, right), "one": one}})
    scores = {name: tuple(values["score"]) for name, values in found["formality"].items()}
    assert scores == {"wrong": (0, 0, 0), "right": (1, 1, 1), "one": (1, None, None)}
    assert tuple(found["formality"]["right"]["difference"]) == (1, 1, 1)


def test_a_score_of_nothing_is_a_dash():
    """Neither the reference nor the first system has a word that counts."""
    nothing, some = (np.zeros(3), np.zeros(3)), (np.array([1.0, 0, 2]), np.array([2.0, 0, 2]))
    found = compare({"formality": {"a": nothing, "b": some, "c": some}})
    rows = table_of(found, "F1", "sentences").rows
    assert rows[0][2:4] == ["-", ""] and rows[1][2] == "75.0" and rows[1][4:] == ["-", ""]
    undefined = {"value": None, "low": None, "high": None}
    values = as_json(found)["formality"]
    assert values["a"]["score"] == values["b"]["difference"] == undefined
    assert values["c"]["score"]["value"] == 0.75
