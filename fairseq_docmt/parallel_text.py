"""Check by sentence lengths whether two texts are translations of each other."""

from typing import Optional

import numpy as np

#: Number of sentence pairs of a block, and the least number that is checked.
BLOCK, FEWEST = 200, 100
#: Correlation of the logarithms of lengths in a block below which the texts are not parallel.  In
#: blocks of noisy subtitles it is at least 0.32; if one side is shifted by a line, it is below 0.3
#: in 98 % of them.
LEAST = 0.3
#: Standard deviation of these logarithms in a block, in relation to the whole text, below which the
#: correlation shows nothing, as among exclamations of two or three words.
LEAST_SPREAD = 0.6


def unrelated_lengths(source: np.ndarray, target: np.ndarray) -> Optional[str]:
    """Return a warning if sentence lengths of source and target do not correlate, otherwise None.

    Long sentences usually have long translations.  Without this correlation, lines are probably
    shifted, or the texts are not translations of each other.  The correlation is computed in blocks
    of a few hundred sentences; the warning names the first block in which it is too low.  Blocks
    whose sentences have similar lengths are not checked, nor are texts with fewer than ``FEWEST``
    sentences.

    Args:
        source, target: (sentences,) length of each sentence, at least 1.
    """
    if len(source) < FEWEST:
        return None
    logs = np.log([source, target])
    blocks = np.array_split(np.arange(len(source)), max(len(source) // BLOCK, 1))
    spread = LEAST_SPREAD * logs.std(axis=1)
    found = [block for block in blocks if _is_unrelated(logs[:, block], spread)]
    if not found:
        return None
    first = found[0]
    return (
        f"in {len(found)} of {len(blocks)} blocks of sentences (first: {first[0] + 1:,} to "
        f"{first[-1] + 1:,}, blank lines not counted) the lengths of both sides are not related; "
        "check that each line is the translation of the same line"
    )


def _is_unrelated(logs: np.ndarray, spread: np.ndarray) -> bool:
    """Return whether the (2, sentences) logarithms of lengths are almost uncorrelated.

    The result is False if the standard deviation of a side is below its entry in ``spread``, (2,),
    or if all sentences of a side have the same length.
    """
    if (np.ptp(logs, axis=1) == 0).any() or (logs.std(axis=1) < spread).any():
        return False
    return bool(np.corrcoef(logs)[0, 1] < LEAST)
