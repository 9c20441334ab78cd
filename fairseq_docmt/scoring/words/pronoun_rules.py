"""Ambiguous pronouns and their translations, by language pair.

English-German follows Herold and Ney (2023), appendix A.1.  The word lists are copied from the code
that the paper refers to, an extension of BlonDe (Jiang et al., 2022).  As in that code, "ihr"
counts as a formal pronoun.  To add a language pair, add an entry to PAIRS.
"""

from typing import Dict, FrozenSet, List, NamedTuple, Tuple

#: A sentence as pairs (word, fine-grained tag of spaCy).
Tagged = List[Tuple[str, str]]


class PronounRules(NamedTuple):
    """Rules for evaluating one phenomenon, pronouns or formality, in a language pair.

    A source sentence is evaluated if it contains a trigger, i.e. an ambiguous pronoun.  In its
    translations, the pronouns of each class, such as ``masculine``, are counted.  All words are in
    lower case.

    Attributes:
        source_tags, target_tags: part-of-speech tags of pronouns on both sides.
        triggers: ambiguous source pronouns.
        blockers: source pronouns that pronouns of the class ``unclear`` may also translate.  In
            sentences with a blocker, this class is not counted.
        classes: name of a class -> target pronouns.
        unclear: name of the class that is not counted in sentences with a blocker.
    """

    source_tags: FrozenSet[str]
    target_tags: FrozenSet[str]
    triggers: FrozenSet[str]
    blockers: FrozenSet[str]
    classes: Dict[str, FrozenSet[str]]
    unclear: str

    def classes_of(self, source: Tagged) -> List[str]:
        """Return the names of the classes to count in translations of a tagged source sentence.

        If the sentence has no ambiguous pronoun, the list is empty.
        """
        pronouns = {word.lower() for word, tag in source if tag in self.source_tags}
        if not pronouns & self.triggers:
            return []
        blocked = bool(pronouns & self.blockers)
        return [name for name in self.classes if not (blocked and name == self.unclear)]

    def count(self, name: str, target: Tagged) -> int:
        """Count the words of a tagged target sentence that are pronouns of a class.

        Args:
            name: name of the class.
            target: words and part-of-speech tags.
        """
        words = self.classes[name]
        return sum(word.lower() in words and tag in self.target_tags for word, tag in target)


class LanguagePair(NamedTuple):
    """Names of the spaCy models of a language pair, and its rules for each phenomenon."""

    source_model: str
    target_model: str
    phenomena: Dict[str, PronounRules]


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


_IT = "it its itself"
_SHE = "she her hers herself"
_THEY = "they them their theirs themselves"
_YOU = "you your yours yourself yourselves"
_ENGLISH_TAGS = _words("PRP PRP$ WP WP$")
_GERMAN_TAGS = _words("PDAT PDS PIAT PIDAT PIS PPER PPOSAT PPOSS PRELAT PRELS PRF PWAT PWS")

PAIRS: Dict[str, LanguagePair] = {
    "en-de": LanguagePair(
        "en_core_web_sm",
        "de_core_news_sm",
        {
            "pronouns": PronounRules(
                _ENGLISH_TAGS,
                _GERMAN_TAGS,
                triggers=_words(_IT),
                blockers=_words(f"{_YOU} {_THEY}"),
                classes={
                    "masculine": _words("er ihn ihm"),
                    "feminine": _words("sie ihr ihre ihrem ihrer ihres"),
                    "neuter": _words("es"),
                },
                unclear="feminine",
            ),
            "formality": PronounRules(
                _ENGLISH_TAGS,
                _GERMAN_TAGS,
                triggers=_words("you your yours yourself"),
                blockers=_words(f"{_IT} {_SHE} {_THEY}"),
                classes={
                    "formal": _words("sie ihr ihre ihrer ihres ihnen"),
                    "informal": _words("du dich dir dein deine deinem deinen deiner deines"),
                },
                unclear="formal",
            ),
        },
    ),
}
