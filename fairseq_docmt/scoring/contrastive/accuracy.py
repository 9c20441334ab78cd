"""Accuracy on contrastive items.

An item is answered correctly if its correct candidate scores higher than all other candidates.
Ties count as wrong, and their number is reported: in most published sets the correct candidate
comes first, so choosing the first of several best candidates would give a constant scorer almost
perfect accuracy.
"""

import math
from typing import Dict, List, NamedTuple, Sequence

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.contrastive.items import Item


class Verdict(NamedTuple):
    """Result of one contrastive item.

    Attributes:
        correct: whether the correct candidate scores higher than all other candidates.
        tie: whether the correct candidate shares the highest score with another one.
        chance: probability of a correct answer if the scores of distinct texts were random.
    """

    correct: bool
    tie: bool
    chance: float


class Accuracy(NamedTuple):
    """Accuracy over one or more contrastive items.

    Attributes:
        items, correct, ties: numbers of all items, of correct answers and of ties.
        chance: expected accuracy of random scores, from 0 to 1.
    """

    items: int
    correct: int
    ties: int
    chance: float

    @property
    def accuracy(self) -> float:
        """Proportion of items that are answered correctly, from 0 to 1."""
        return self.correct / self.items


def judge(where: str, item: Item, scores: Sequence[float], equal: str = "merged") -> Verdict:
    """Judge whether the correct candidate of an item has the highest score.

    Args:
        where: name of the item in error messages.
        item: the item.
        scores: scores of its candidates; higher is better.
        equal: how candidates with the same text are judged.  ``merged``: as a single candidate.
            ``wrong`` (ContraPro): an item whose correct text occurs twice is wrong.  ``first``
            (Voita et al., 2019): as ``merged``, but if all candidates have the same text, the
            first one is chosen.

    Raises:
        UserError: a score is not a finite number.
    """
    for number, score in enumerate(scores):
        if not math.isfinite(score):
            raise UserError(
                f"{where}: the score of candidate {number} is {score}, not a finite number; check "
                "the model or the file of losses"
            )
    texts = [tuple(candidate) for candidate in item.candidates]
    right_text, distinct = texts[item.correct], len(set(texts))
    own = [score for score, text in zip(scores, texts) if text == right_text]
    others = [score for score, text in zip(scores, texts) if text != right_text]
    if not others and equal == "first" and item.correct == 0:
        return Verdict(True, False, 1.0)
    if not others:  # all candidates have the same text
        return Verdict(False, True, 0.0)
    right, best = max(own), max(others)
    if equal == "wrong" and len(own) > 1:  # scores of identical texts may differ by rounding
        return Verdict(False, right >= best, 0.0)
    return Verdict(right > best, right == best, 1 / distinct)


def summarise(verdicts: Sequence[Verdict]) -> Accuracy:
    """Compute the accuracy over the results of one or more items."""
    return Accuracy(
        items=len(verdicts),
        correct=sum(v.correct for v in verdicts),
        ties=sum(v.tie for v in verdicts),
        chance=math.fsum(v.chance for v in verdicts) / len(verdicts),
    )


def by_label(items: Sequence[Item], verdicts: Sequence[Verdict]) -> Dict[str, Dict[str, Accuracy]]:
    """Compute the accuracy for each value of each label, such as ``distance``.

    Args:
        items: contrastive items with labels.
        verdicts: result of each item.

    Returns:
        Label -> value -> accuracy; numeric values come first, in increasing order.
    """
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
