"""Where context helps: sums over the log-probabilities that cxmi gives for each token."""

from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

from fairseq_docmt.scoring.context.cxmi import mean_gain
from fairseq_docmt.scoring.texts.translations import read_translations
from fairseq_docmt.scoring.words.dropped_pronouns import PERSON_OF_FORM, read_marks


def of_tokens(sentences: List[dict]) -> List[List[float]]:
    """Return the gain of each token through its own context, over another document's, in bits.

    Args:
        sentences: of ``cxmi``; their end symbols are left out.
    """
    own = next(name for name in sentences[0] if name.isdigit())
    other = next(name for name in sentences[0] if name.startswith("other"))
    return [[a - b for a, b in zip(found[own][:-1], found[other])] for found in sentences]


def at_beginnings(sentences: List[dict]) -> dict:
    """Return how much of the gain over another document's context is at beginnings of sentences.

    Args:
        sentences: of ``cxmi``.

    Returns:
        Mean gain of the first tokens, in bits; the share of the sentences that begin in lower case,
        and their share of the gain of all tokens.
    """
    tokens = of_tokens(sentences)
    sums = list(map(sum, tokens))
    lower = [found["words"][0][0].islower() for found in sentences]
    return {
        "first_tokens": sum(bits[0] for bits in tokens) / len(tokens),
        "lower_case": sum(lower) / len(lower),
        "lower_case_gain": sum(x for x, low in zip(sums, lower) if low) / sum(sums),
    }


def of_pronouns(sentences: List[dict], sources: Sequence[str], document: Sequence[int]) -> dict:
    """Return the gain of English pronouns of persons that the Chinese source does not name.

    Args:
        sentences: of ``cxmi``.
        sources: (sentences,)
        document: (sentences,) number of the document of each sentence.

    Returns:
        Number of these pronouns, their mean gain over another document's context in bits, and
        its 95 % interval by bootstrap over documents.
    """
    values, documents = [], []
    for number, found, source, bits in zip(document, sentences, sources, of_tokens(sentences)):
        for place in places_of_dropped_pronouns(found["words"], source):
            values.append(bits[place])
            documents.append(number)
    return {"pronouns": len(values), **mean_gain(values, documents)._asdict()}


def places_of_dropped_pronouns(words: Sequence[str], source: str) -> Iterator[int]:
    """Yield the places of pronouns in a translation that have no counterpart in the source.

    Args:
        words: subwords of subword-nmt.
        source: Chinese sentence.
    """
    left = Counter(read_marks(source).there)
    for place, word in enumerate(words):
        person = PERSON_OF_FORM.get(word.lower())
        is_word = place == 0 or not words[place - 1].endswith("@@")
        if person and is_word:
            left[person] -= 1
            if left[person] < 0:
                yield place


def summary(usage: dict, source: Path, reference: Path, pronouns: bool) -> Dict[str, dict]:
    """Return what the gains of single sentences say about beginnings and, for Chinese, pronouns.

    Args:
        usage: of ``cxmi``.
        source, reference: raw text that was scored.
    """
    sentences = usage["sentences"]
    found = {"beginnings": at_beginnings(sentences)}
    if pronouns:
        texts = read_translations({"reference": str(reference)}, [str(reference)], str(source))
        found["dropped_pronouns"] = of_pronouns(sentences, texts.source, texts.index.document)
    return found


if __name__ == "__main__":
    raise SystemExit(
        "error: gains.py is no command; examples/tvsub_zh_en/README.md lists the commands"
    )
