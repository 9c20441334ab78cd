"""Which candidates a model prefers: accuracy on contrastive items.

An item is right when its right candidate scores higher than every other one.  Equal scores are
wrong, and counted: in most published sets the right candidate stands first, so that a rule that
takes the first of the best would find a scorer that always says the same nearly perfect.
"""

import math
from typing import Dict, List, NamedTuple, Sequence

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.contrastive_items import Item


class Verdict(NamedTuple):
    """What became of one item.

    Attributes:
        correct: the right candidate is better than all others.
        tie: nothing is better than the right candidate, and something is as good.
        chance: probability that a scorer that draws a score for each text at random is right.
    """

    correct: bool
    tie: bool
    chance: float


class Accuracy(NamedTuple):
    """Verdicts on some items together; ``correct`` and ``ties`` are numbers of items."""

    items: int
    correct: int
    ties: int
    chance: float

    @property
    def accuracy(self) -> float:
        """Share of correct items, from 0 to 1."""
        return self.correct / self.items


def judge(where: str, item: Item, scores: Sequence[float], merge: bool = True) -> Verdict:
    """Verdict on an item.

    Args:
        where: how messages call the item.
        item: the item.
        scores: of its candidates, higher is better.
        merge: candidates with the same text are one; else an item that has its right candidate
            twice is lost.

    Raises:
        UserError: a score is not a finite number.
    """
    for number, score in enumerate(scores):
        if not math.isfinite(score):
            raise UserError(
                f"{where}: the score of candidate {number} is {score}; look for what is broken in "
                "the model or the file of losses"
            )
    texts = [tuple(candidate) for candidate in item.candidates]
    right_text, distinct = texts[item.correct], len(set(texts))
    own = [score for score, text in zip(scores, texts) if text == right_text]
    others = [score for score, text in zip(scores, texts) if text != right_text]
    right = max(own)
    if not merge:
        right = scores[item.correct]
        others += [s for n, s in enumerate(scores) if texts[n] == right_text and n != item.correct]
    if not others:  # the same text again and again: there is nothing to tell apart
        return Verdict(False, True, 0.0)
    lost_anyhow = not merge and len(own) > 1
    chance = 0.0 if lost_anyhow else 1 / distinct
    return Verdict(right > max(others), right == max(others), chance)


def summarise(verdicts: Sequence[Verdict]) -> Accuracy:
    """Accuracy of one or more verdicts."""
    return Accuracy(
        items=len(verdicts),
        correct=sum(v.correct for v in verdicts),
        ties=sum(v.tie for v in verdicts),
        chance=math.fsum(v.chance for v in verdicts) / len(verdicts),
    )


def by_label(items: Sequence[Item], verdicts: Sequence[Verdict]) -> Dict[str, Dict[str, Accuracy]]:
    """Accuracy for each value of each label, in the order of numbers and of the alphabet."""
    found: Dict[str, Dict[str, List[Verdict]]] = {}
    for item, verdict in zip(items, verdicts):
        for name, value in item.labels.items():
            found.setdefault(name, {}).setdefault(value, []).append(verdict)
    return {
        name: {value: summarise(values[value]) for value in sorted(values, key=_numbers_first)}
        for name, values in found.items()
    }


def _numbers_first(value: str):
    return (0, int(value), "") if value.isdecimal() else (1, 0, value)
