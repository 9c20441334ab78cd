"""Check by sentence lengths whether two texts are translations of each other."""

from typing import Optional

import numpy as np

#: Number of sentence pairs of a block, and the least number that is checked.
BLOCK, FEWEST = 200, 100
#: Correlation of the logarithms of lengths in a block below which the texts are not parallel.  In
#: blocks of noisy subtitles it is at least 0.32; if one side is shifted by a line, it is below 0.3
#: in 98 % of them.
LEAST = 0.3


def unrelated_lengths(source: np.ndarray, target: np.ndarray) -> Optional[str]:
    """Return a warning if the sentence lengths of source and target are unrelated, otherwise None.

    Long sentences usually have long translations.  Without this correlation, lines are probably
    shifted, or the texts are not translations of each other.  The correlation is computed in blocks
    of a few hundred sentences; the warning names the first block in which it is too low.  Blocks in
    which all sentences of one side have the same length are not checked, nor are texts with fewer
    than ``FEWEST`` sentences.

    Args:
        source, target: (sentences,) length of each sentence, at least 1.
    """
    if len(source) < FEWEST:
        return None
    logs = np.log(source), np.log(target)
    blocks = np.array_split(np.arange(len(source)), max(len(source) // BLOCK, 1))
    found = [block for block in blocks if _correlation(*(side[block] for side in logs)) < LEAST]
    if not found:
        return None
    first = found[0]
    return (
        f"in {len(found)} of {len(blocks)} blocks of sentences (first: {first[0] + 1:,} to "
        f"{first[-1] + 1:,}, blank lines not counted) the lengths of both sides are not related; "
        "check that each line is the translation of the same line"
    )


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return the correlation of two arrays, or 1 if one of them is constant."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 1.0
    return float(np.corrcoef(one, other)[0, 1])
