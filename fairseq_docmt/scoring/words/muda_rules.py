"""Rules that find words whose translation depends on previous sentences, by target language.

They follow Fernandes et al. (2023), sections 3 and 4, for translation from English, and use the
word lists of their code (MuDA).  The tagged words of a target sentence are:

* lexical cohesion: content words that translated the same source word in at least three (REPEATED)
  previous sentences of the document;
* formality: familiar or polite pronouns, if the same level of formality occurred before;
* verb form: verbs in a tense that English does not distinguish, if the same tense occurred before;
* pronouns: translations of a source pronoun that is ambiguous in gender or formality.

MuDA aligns words and resolves coreference with neural models.  Instead, these rules assume that:

* a content word translates every content word of the source sentence, so that any two such words
  that occur together in enough previous sentence pairs count as a repeated translation;
* a target pronoun translates a source pronoun of its sentence, unless the source sentence has
  another word with the same translation;
* a third-person source pronoun may have its antecedent in its own sentence if a noun precedes it
  there; such a pronoun is not counted.
"""

import re
from collections import Counter
from typing import Dict, FrozenSet, List, NamedTuple, Sequence, Set

#: Number of previous sentences with a pair of words from which its next use is tagged (MuDA).
REPEATED = 3
COHESION, FORMALITY, VERB_FORM, PRONOUNS = PHENOMENA = (
    "lexical cohesion",
    "formality",
    "verb form",
    "pronouns",
)
_YOU = frozenset("you your yours yourself yourselves".split())
_EDGES = re.compile(r"^\W+|\W+$")


class Word(NamedTuple):
    """A word with its analysis by spaCy.

    Attributes:
        text: the word as written.
        lemma: dictionary form, in lower case.
        pos: universal part of speech, such as ``VERB``.
        content: True for content words; False for stop words and punctuation.
        tenses: values of the morphological feature Tense, such as ``Past``.
    """

    text: str
    lemma: str
    pos: str
    content: bool
    tenses: FrozenSet[str] = frozenset()

    @property
    def form(self) -> str:
        """The word in lower case without punctuation at its edges; empty for punctuation."""
        return _EDGES.sub("", self.text.lower())


Sentence = List[Word]
#: Phenomenon -> the tagged words of a sentence, as :attr:`Word.form`.
Tagged = Dict[str, List[str]]


class Rules(NamedTuple):
    """Rules that find context-dependent words of a target language.

    All words are given in lower case.

    Attributes:
        model: name of the spaCy model.
        lemmas: whether words are compared by lemma, because the language is inflected.  The model
            must then provide lemmas.
        formality: level of formality (``familiar`` or ``polite``) -> pronouns of this level.
        capital: pronouns of ``formality`` that count only if capitalised, such as German "Sie".
        tenses: tenses that English does not distinguish.
        pronouns: ambiguous source pronoun -> its translations.
        persons: source pronouns that do not refer to a noun, such as "you".  They count as
            ambiguous even if a noun precedes them in the same sentence.
        blockers: target pronoun -> other source words that it may translate.  If the source
            sentence has one of them, the pronoun is not counted.
    """

    model: str
    lemmas: bool = True
    formality: Dict[str, FrozenSet[str]] = {}
    capital: FrozenSet[str] = frozenset()
    tenses: FrozenSet[str] = frozenset()
    pronouns: Dict[str, FrozenSet[str]] = {}
    persons: FrozenSet[str] = frozenset()
    blockers: Dict[str, FrozenSet[str]] = {}

    @property
    def phenomena(self) -> List[str]:
        """Names of the phenomena that the target language has rules for."""
        rules = (True, self.formality, self.tenses, self.pronouns)
        return [name for name, rule in zip(PHENOMENA, rules) if rule]


def tag_document(
    rules: Rules, source: Sequence[Sentence], target: Sequence[Sentence]
) -> List[Tagged]:
    """Return the context-dependent words of each target sentence of a document.

    Args:
        rules: rules of the target language.
        source, target: (sentences,) analysed sentences of the document.

    Returns:
        For each sentence, phenomenon -> words whose translation depends on previous sentences.
    """
    pairs: Counter = Counter()
    classes: Set[str] = set()
    tenses: Set[str] = set()
    found = []
    for original, words in zip(source, target):
        tags = {
            COHESION: _cohesive(original, words, pairs),
            FORMALITY: _formal(rules, original, words, classes),
            VERB_FORM: _verbs(rules, words, tenses),
            PRONOUNS: _pronouns(rules, original, words),
        }
        found.append({name: tags[name] for name in rules.phenomena})
    return found


def _cohesive(source: Sentence, target: Sentence, pairs: Counter) -> List[str]:
    """Return the content words of a target sentence that repeat earlier translations.

    A word is returned if, for some content word of the source sentence, at least three
    (``REPEATED``) previous sentence pairs contain both words.

    Args:
        source, target: analysed words of the source sentence and of the target sentence.
        pairs: (source lemma, target lemma) -> number of previous sentence pairs with these two
            content words.  The pairs of this sentence are added.
    """
    originals = {word.lemma for word in source if word.content}
    words = [word for word in target if word.content]
    tagged = [
        word.form
        for word in words
        if any(pairs[original, word.lemma] >= REPEATED for original in originals)
    ]
    pairs.update((original, lemma) for original in originals for lemma in {w.lemma for w in words})
    return tagged


def _formal(rules: Rules, source: Sentence, target: Sentence, seen: Set[str]) -> List[str]:
    """Return the pronouns of address whose level of formality has already occurred in the document.

    Pronouns in ``rules.capital`` count only if they are capitalised.  At the beginning of a
    sentence or after punctuation such as a colon, where any word may be capitalised, they also
    require a form of "you" in the source.

    Args:
        rules: rules of the target language.
        source, target: analysed words of the source sentence and of the target sentence.
        seen: levels of formality that have occurred so far in the document.  The levels of the
            target sentence are added.
    """
    class_of = {word: name for name, words in rules.formality.items() for word in words}
    has_you = any(word.form in _YOU for word in source)
    tagged = []
    for place, word in enumerate(target):
        name = class_of.get(word.form)
        if name is None:
            continue
        if word.form in rules.capital:
            begins = place == 0 or not (target[place - 1].form or target[place - 1].text in ",;")
            if not word.text[0].isupper() or (begins and not has_you):
                continue
        if name in seen:
            tagged.append(word.form)
        seen.add(name)
    return tagged


def _verbs(rules: Rules, target: Sentence, seen: Set[str]) -> List[str]:
    """Return the verbs of a target sentence whose tense occurred earlier in the document.

    Args:
        rules: rules of the target language, which list the tenses that count.
        target: analysed words of the sentence.
        seen: tenses that occurred so far in the document.  The tenses in this sentence are added.
    """
    tagged = []
    for word in target:
        tenses = rules.tenses & word.tenses if word.pos == "VERB" else frozenset()
        if tenses & seen:
            tagged.append(word.form)
        seen |= tenses
    return tagged


def _pronouns(rules: Rules, source: Sentence, target: Sentence) -> List[str]:
    words = {word.form for word in source}
    wanted: Set[str] = set()
    noun = False
    for word in source:
        if word.pos == "PRON" and (word.form in rules.persons or not noun):
            wanted |= rules.pronouns.get(word.form, frozenset())
        noun = noun or word.pos in ("NOUN", "PROPN")
    wanted -= {form for form, blockers in rules.blockers.items() if blockers & words}
    return [word.form for word in target if word.form in wanted]


def _words(text: str) -> FrozenSet[str]:
    return frozenset(text.split())


SOURCE_MODEL = "en_core_web_sm"
#: Target language -> rules; to add one, add an entry.
LANGUAGES: Dict[str, Rules] = {
    "de": Rules(
        "de_core_news_sm",
        formality={"familiar": _words("du"), "polite": _words("sie")},
        capital=_words("sie"),
        pronouns={"it": _words("er sie es")},
        blockers={"er": _words("he"), "sie": _words("she her they them") | _YOU},
    ),
    "fr": Rules(
        "fr_core_news_sm",
        formality={
            "familiar": _words("tu te toi ton ta tes tien tiens tienne tiennes"),
            "polite": _words("vous votre vos"),
        },
        tenses=_words("Past Imp Pqp"),
        pronouns={
            "it": _words("il elle lui"),
            "they": _words("ils elles"),
            "them": _words("ils elles"),
            "you": _words("tu vous on"),
            "we": _words("nous on"),
            "this": _words("celle ceci"),
            "that": _words("celle celui"),
            "these": _words("celles ceux"),
            "those": _words("celles ceux"),
        },
        persons=_words("you we"),
        blockers={
            "il": _words("he"),
            "elle": _words("she her"),
            "lui": _words("he him her"),
            "nous": _words("us ourselves"),
        },
    ),
    "ru": Rules(
        "ru_core_news_sm",
        formality={
            "familiar": _words("ты тебя тебе тобой твой твоя твои"),
            "polite": _words("вы вас вам вами ваш ваши"),
        },
        tenses=_words("Past"),
    ),
    "zh": Rules(
        "zh_core_web_sm",
        lemmas=False,
        formality={"familiar": _words("你"), "polite": _words("您")},
    ),
}
