"""Beam search over the candidates of the sentences of a document (Yu et al., 2020)."""

from typing import Callable, List, NamedTuple, Sequence, Tuple

#: Log-probabilities of sentences, each given after the previous sentences of its document.
LanguageModel = Callable[[Sequence[Tuple[Tuple[str, ...], str]]], List[float]]


class Hypothesis(NamedTuple):
    """Translation of the first sentences of a document.

    Attributes:
        score: sum of the weighted scores.
        choice: index of the candidate of each sentence.
        texts: these candidates.
    """

    score: float = 0.0
    choice: Tuple[int, ...] = ()
    texts: Tuple[str, ...] = ()


def search(
    rows: Sequence[Sequence[str]],
    scores: Sequence[Sequence[float]],
    language_model: LanguageModel,
    weight: float,
    beam: int,
) -> List[int]:
    """Return the index of the chosen candidate of each sentence of a document.

    The score of a document is the sum of the scores of its sentences, each with the weighted
    log-probability of the sentence after those chosen before it.  Of equal hypotheses the first
    wins.

    Args:
        rows: (sentences,) their candidates.
        scores: (sentences,) weighted scores of the candidates that do not depend on others.
        language_model: log-probabilities of sentences after others.
        weight: weight of the language model.
        beam: number of hypotheses that are kept after each sentence.
    """
    kept = [Hypothesis()]
    for texts, own in zip(rows, scores):
        tried = [(old, number) for old in kept for number in range(len(texts))]
        given = language_model([(old.texts, texts[number]) for old, number in tried])
        found = [
            Hypothesis(
                old.score + own[number] + weight * log_probability,
                (*old.choice, number),
                (*old.texts, texts[number]),
            )
            for (old, number), log_probability in zip(tried, given)
        ]
        kept = sorted(found, key=lambda hypothesis: -hypothesis.score)[:beam]
    return list(kept[0].choice)
