"""Bootstrap confidence intervals of proportions, and of their differences between systems."""

import warnings
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_docmt.scoring._tables import Table

#: Number of bootstrap resamples, and the seed by which they are drawn.
RESAMPLES, SEED = 1000, 0
#: How intervals are computed, as in a signature.
PROCEDURE = f"bs:{RESAMPLES}|seed:{SEED}"

#: Counts of a system, two (units,): numerator and denominator for each unit that the bootstrap
#: resamples, a document or a sentence.  The score is the sum of the first over that of the second.
Counts = Tuple[np.ndarray, np.ndarray]


class Interval(NamedTuple):
    """A proportion, or a difference of two proportions, with its 95 % confidence interval.

    Attributes:
        value: the proportion or difference, not in percent; None if nothing was counted.
        low, high: ends of the interval; None if only one document or sentence was counted.
    """

    value: Optional[float]
    low: Optional[float]
    high: Optional[float]


_UNDEFINED = Interval(None, None, None)


def bootstrap_interval(
    counts: Sequence[np.ndarray], statistic: Callable[..., np.ndarray]
) -> Tuple[Optional[float], Optional[float]]:
    """Compute the 95 % confidence interval of a statistic by bootstrap over documents or sentences.

    Args:
        counts: one or more arrays (units,); a unit is a document or a sentence.
        statistic: function that computes the statistic.  It is called as ``statistic(*counts,
            axis=axis)``, with the units of each array along ``axis``.

    Returns:
        Lower and upper end of the interval, over the resamples in which the statistic is not NaN;
        both are None if there is a single unit.
    """
    if len(counts[0]) < 2:
        return None, None
    from scipy.stats import bootstrap  # the import takes a second

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of NaN
        found = bootstrap(
            counts,
            statistic,
            paired=True,
            n_resamples=RESAMPLES,
            batch=100,
            method="percentile",
            random_state=np.random.default_rng(SEED),  # `rng` needs SciPy 1.15
        )
    low, high = np.nanpercentile(found.bootstrap_distribution, [2.5, 97.5])
    return float(low), float(high)


def share_interval(counts: Counts) -> Interval:
    """Compute a proportion and its 95 % confidence interval.

    The proportion is the sum of the numerators divided by the sum of the denominators.

    Args:
        counts: numerators (units,) and denominators (units,); a unit is a document or a sentence.
    """
    return _interval(_share, counts, counts[1] > 0)


def difference_interval(counts: Counts, counts_of_first: Counts) -> Interval:
    """Compute how much a system's score exceeds that of the first system, with a 95 % interval.

    A score is the sum of the numerators divided by the sum of the denominators.  The bootstrap
    draws the same units for both systems.

    Args:
        counts: numerators (units,) and denominators (units,) of the system; a unit is a document or
            a sentence.
        counts_of_first: numerators and denominators of the first system, for the same units.
    """
    both = (*counts, *counts_of_first)
    return _interval(_difference, both, (counts[1] > 0) | (counts_of_first[1] > 0))


def _interval(statistic, counts: Sequence[np.ndarray], counted: np.ndarray) -> Interval:
    value = float(statistic(*counts))
    if counted.sum() < 2:
        return Interval(value, None, None)
    return Interval(value, *bootstrap_interval(counts, statistic))


def _share(part, whole, axis=-1):
    """Divide sums; the result is NaN where nothing was counted, as in samples of a rare word."""
    part, whole = part.sum(axis), whole.sum(axis)
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def _difference(part, whole, part_of_first, whole_of_first, axis=-1):
    return _share(part, whole, axis) - _share(part_of_first, whole_of_first, axis)


def compare(parts: Dict[str, Dict[str, Counts]]) -> Dict[str, Dict[str, Dict[str, Interval]]]:
    """Compute the score of each system and its difference from the first system, with intervals.

    Args:
        parts: phenomenon -> system -> numerators and denominators of its score, as in
            :func:`share_interval`.

    Returns:
        Phenomenon -> system -> ``score`` and, except for the first system, ``difference``.
    """
    found: Dict[str, Dict[str, Dict[str, Interval]]] = {}
    for part, systems in parts.items():
        first = next(iter(systems))
        for name, counts in systems.items():
            own, other = counts[1].any(), systems[first][1].any()
            values = {"score": share_interval(counts) if own else _UNDEFINED}
            if name != first:
                both = own and other
                difference = difference_interval(counts, systems[first]) if both else _UNDEFINED
                values["difference"] = difference
            found.setdefault(part, {})[name] = values
    return found


def table_of(found: Dict[str, Dict[str, Dict[str, Interval]]], score: str, unit: str) -> Table:
    """Return a table of the scores and differences computed by :func:`compare`.

    Args:
        found: result of :func:`compare`.
        score: name of the score, such as ``F1``.
        unit: plural of what the bootstrap resamples, such as ``sentences``.
    """
    first = next(iter(next(iter(found.values()))))
    rows = [
        [part, name, *_cells(values["score"], ""), *_cells(values.get("difference"), "+")]
        for part, systems in found.items()
        for name, values in systems.items()
    ]
    headers = ["part", "system", score, "95 % interval", f"over {first}", "95 % interval"]
    several = any(row[4] for row in rows)
    rows, headers = (rows, headers) if several else ([row[:4] for row in rows], headers[:4])
    return Table(f"{score}, %: intervals by bootstrap over {unit}", headers, rows)


def _cells(found: Optional[Interval], sign: str) -> List[str]:
    if found is None:
        return ["", ""]
    if found.value is None:
        return ["-", ""]
    return [f"{100 * found.value:{sign}.1f}", ends_of(found.low, found.high, sign)]


def ends_of(low: Optional[float], high: Optional[float], sign: str = "") -> str:
    """Format an interval in per cent, such as "12.1 to 15.3"; return "" if its ends are None.

    Args:
        low, high: ends of the interval, as fractions of 1.
        sign: ``+`` to show the sign of positive numbers too.
    """
    return "" if low is None else f"{100 * low:{sign}.1f} to {100 * high:{sign}.1f}"


def as_json(found: Dict[str, Dict[str, Dict[str, Interval]]]) -> dict:
    """Convert the result of :func:`compare` to nested dictionaries that can be written as JSON."""
    return {
        part: {
            name: {key: interval._asdict() for key, interval in values.items()}
            for name, values in systems.items()
        }
        for part, systems in found.items()
    }
