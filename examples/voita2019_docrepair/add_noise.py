"""Replace words of a text by random words of a dictionary.

    python add_noise.py round_trips.de --out noisy.de --dictionary dict.de.txt --probability 0.1

In the training of DocRepair, each subword of a round-trip translation is replaced with probability
0.1 (authors' code).  The words are drawn uniformly from the dictionary, without its symbols.  Blank
lines stay.
"""

import argparse
import random
import sys
from pathlib import Path
from typing import Iterable, Iterator, List

from fairseq_docmt.symbols import first_reserved


def read_words(path: str) -> List[str]:
    """Read the words of a dictionary of fairseq-preprocess.

    Raises:
        ValueError: a line is not a word with its count, or there are none.
    """
    words = []
    for number, line in enumerate(_lines(path), start=1):
        word, blank, count = line.partition(" ")
        number_of = count.split(" ")[0]
        if not (word and blank and number_of.isdecimal()):
            raise ValueError(f"{path}, line {number} is not a word with its count: {line[:40]!r}")
        filler = word.startswith("madeupword") and number_of == "0"
        if not filler and not first_reserved([word]):
            words.append(word)
    if not words:
        raise ValueError(f"{path} has no words")
    return words


def noisy(lines: Iterable[str], words: List[str], probability: float, seed: int) -> Iterator[str]:
    """Yield each line with random words in the place of some of its own.

    Args:
        lines: sentences, words separated by spaces.
        words: words to draw from.
        probability: probability of replacing a word.
        seed: random seed.
    """
    draw = random.Random(seed)
    for line in lines:
        yield " ".join(
            draw.choice(words) if draw.random() < probability else word for word in line.split()
        )


def _lines(path: str) -> List[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8; convert the file") from None
    return lines if lines[-1] else lines[:-1]


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input", metavar="INPUT", help="text, words separated by spaces")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--dictionary", required=True, help="dict.*.txt of the text")
    parser.add_argument("--probability", type=float, default=0.1, help="default: 0.1")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    return parser.parse_args(arguments)


def main(arguments=None) -> None:
    """Write the noisy text; errors end the program with one sentence."""
    args = parse_args(arguments)
    try:
        if not 0 <= args.probability <= 1:
            raise ValueError(f"--probability must be from 0 to 1, got {args.probability}")
        if args.seed < 0:  # Python would take it for a positive one
            raise ValueError(f"--seed must not be negative, got {args.seed}")
        words = read_words(args.dictionary)
        lines = noisy(_lines(args.input), words, args.probability, args.seed)
        text = "".join(f"{line}\n" for line in lines)
        Path(args.out).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
