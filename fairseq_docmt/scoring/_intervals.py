"""Confidence intervals of scores of a test set."""

from typing import Callable, Optional, Sequence, Tuple

import numpy as np

#: Number of bootstrap resamples, and the seed by which they are drawn.
RESAMPLES, SEED = 1000, 0


def bootstrap_interval(
    counts: Sequence[np.ndarray], statistic: Callable[..., np.ndarray]
) -> Tuple[Optional[float], Optional[float]]:
    """Return the 95 % confidence interval of a statistic, by bootstrap over documents or sentences.

    Args:
        counts: several (units,), where a unit is a document or a sentence.
        statistic: computes the statistic from counts, whose units are along ``axis``.

    Returns:
        Both ends; None for a single unit.
    """
    if len(counts[0]) < 2:
        return None, None
    from scipy.stats import bootstrap  # takes a second

    low, high = bootstrap(
        counts,
        statistic,
        paired=True,
        n_resamples=RESAMPLES,
        batch=100,
        method="percentile",
        random_state=np.random.default_rng(SEED),  # `rng` needs SciPy 1.15
    ).confidence_interval
    return float(low), float(high)
