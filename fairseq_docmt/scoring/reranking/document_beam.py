"""Beam search for the best combination of candidates in a document (Yu et al., 2020)."""

from typing import Callable, List, NamedTuple, Sequence, Tuple

#: Function from pairs of previous sentences and a sentence to the log-probability of each sentence
#: after the previous ones.
LanguageModel = Callable[[Sequence[Tuple[Tuple[str, ...], str]]], List[float]]


class Hypothesis(NamedTuple):
    """Partial hypothesis of the beam search: translations of the first sentences of a document.

    Attributes:
        score: score of these translations, including the weighted language model.
        choice: index of the chosen candidate of each sentence.
        texts: the chosen candidates.
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
    """Choose the translation of each sentence of a document by beam search over the sentences.

    The score of a document is the sum of the scores of its sentences, plus the weighted
    log-probability of each sentence given the translations chosen before it.  Of hypotheses with
    the same score, the first is preferred.

    Args:
        rows: for each sentence, its candidates.
        scores: for each sentence, the weighted sum of each candidate's scores, without the language
            model.
        language_model: function that returns the log-probability of each sentence given the
            sentences before it.
        weight: weight of the language model.
        beam: number of hypotheses to keep after each sentence.

    Returns:
        (sentences,) index of the chosen candidate of each sentence.
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
