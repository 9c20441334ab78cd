"""Learn a dictionary for `--replace-unk` from tokenised parallel text, by IBM model 1.

    python dictionary.py train.zh train.en > dictionary

Prints each source word with its most probable translation.  Pairs with more than 80 words on a side
are left out.
"""

import sys
from typing import Dict, List, NamedTuple, Sequence

import numpy as np

ITERATIONS = 5
LONGEST = 80


class Words(NamedTuple):
    """Words of all sentences.

    Attributes:
        types: words by their numbers.
        numbers: (words,) of all sentences, one after another.
        sizes: (sentences,) number of words.
    """

    types: List[str]
    numbers: np.ndarray
    sizes: np.ndarray


def numbered(sentences: Sequence[Sequence[str]]) -> Words:
    """Give each word of some sentences a number.

    Args:
        sentences: lists of words.
    """
    known: Dict[str, int] = {}
    numbers = [known.setdefault(word, len(known)) for words in sentences for word in words]
    sizes = np.array([len(words) for words in sentences], dtype=np.int64)
    return Words([*known], np.array(numbers, dtype=np.int64), sizes)


def translations(source: Words, target: Words, iterations: int = ITERATIONS) -> Dict[str, str]:
    """Return the most probable translation of each source word (Brown et al., 1993, model 1).

    Args:
        source, target: the two sides of the same sentences.
        iterations: passes of expectation maximisation.
    """
    # A link for each target word and each source word of its sentence.
    of_word = np.repeat(source.sizes, target.sizes)
    first = np.repeat(np.cumsum(source.sizes) - source.sizes, target.sizes)
    ends = np.cumsum(of_word)
    links = np.arange(ends[-1]) + np.repeat(first - (ends - of_word), of_word)
    word = np.repeat(np.arange(len(target.numbers), dtype=np.int32), of_word)
    keys = source.numbers[links] * len(target.types) + target.numbers[word]
    del links
    pairs, pair = np.unique(keys, return_inverse=True)
    del keys
    left = pairs // len(target.types)
    probability = np.ones(len(pairs))
    for _ in range(iterations):
        share = probability[pair]
        share /= np.bincount(word, share)[word]
        count = np.bincount(pair, share)
        probability = count / np.bincount(left, count)[left]
    order = np.lexsort((probability, left))
    last = np.flatnonzero(np.diff(left[order], append=-1))
    best = pairs[order[last]] % len(target.types)
    return {source.types[s]: target.types[t] for s, t in zip(left[order[last]], best)}


def main(source: str, target: str) -> None:
    """Print the dictionary."""
    sides: List[List[List[str]]] = [[], []]
    with open(source, encoding="utf-8") as left, open(target, encoding="utf-8") as right:
        for lines in zip(left, right):
            words = [line.split() for line in lines]
            if all(0 < len(side) <= LONGEST for side in words):
                for side, found in zip(sides, words):
                    side.append(found)
    for word, translation in translations(*map(numbered, sides)).items():
        print(word, translation)


if __name__ == "__main__":
    main(*sys.argv[1:])
