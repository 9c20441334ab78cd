"""Accuracy on contrastive test sets.

An item of such a set has one correct and one or more wrong candidate translations.  A model answers
it correctly if it gives the correct candidate a higher score than all others.  Ties count as wrong,
and their number is reported.  If the first of several best candidates were chosen instead, a scorer
that gives all candidates the same score would reach almost perfect accuracy, because the correct
candidate comes first in most published sets.
"""

import math
from typing import Dict, List, NamedTuple, Sequence

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import numbers_first
from fairseq_docmt.scoring.contrastive.items import Item


class Verdict(NamedTuple):
    """Result of one contrastive item.

    Attributes:
        correct: whether the correct candidate scores higher than all other candidates.
        tie: whether the correct candidate shares the highest score with another candidate.
        chance: probability that the item is answered correctly if each distinct text gets a random
            score.
    """

    correct: bool
    tie: bool
    chance: float


class Accuracy(NamedTuple):
    """Accuracy over one or more contrastive items.

    Attributes:
        items: number of items.
        correct: number of items that are answered correctly.
        ties: number of items in which the correct candidate shares the highest score.
        chance: accuracy to be expected from random scores, from 0 to 1.
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
        item: the item to judge.
        scores: score of each candidate; higher is better.
        equal: treatment of candidates that have the same text.  With ``merged``, they count as one
            candidate.  With ``wrong``, as in ContraPro, an item that lists the correct text twice
            is wrong.  With ``first``, as in Voita et al. (2019), they are merged, but if all
            candidates have the same text, the first one counts as the answer.

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
    """Compute the accuracy, the number of ties and the chance level of one or more judged items."""
    return Accuracy(
        items=len(verdicts),
        correct=sum(v.correct for v in verdicts),
        ties=sum(v.tie for v in verdicts),
        chance=math.fsum(v.chance for v in verdicts) / len(verdicts),
    )


def by_label(items: Sequence[Item], verdicts: Sequence[Verdict]) -> Dict[str, Dict[str, Accuracy]]:
    """Compute the accuracy of each group of items that have the same value of a label.

    For example, the label ``distance`` gives one accuracy for each distance of the antecedent.

    Args:
        items: contrastive items with labels.
        verdicts: result of each item.

    Returns:
        Label -> value -> accuracy.  Numeric values come first, in increasing order.
    """
    found: Dict[str, Dict[str, List[Verdict]]] = {}
    for item, verdict in zip(items, verdicts):
        for name, value in item.labels.items():
            found.setdefault(name, {}).setdefault(value, []).append(verdict)
    return {
        name: {value: summarise(values[value]) for value in sorted(values, key=numbers_first)}
        for name, values in found.items()
    }
