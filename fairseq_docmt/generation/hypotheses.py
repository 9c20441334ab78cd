"""Cutting hypotheses of several sentences into hypotheses of one."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

Hypothesis = Dict[str, Any]


class JointHypothesis(NamedTuple):
    """A hypothesis of several sentences.

    Args:
        score: of the whole, as the generator gives it.
        sentences: hypotheses of its sentences, each with the score of its own tokens.
    """

    score: float
    sentences: List[Hypothesis]

    def matched(self, count: int, eos: int) -> "JointHypothesis":
        """With the wanted number of sentences, in the order they came in.

        Missing sentences are empty, surplus ones become part of the last; no word is lost.
        """
        missing = count - len(self.sentences)
        kept = self.sentences[: count - 1] + _as_one(self.sentences[count - 1 :])
        return self._replace(sentences=kept + [empty_hypothesis(eos) for _ in range(missing)])


def _as_one(sentences: List[Hypothesis]) -> List[Hypothesis]:
    """The words of some sentences as those of the first, with the end symbol of the last."""
    if len(sentences) < 2:
        return sentences
    first, last = sentences[0], sentences[-1]
    joined = {
        key: torch.cat([*(s[key][:-1] for s in sentences[:-1]), last[key]])
        for key in ("tokens", "positional_scores")
    }
    return [{**first, **joined}]


def nbest_of_sentences(ranked: Sequence[JointHypothesis], most: int) -> List[List[Hypothesis]]:
    """For each sentence its different hypotheses among joint ones, best first.

    Each gets the score of the best joint hypothesis it is part of: this is what the search ranks,
    as the score of its own tokens depends on the sentences before it.

    Args:
        ranked: joint hypotheses with the same number of sentences, best first.
        most: hypotheses wanted of each sentence; fewer if there are no more different ones.
    """
    rows: List[List[Hypothesis]] = []
    for place in range(len(ranked[0].sentences)):
        different: Dict[tuple, Hypothesis] = {}
        for joint in ranked:
            sentence = {**joint.sentences[place], "score": torch.tensor(joint.score)}
            different.setdefault(tuple(sentence["tokens"].tolist()), sentence)
        rows.append(list(different.values())[:most])
    return rows


def sentence_score(positional_scores: Tensor, generator) -> Tensor:
    """Score of one sentence as the stock generator would give it, its end symbol included."""
    total = positional_scores.sum()
    if not getattr(generator, "normalize_scores", True):
        return total
    return total / max(len(positional_scores), 1) ** getattr(generator, "len_penalty", 1.0)


def split_hypothesis(
    hypothesis: Hypothesis, source_sizes: Sequence[int], separator: int, skip: int, generator
) -> List[Hypothesis]:
    """One hypothesis per sentence of a joined one.

    Args:
        hypothesis: tokens (T,) ending in ``</s>``, positional_scores (T,), alignment as pairs
            (source token, target token) or empty.
        source_sizes: tokens of each source sentence, end symbol included.
        separator: index of ``<sep>``.
        skip: tokens at the front that belong to no sentence (``<bod>``), on both sides.
        generator: for how scores are normalised.

    Returns:
        As many as there are sentences in the hypothesis, each ending in ``</s>``.  ``<sep>``
        becomes ``</s>`` and keeps its score.
    """
    tokens = hypothesis["tokens"]
    ends = tokens[:-1].eq(separator).nonzero().view(-1).tolist() + [len(tokens) - 1]
    parts, start, source_start = [], skip, skip
    for number, end in enumerate(ends):
        part = tokens[start : end + 1].clone()
        part[-1] = tokens[-1]
        scores = hypothesis["positional_scores"][start : end + 1].clone()
        source_end = source_start
        if number < len(source_sizes):
            source_end += source_sizes[number]
        parts.append(
            {
                "tokens": part,
                "score": sentence_score(scores, generator),
                "attention": None,
                "alignment": cut_alignment(
                    hypothesis.get("alignment"), source_start, source_end, start, end
                ),
                "positional_scores": scores,
            }
        )
        start, source_start = end + 1, source_end
    return parts


def cut_alignment(alignment, source_start: int, source_end: int, start: int, end: int):
    """Pairs inside a rectangle of a hard alignment, counted from its corner.

    Links to other sentences, and to the symbols that end them, are left out: they are not in the
    sentence's own line.

    Args:
        alignment: pairs (source token, target token) or something else, which is returned.
        source_start, source_end: tokens of the source sentence, its end symbol included.
        start, end: tokens of the target sentence, without its end symbol.
    """
    if alignment is None or isinstance(alignment, Tensor):
        return alignment
    return [
        (source - source_start, target - start)
        for source, target in alignment
        if source_start <= source < source_end - 1 and start <= target < end
    ]


def empty_hypothesis(eos: int) -> Hypothesis:
    """The hypothesis of a line that has nothing to translate."""
    return {
        "tokens": torch.tensor([eos]),
        "score": torch.tensor(0.0),
        "attention": None,
        "alignment": [],
        "positional_scores": torch.zeros(1),
    }


def best_tokens(hypotheses: Sequence[Hypothesis], pad: int) -> Optional[Tensor]:
    """(n,) tokens of the first hypothesis without end symbol and padding, on the CPU."""
    tokens = hypotheses[0]["tokens"][:-1].cpu()
    return tokens[tokens.ne(pad)]
