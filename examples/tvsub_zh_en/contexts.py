"""Give every sentence of a test set a limited context: of its own or of another document.

    python contexts.py make TEXT.zh TEXT.en OUT
    python contexts.py take OUTPUT_OF_FAIRSEQ_GENERATE > hypotheses

``make`` writes OUT/own and OUT/other, both with one document for each sentence: up to ten sentences
that precede it, then the sentence.  In ``other`` the preceding sentences are consecutive sentences
of another document.  ``take`` prints the translations of the last sentence of each such document,
in order.
"""

import random
import sys
from pathlib import Path
from typing import List, Sequence

from fairseq_docmt.analysis.bleu_by_position import places, read_output

CONTEXT = 10


def documents(path: str) -> List[List[str]]:
    """Read the documents of a text, separated by blank lines."""
    parts = Path(path).read_text(encoding="utf-8").strip("\n").split("\n\n")
    return [part.split("\n") for part in parts]


def with_own_context(document: Sequence[str], place: int) -> List[str]:
    """Return a sentence after the sentences that precede it."""
    return list(document[max(0, place - CONTEXT) : place + 1])


def with_other_context(texts: Sequence[list], number: int, place: int, draw) -> List[List[str]]:
    """Return a sentence of each text after as many sentences of another document.

    Args:
        texts: documents of each side, in the same order.
        number, place: document and place of the sentence.
        draw: source of randomness.
    """
    length = min(CONTEXT, place)
    long_enough = [
        i for i, document in enumerate(texts[0]) if i != number and len(document) >= length
    ]
    if not long_enough:
        raise SystemExit(f"no other document has {length} sentences")
    other = draw.choice(long_enough)
    first = draw.randint(0, len(texts[0][other]) - length)
    return [[*text[other][first : first + length], text[number][place]] for text in texts]


def make(source: str, target: str, out: Path, seed: int = 1) -> None:
    """Write the four texts."""
    texts = documents(source), documents(target)
    draw = random.Random(seed)
    own, other = [], []
    for number, document in enumerate(texts[0]):
        for place in range(len(document)):
            own.append([with_own_context(text[number], place) for text in texts])
            other.append(with_other_context(texts, number, place, draw))
    out.mkdir(parents=True, exist_ok=True)
    for name, found in (("own", own), ("other", other)):
        for side, path in enumerate((source, target)):
            text = "\n\n".join("\n".join(pair[side]) for pair in found)
            (out / f"{name}{Path(path).suffix}").write_text(text + "\n", encoding="utf-8")


def take(output: str) -> List[str]:
    """Return the translations of the last sentence of each document."""
    hypotheses = read_output(output).hypotheses
    place = places(hypotheses)
    return [hypotheses[row] for row in place if row + 1 not in place]


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        print("\n".join(take(sys.argv[2])))
