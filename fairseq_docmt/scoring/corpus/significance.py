"""Significance tests computed from segment statistics, such as numbers of matching n-grams.

The paired tests reproduce the random numbers and p-values of sacreBLEU.  A bootstrap resample is
represented by how often it contains each segment, so that a matrix product sums its statistics.
Resamples are drawn in blocks, so that memory use does not depend on their number.
"""

import os
from typing import Dict, Iterator, NamedTuple, Optional

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, _compute_p_value, estimate_ci

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import whole_number

#: Name of a test -> its name in sacreBLEU.
PAIRED_TESTS = {"bootstrap": "bs", "randomisation": "ar"}
TESTS = (*PAIRED_TESTS, "sign")
#: With fewer segments the paired tests of sacreBLEU call almost any difference significant.
FEWEST_SEGMENTS = 10
#: Number of resamples or trials in a block.  numpy makes 32 booleans of each random number and
#: drops unused ones, so only blocks of a multiple of 32 give the same values as a single draw.
BLOCK = 32

#: System -> (segments, statistics).
Statistics = Dict[str, np.ndarray]


class Comparison(NamedTuple):
    """Result of a significance test of a system against the baseline.

    Attributes:
        p: p-value; None if there are too few segments for the test.
        interval: half the width of the 95 % confidence interval of the system's score; None unless
            the test is a bootstrap test with enough segments.
        better, worse: for a sign test, number of segments in which the system is better, and number
            of segments in which it is worse; None for other tests.
        procedure: number of samples and seed, e.g. ``bs:1000|seed:12345``; "" for a sign test.
    """

    p: Optional[float]
    interval: Optional[float] = None
    better: Optional[int] = None
    worse: Optional[int] = None
    procedure: str = ""


def score_of(metric: Metric, sums: np.ndarray) -> float:
    """Return the score of a corpus, computed from its summed statistics.

    Args:
        metric: sacreBLEU metric.
        sums: (statistics,) statistics of the metric, summed over the segments of the corpus.
    """
    return float(metric._compute_score_from_stats(sums.tolist()).score)


def paired_tests(
    statistics: Statistics, metric: Metric, test: str, samples: int = 0
) -> Dict[str, Comparison]:
    """Compare each system with the first system by one of sacreBLEU's paired tests.

    Args:
        statistics: system -> (segments, statistics) array of the metric's statistics, for at least
            two systems.
        metric: sacreBLEU metric.
        test: ``bootstrap`` (Koehn, 2004) or ``randomisation`` (Riezler and Maxwell, 2005).
        samples: number of resamples or trials; 0 for 1,000 resamples or 10,000 trials.

    Returns:
        System -> comparison, for all systems but the first.  For equal scores, ``p`` is 1.  With
        fewer than 10 segments, ``p`` and ``interval`` are None, because there are too few distinct
        resamples.

    Raises:
        UserError: the environment variable ``SACREBLEU_SEED`` is invalid.
    """
    kind = PAIRED_TESTS[test]
    samples = samples or PairedTest._DEFAULT_SAMPLES[kind]
    seed = os.environ.get("SACREBLEU_SEED", "12345").lower()
    if seed != "none" and whole_number(seed) is None:
        raise UserError(f"SACREBLEU_SEED must be a whole number or none, got {seed!r}")
    rng = np.random.default_rng(None if seed == "none" else int(seed))
    scores = {name: score_of(metric, rows.sum(axis=0)) for name, rows in statistics.items()}
    differences = _bootstrap if test == "bootstrap" else _randomisation
    found = differences(statistics, metric, samples, rng)
    (base, reached), *others = scores.items()
    enough = len(statistics[base]) >= FEWEST_SEGMENTS
    results = {}
    for name, score in others:
        sampled, interval = found[name]
        # sacreBLEU counts only larger differences, so that equal texts would get the smallest p.
        p = _compute_p_value(sampled, abs(reached - score)) if score != reached else 1.0
        drawn = f"{kind}:{samples}|seed:{seed}"
        results[name] = Comparison(*((p, interval) if enough else (None, None)), procedure=drawn)
    return results


def _bootstrap(statistics: Statistics, metric: Metric, samples: int, rng: np.random.Generator):
    """Draw bootstrap resamples, and compare each system with the first system on all of them.

    Args:
        statistics: system -> (segments, statistics) array of the metric's statistics.
        metric: sacreBLEU metric.
        samples: number of resamples.
        rng: random number generator.

    Returns:
        System -> pair, for all systems but the first.  The first element is (samples,), the
        absolute difference between the scores of the two systems on each resample, minus the mean
        of these differences.  The second is half the width of the 95 % confidence interval of the
        system's score.
    """
    rows = np.concatenate(list(statistics.values()), axis=1)
    sums = np.concatenate(list(_resampled(rows, samples, rng)))
    # sacreBLEU sums statistics in single precision, in which counts are exact.
    parts = np.split(sums.astype(np.float32), len(statistics), axis=1)
    base, *others = (
        np.array([metric._compute_score_from_stats(row).score for row in part]) for part in parts
    )
    found = {}
    for name, scores in zip([*statistics][1:], others):
        differences = np.abs(scores - base)
        found[name] = differences - differences.mean(), float(estimate_ci(scores)[1])
    return found


def _resampled(rows: np.ndarray, samples: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Draw bootstrap resamples of segments, and yield their summed statistics in blocks.

    Args:
        rows: (segments, statistics) statistics of each segment.
        samples: number of resamples.
        rng: random number generator.

    Yields:
        (resamples, statistics) for each block: the statistics of each resample, summed over its
        segments.
    """
    size = len(rows)
    for first in range(0, samples, BLOCK):
        drawn = rng.choice(size, size=(min(BLOCK, samples - first), size), replace=True)
        yield np.stack([np.bincount(each, minlength=size) for each in drawn]) @ rows


def _randomisation(statistics: Statistics, metric: Metric, samples: int, rng: np.random.Generator):
    """Swap random segments between each system and the first system, and compare the scores.

    Args:
        statistics: system -> (segments, statistics) array of the metric's statistics.
        metric: sacreBLEU metric.
        samples: number of trials.
        rng: random number generator.

    Returns:
        System -> pair, for all systems but the first.  The first element is (samples,), the
        absolute difference between the two scores after swapping in each trial.  The second is
        None, because this test gives no confidence interval.
    """
    base, *others = statistics.values()
    found = [[] for _ in others]
    for first in range(0, samples, BLOCK):
        shape = (min(BLOCK, samples - first), len(base))
        kept = rng.integers(2, size=shape, dtype=bool).astype(np.float64)
        swapped = 1 - kept
        for rows, differences in zip(others, found):
            # Summed as in sacreBLEU, so that ties are broken by the same rounding.
            one, other = kept @ base + swapped @ rows, swapped @ base + kept @ rows
            differences += [score_of(metric, a) - score_of(metric, b) for a, b in zip(one, other)]
    return {name: (np.abs(each), None) for name, each in zip([*statistics][1:], found)}


def sign_tests(
    statistics: Statistics, metric: Metric, higher_is_better: bool = True
) -> Dict[str, Comparison]:
    """Compare each system with the first system by the sign test of Collins et al. (2005).

    For one segment at a time, the translation of the first system is replaced by that of the other
    system.  The segment counts for the other system if the corpus score improves, and against it if
    the score gets worse.  The p-value comes from a two-sided binomial test on these counts.

    Args:
        statistics: system -> (segments, statistics) array of the metric's statistics.
        metric: sacreBLEU metric.
        higher_is_better: whether a higher score is an improvement.

    Returns:
        System -> comparison, for all systems but the first.
    """
    sign = 1 if higher_is_better else -1
    (_, base), *others = statistics.items()
    total = base.sum(axis=0)
    reached, results = sign * score_of(metric, total), {}
    from scipy.stats import binomtest  # the import takes a second

    for name, system in others:
        differ = (base != system).any(axis=1)
        changed = [sign * score_of(metric, row) for row in total - base[differ] + system[differ]]
        better = sum(value > reached for value in changed)
        worse = sum(value < reached for value in changed)
        p = binomtest(better, better + worse).pvalue if better + worse else 1.0
        results[name] = Comparison(float(p), better=better, worse=worse)
    return results
