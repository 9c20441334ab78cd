"""The artificial language pair of the context probe: vocabulary, and phenomena that need context.

Source words are lower-case artificial stems with one-to-one translations, except for four phenomena
whose translation depends on another sentence:

* pronoun: ``ko`` takes the gender of the nearest noun before it (three forms).  Source nouns have
  no articles but target nouns do, so gender is also visible, and quickly learned, within the target
  sentence.
* formality: ``zu`` takes the form set by the greeting in the first sentence of the document (two
  forms).
* term: a bare term is translated as at its first mention, where a cue decided (two forms).
* ellipsis: ``mo`` stands for the nearest action verb before it (four verbs).

These answers are visible on both sides.  Two more phenomena, used only on request, are visible on
one side:

* number: ``vi`` takes the form set at the beginning by the number of addressees, which the target
  does not show (two forms).
* speaker: ``mi`` takes the form set at the beginning by the speaker, whom the source does not show
  (two forms).
"""

import random
from typing import Dict, List, NamedTuple

PHENOMENA = ("pronoun", "formality", "term", "ellipsis")
PRONOUN, YOU, ELIDED = "ko", "zu", "mo"
ARTICLES = ("der", "des", "dia")
PRONOUNS = ("xer", "xes", "xia")
YOUS = ("Vu", "tu")
GREETINGS = (("salira", "Salir"), ("hejo", "Hej"))
CUES = (("ribala", "ribal"), ("domuna", "domun"))
# One-sided phenomena: source and target of each cue, source word of the question, its two forms.
ONE_SIDED = {
    "number": ((("sol", "Hom"), ("mult", "Hom")), "vi", ("ve", "vo")),
    "speaker": ((("pers", "Pero"), ("pers", "Pera")), "mi", ("mo", "ma")),
}
CEILINGS = {
    "pronoun": 1 / 3,
    "formality": 1 / 2,
    "term": 1 / 2,
    "ellipsis": 1 / 4,
    "number": 1 / 2,
    "speaker": 1 / 2,
}
# Source words with a fixed meaning, excluded from the random stems.
RESERVED = {PRONOUN, YOU, ELIDED, *(word for word, _ in GREETINGS + CUES)}
RESERVED.update(word for tells, asks, _ in ONE_SIDED.values() for word in (asks, *dict(tells)))
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


class Vocabulary(NamedTuple):
    """Words of the language pair.

    Attributes:
        nouns: source noun -> (translation, gender 0 to 2).
        verbs: source verb -> translation; these are action verbs, which can be elided.
        fillers: source word -> translation; fillers do not affect other words.
        terms: source term -> its two translations.
    """

    nouns: Dict[str, tuple]
    verbs: Dict[str, str]
    fillers: Dict[str, str]
    terms: Dict[str, tuple]


def build_vocabulary(nouns: int, fillers: int, terms: int, seed: int) -> Vocabulary:
    """Generate a vocabulary.

    Args:
        nouns: number of nouns, divided evenly among three genders.
        fillers, terms: numbers of words.
        seed: random seed.
    """
    generator = random.Random(seed)
    stems: Dict[str, None] = {}  # used as an ordered set
    while len(stems) < nouns + fillers + terms + 4:
        stem = "".join(generator.choice(SYLLABLES) for _ in range(3))
        if stem not in RESERVED:
            stems[stem] = None
    words = iter(stems)

    def take(count: int) -> List[str]:
        return [next(words) for _ in range(count)]

    return Vocabulary(
        nouns={stem: (stem.capitalize() + "n", i % 3) for i, stem in enumerate(take(nouns))},
        verbs={stem: stem + "t" for stem in take(4)},
        fillers={stem: stem + "s" for stem in take(fillers)},
        terms={stem: (stem + "ak", stem + "oz") for stem in take(terms)},
    )


if __name__ == "__main__":
    raise SystemExit(
        "error: language.py is no command; examples/context_probe/README.md lists the commands"
    )
