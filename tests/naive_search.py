"""Reference beam search as a loop over lists."""

from typing import Callable, List, NamedTuple, Sequence, Tuple

import torch

NEVER = -float("inf")


class Found(NamedTuple):
    """A finished hypothesis: its tokens without the end symbol, its score as printed."""

    tokens: List[int]
    score: float


def beam_search(
    next_words: Callable[[List[List[int]]], torch.Tensor],
    *,
    beam: int,
    nbest: int,
    limit: int,
    end: int,
    never: Sequence[int],
    len_penalty: float = 1.0,
    context: Tuple[float, int] = (0.0, 0),
) -> List[Found]:
    """The ``nbest`` best finished hypotheses, best first.

    A hypothesis that ends counts if it is among the ``beam`` best of a step, as in fairseq.  The
    search goes on until no unfinished hypothesis would be better than the worst of ``nbest``
    finished ones if it ended at the next step with probability 1; with a beam of 1, until the first
    has ended.

    Args:
        next_words: (B, V) log-probabilities of the word after each of B lists of tokens.
        limit: most tokens, the end symbol not counted.
        end: the symbol that ends a sentence, which must have one token at least.
        never: symbols that must not be written.
        len_penalty: scores are divided by length, the end symbol included, to this power.
        context: log-probability and number of the tokens before, which count as part of the
            hypothesis.
    """
    score_before, length_before = context
    active, finished = [([], 0.0)], []
    for step in range(limit + 1):
        candidates = []
        for (tokens, score), lprobs in zip(active, next_words([tokens for tokens, _ in active])):
            lprobs = lprobs.clone()
            lprobs[list(never)] = NEVER
            if step == 0:
                lprobs[end] = NEVER
            if step == limit:
                lprobs[torch.arange(len(lprobs)) != end] = NEVER
            candidates += [
                (score + value, tokens, word)
                for word, value in enumerate(lprobs.tolist())
                if value > NEVER
            ]
        candidates.sort(key=lambda candidate: -candidate[0])
        length = length_before + step + 1
        finished += [
            Found(tokens, (score_before + score) / length**len_penalty)
            for score, tokens, word in candidates[:beam]
            if word == end
        ]
        finished = sorted(finished, key=lambda found: -found.score)[:beam]
        active = [(t + [w], s) for s, t, w in candidates[: 2 * beam] if w != end][:beam]
        full = len(finished) >= nbest
        if not active or (full and beam == 1):
            break
        best = (score_before + active[0][1]) / (length + 1) ** len_penalty
        if full and best <= finished[nbest - 1].score:
            break
    return finished[:nbest]
