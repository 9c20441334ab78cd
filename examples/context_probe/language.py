"""The invented language pair of the context probe: words, and what only context decides.

Source words are lower-case invented stems; their translations carry no information beyond a
one-to-one dictionary, except for four phenomena whose rendering lies in another sentence:

* pronoun: ``ko`` takes the gender of the nearest noun before it (three forms); the article of a
  noun, which the source lacks, shows its gender inside the sentence, so that is quickly learned;
* formality: ``zu`` takes the form set by the greeting of the document's first sentence (two);
* term: a bare term is rendered as at its first mention, where a cue decided it (two);
* ellipsis: ``mo`` stands for the nearest verb of action before it (four verbs).

All of it shows on both sides.  Two more, which are asked for by name alone, show on one:

* number: ``vi`` takes the form set in the beginning by how many are spoken to, which the target
  does not tell (two);
* speaker: ``mi`` takes the form set in the beginning by who speaks, which the source does not tell
  (two).
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
# One-sided phenomena: source and target of the word that tells, word that asks, and its forms.
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
# Source words with a meaning of their own, which no invented word may take.
RESERVED = {PRONOUN, YOU, ELIDED, *(word for word, _ in GREETINGS + CUES)}
RESERVED.update(word for tells, asks, _ in ONE_SIDED.values() for word in (asks, *dict(tells)))
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


class Vocabulary(NamedTuple):
    """Words of the language pair.

    Attributes:
        nouns: source noun -> (translation, gender 0 to 2).
        verbs: source verb -> translation, verbs of action (these can be elided).
        fillers: source word -> translation, of no influence on anything.
        terms: source term -> its two renderings.
    """

    nouns: Dict[str, tuple]
    verbs: Dict[str, str]
    fillers: Dict[str, str]
    terms: Dict[str, tuple]


def build_vocabulary(nouns: int, fillers: int, terms: int, seed: int) -> Vocabulary:
    """Invent words.

    Args:
        nouns: number of nouns, divided evenly among three genders.
        fillers, terms: numbers of words.
        seed: the same seed gives the same language.
    """
    generator = random.Random(seed)
    stems: Dict[str, None] = {}  # a dictionary finds repetitions at once and keeps the order
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
