"""Learn a dictionary for `--replace-unk` from tokenised parallel text, by IBM model 1.

    python dictionary.py train.zh train.en > dictionary

Prints each source word with its most probable translation.  Pairs with an empty side or more than
80 words on a side are left out.
"""

import argparse
import sys
from typing import Dict, Iterator, List, NamedTuple, Sequence

import numpy as np

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import read_lines

ITERATIONS = 5
LONGEST = 80
#: sentences that are linked together, for memory
BLOCK = 100_000


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


class Links(NamedTuple):
    """Links of each target word to all source words of its sentence, for some sentences.

    Attributes:
        keys: (links,) number of the pair of words, one target word after another.
        sizes: (target words,) number of links.
    """

    keys: np.ndarray
    sizes: np.ndarray


def links_of(source: Words, target: Words) -> Iterator[Links]:
    """Yield the links of all sentences, block by block."""
    ends = [np.concatenate([[0], np.cumsum(side.sizes)]) for side in (source, target)]
    for start in range(0, len(source.sizes), BLOCK):
        block = slice(start, start + BLOCK)
        sizes = np.repeat(source.sizes[block], target.sizes[block])
        firsts = np.repeat(ends[0][:-1][block], target.sizes[block])
        before = np.cumsum(sizes) - sizes
        left = source.numbers[np.arange(sizes.sum()) + np.repeat(firsts - before, sizes)]
        last = min(start + BLOCK, len(source.sizes))
        right = np.repeat(target.numbers[ends[1][start] : ends[1][last]], sizes)
        yield Links(left * len(target.types) + right, sizes)


def translations(source: Words, target: Words, iterations: int = ITERATIONS) -> Dict[str, str]:
    """Return the most probable translation of each source word (Brown et al., 1993, model 1).

    Args:
        source, target: the two sides of the same sentences.
        iterations: passes of expectation maximisation.
    """
    pairs = np.unique(np.concatenate([np.unique(x.keys) for x in links_of(source, target)]))
    blocks = [
        Links(np.searchsorted(pairs, x.keys).astype(np.int32), x.sizes)
        for x in links_of(source, target)
    ]
    left = pairs // len(target.types)
    probability = np.ones(len(pairs))
    for _ in range(iterations):
        count = np.zeros(len(pairs))
        for pair, sizes in blocks:
            share = probability[pair]
            share /= np.repeat(np.add.reduceat(share, np.cumsum(sizes) - sizes), sizes)
            count += np.bincount(pair, share, len(pairs))
        probability = count / np.bincount(left, count)[left]
    order = np.lexsort((probability, left))
    last = np.flatnonzero(np.diff(left[order], append=-1))
    best = pairs[order[last]] % len(target.types)
    return {source.types[s]: target.types[t] for s, t in zip(left[order[last]], best)}


def main(source: str, target: str) -> None:
    """Print the dictionary.

    Raises:
        UserError: a text cannot be read, the texts have different numbers of lines, or there are no
            pairs to learn from.
    """
    left, right = map(read_lines, (source, target))
    if len(left) != len(right):
        raise UserError(
            f"{source} has {len(left)} lines, but {target} has {len(right)}; give the two sides of "
            "the same text"
        )
    sides: List[List[List[str]]] = [[], []]
    for lines in zip(left, right):
        # Each word once in memory.
        words = [[*map(sys.intern, line.split())] for line in lines]
        if all(0 < len(side) <= LONGEST for side in words):
            for side, found in zip(sides, words):
                side.append(found)
    if not sides[0]:
        raise UserError(f"{source} and {target} have no pairs of 1 to {LONGEST} words")
    for word, translation in translations(*map(numbered, sides)).items():
        print(word, translation)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", metavar="train.zh")
    parser.add_argument("target", metavar="train.en")
    args = parser.parse_args()
    main(args.source, args.target)
