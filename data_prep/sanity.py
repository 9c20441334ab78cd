"""Checks for mistakes in a corpus: swapped sides, repeated text, missing blank lines."""

import re
import sys
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

#: sentences per document on average above which blank lines are probably missing
MOST_SENTENCES = 2000

#: script, by the first word of the Unicode names of its letters -> languages written in it alone
LANGUAGES = {
    "Latin": "af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv ms mt nb nl nn no pl "
    "pt ro sk sl sq sv sw tl tr vi",
    "Cyrillic": "be bg mk ru uk",
    "Chinese": "zh yue",
    "Japanese": "ja",
    "Hangul": "ko",
    "Arabic": "ar fa ur",
    "Hebrew": "he",
    "Greek": "el",
    "Thai": "th",
    "Devanagari": "hi mr ne",
    "Bengali": "bn",
    "Tamil": "ta",
    "Telugu": "te",
    "Gujarati": "gu",
    "Kannada": "kn",
    "Malayalam": "ml",
    "Georgian": "ka",
    "Armenian": "hy",
    "Khmer": "km",
}
SCRIPT_OF = {code: script for script, codes in LANGUAGES.items() for code in codes.split()}
OTHER_NAMES = {"Cjk": "Chinese", "Hiragana": "Japanese", "Katakana": "Japanese"}

#: number of characters of a side that are looked at, and share of a script that makes it the main
SAMPLE, MAIN = 100_000, 0.6

#: lines from which words are learned and counted, words that suffice, and the difference between
#: the shares of known words that shows that sides are swapped
LEARNED, COUNTED, ENOUGH, MARGIN = 20_000, 2_000, 50, 0.2

#: sentence pairs of a passage, and share of the passages of a split that may be in another one
PASSAGE, REPEATED = 3, 0.01


class Side(NamedTuple):
    """One side of a split of a corpus.

    Attributes:
        name: path, for messages.
        language: suffix of the file.
        lines: lines of the side, which are read only once.
    """

    name: str
    language: str
    lines: Iterable[str]


def warn(message: str) -> None:
    """Print a warning to standard error."""
    print(f"warning: {message}", file=sys.stderr)


# ---- documents -----------------------------------------------------------------------------------


def check_lengths(name: str, documents: int, sentences: int) -> None:
    """Warn if documents are so long that the blank lines between them are probably missing.

    Args:
        name: name of the corpus, for the message.
        documents, sentences: numbers of documents and sentences.
    """
    if sentences > MOST_SENTENCES * documents:
        warn(
            f"{name}: {sentences:,} sentences form {documents:,} document(s); put a blank line "
            "between documents, or sentences get the context of other documents"
        )


# ---- sides ---------------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def _script_of_letter(letter: str) -> str:
    name = unicodedata.name(letter, "").partition(" ")[0].capitalize()
    return OTHER_NAMES.get(name, name)


def main_script(lines: Iterable[str]) -> Optional[str]:
    """Return the main script of a text, such as ``Latin``, or None if it has none.

    A script is the main one if more than 60 % of the letters belong to it.  In a text with kana,
    Chinese characters count as Japanese.  Only about the first 100,000 characters are read.
    """
    counts: Counter = Counter()
    seen = 0
    for line in lines:
        counts.update(filter(str.isalpha, line))
        seen += len(line)
        if seen > SAMPLE:
            break
    scripts: Counter = Counter()
    for letter, count in counts.items():
        scripts[_script_of_letter(letter)] += count
    if scripts["Japanese"] > 0.1 * scripts["Chinese"]:  # a Japanese text has both
        scripts["Japanese"] += scripts.pop("Chinese", 0)
    script, count = (scripts.most_common(1) or [("", 0)])[0]
    return script if count > MAIN * sum(scripts.values()) else None


def swapped_scripts(source: Side, target: Side) -> Optional[str]:
    """Return an error message if each side is in the script of the other language, otherwise None.

    If only one side is in an unexpected script, a warning is printed.
    """
    sides = (source, target)
    codes = (re.split("[-_]", side.language)[0].lower() for side in sides)
    wanted = [SCRIPT_OF.get(code) for code in codes]
    found = [main_script(side.lines) if script else None for side, script in zip(sides, wanted)]
    if None not in wanted and wanted[0] != wanted[1] and found == wanted[::-1]:
        return (
            f"{source.name} is in {found[0]} script and {target.name} in {found[1]}; the sides are "
            "swapped: exchange the two files"
        )
    for side, script, has in zip(sides, wanted, found):
        if has and has != script:
            warn(f"{side.name} is in {has} script, but the language {side.language} in {script}")
    return None


class KnownWords:
    """Words of both sides of the training text, used to detect swapped sides in other splits.

    Args:
        train: both sides of the training text, tokenized.
    """

    def __init__(self, train: Sequence[Side]):
        self.train = train
        self.words = [set(_words(side.lines, LEARNED)) for side in train]

    def swapped(self, split: Sequence[Side]) -> Optional[str]:
        """Return an error message if the sides of a split seem to be swapped, otherwise None.

        This is the case if, on both sides, many more words are known from the other side of the
        training text than from the same side.  Very small splits are not checked.

        Args:
            split: both sides of another split, tokenized.
        """
        words = [list(_words(side.lines, COUNTED)) for side in split]
        if min(map(len, words)) < ENOUGH:
            return None
        own, other = (
            [sum(map(known.__contains__, side)) / len(side) for side, known in zip(words, order)]
            for order in (self.words, self.words[::-1])
        )
        if any(there - here < MARGIN for there, here in zip(other, own)):
            return None
        first, second = self.train
        return (
            f"{split[0].name}: {other[0]:.0%} of the words are words of {second.name}, and "
            f"{own[0]:.0%} of {first.name}; the sides are swapped: exchange the file and "
            f"{split[1].name}"
        )


def _words(lines: Iterable[str], most: int) -> Iterator[str]:
    return (word for line in islice(lines, most) for word in line.split())


# ---- splits --------------------------------------------------------------------------------------


Sides = Tuple[Iterable[str], Iterable[str]]


def passages(source: Iterable[str], target: Iterable[str]) -> Iterator[Tuple[int, ...]]:
    """Yield a tuple of hashes for every three consecutive sentence pairs, ignoring blank lines.

    :func:`check_repetition` compares the tuples to find passages that occur in two texts.
    """
    row: Tuple[int, ...] = ()
    for pair in zip(source, target):
        if pair[0].strip():
            row = (*row[1 - PASSAGE :], hash(pair))
            if len(row) == PASSAGE:
                yield row


def check_repetition(train: Sides, splits: Dict[str, Sides]) -> None:
    """Warn about each split that shares text with the training text or with an earlier split.

    A warning is printed if more than 1 % of the passages of three sentence pairs in a split also
    occur in the other text.

    Args:
        train: lines of both sides of the training text.
        splits: name of each other split -> lines of both sides.
    """
    own = {name: set(passages(*sides)) for name, sides in splits.items()}
    earlier = {"train": set().union(*own.values()).intersection(passages(*train))}
    for name, found in own.items():
        for other, known in earlier.items():
            common = len(found & known)
            if common > REPEATED * len(found):
                warn(
                    f"{name}: {common:,} of {len(found):,} passages of {PASSAGE} sentence pairs "
                    f"are in {other} too; keep the text of the splits apart"
                )
        earlier[name] = found


if __name__ == "__main__":
    raise SystemExit("error: sanity.py is no command; data_prep/README.md lists the commands")
