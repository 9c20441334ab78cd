r"""Compute the F1 of ambiguous pronouns and of formality, with spaCy's taggers.

    fairseq-docmt pronouns --source test.en --reference test.de \
        sentence=sentence.out window=window.out

The scores are defined by Herold and Ney (2023), appendix A.1.  Only sentences with an ambiguous
source pronoun are evaluated.  In each sentence, the number of correct pronouns of a class is the
smaller of its counts in the hypothesis and in the reference.  Precision is relative to the pronouns
of the hypotheses, recall to the pronouns of the references (the paper swaps the two names, which
does not change F1).  `all` is micro F1 over the classes, as described in the paper.  The paper's
code leaves out neuter pronouns, and so does `without neuter`.  Texts are tagged with their original
case; --lowercase tags them in lower case, as the paper's code does.
"""

import argparse
import os
from itertools import repeat
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import _intervals, _tables
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.texts import translations
from fairseq_docmt.scoring.words import tags
from fairseq_docmt.scoring.words.pronoun_rules import PAIRS, PronounRules, Tagged

#: Language of spaCy pipelines for several languages.
MULTILINGUAL = "xx"


class Counts(NamedTuple):
    """Counts of words of one kind, such as pronouns of a class, and the scores that follow.

    Attributes:
        hypothesis, reference: number of such words in the hypotheses and in the references.
        both: number of matches between hypotheses and references, summed over sentences.
    """

    hypothesis: int = 0
    reference: int = 0
    both: int = 0

    @property
    def precision(self) -> Optional[float]:
        """Matches divided by ``hypothesis``, the words counted there; None if that is 0."""
        return _tables.ratio(self.both, self.hypothesis)

    @property
    def recall(self) -> Optional[float]:
        """Matches divided by ``reference``, the words counted there; None if that is 0."""
        return _tables.ratio(self.both, self.reference)

    @property
    def f1(self) -> Optional[float]:
        """Harmonic mean of precision and recall; None if no word is counted in either text."""
        return _tables.ratio(2 * self.both, self.hypothesis + self.reference)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(a + b for a, b in zip(self, other)))


def count_pronouns(
    rules: PronounRules,
    source: Sequence[Tagged],
    hypotheses: Sequence[Tagged],
    references: Sequence[Tagged],
) -> Dict[str, Counts]:
    """Count the pronouns of each class in a test set.

    Args:
        rules: rules for one phenomenon of a language pair.
        source, hypotheses, references: (sentences,) tagged sentences.

    Returns:
        Class -> counts; ``all`` is the sum of all classes, and ``without neuter``, if there is a
        class ``neuter``, the sum of the other classes.
    """
    single = map(count_in_sentence, repeat(rules), source, hypotheses, references)
    return with_all(summed(rules.classes, list(single)))


def count_in_sentence(
    rules: PronounRules, source: Tagged, hypothesis: Tagged, reference: Tagged
) -> Dict[str, Counts]:
    """Count the pronouns of each class in a hypothesis and its reference, and their matches.

    The number of matches is the smaller of the two numbers.  The counts of a class are 0 if the
    rules exclude it for this source sentence, for example because the source has no ambiguous
    pronoun.

    Args:
        rules: rules for one phenomenon of a language pair.
        source, hypothesis, reference: words and part-of-speech tags of the sentence.

    Returns:
        Class -> counts.
    """
    counts = dict.fromkeys(rules.classes, Counts())
    for name in rules.classes_of(source):
        found, wanted = rules.count(name, hypothesis), rules.count(name, reference)
        counts[name] = Counts(found, wanted, min(found, wanted))
    return counts


def summed(names: Iterable[str], counts: Sequence[Dict[str, Counts]]) -> Dict[str, Counts]:
    """Sum counts over sentences.

    Args:
        names: names of the classes or phenomena to sum.
        counts: for each sentence, name -> counts.

    Returns:
        Name -> counts.
    """
    return {name: sum((found[name] for found in counts), Counts()) for name in names}


def with_all(counts: Dict[str, Counts]) -> Dict[str, Counts]:
    """Return the counts of pronoun classes together with their sum, ``all``.

    If there is a class ``neuter``, the sum of the other classes is included as ``without neuter``.
    """
    total = sum(counts.values(), Counts())
    if "neuter" in counts:
        others = (found for name, found in counts.items() if name != "neuter")
        counts = {**counts, "without neuter": sum(others, Counts())}
    return {**counts, "all": total}


def by_sentence(counts: Sequence[Counts]) -> _intervals.Counts:
    """Return each sentence's contribution to the numerator and to the denominator of F1.

    Args:
        counts: (sentences,) counts of each sentence.

    Returns:
        Numerators: (sentences,) twice the number of matches.
        Denominators: (sentences,) number of tagged words in hypothesis and reference together.
    """
    both = np.array([2 * found.both for found in counts])
    return both, np.array([found.hypothesis + found.reference for found in counts])


def pronoun_tags(
    phenomena: Dict[str, PronounRules], source: Sequence[Tagged], references: Sequence[Tagged]
) -> List[List[str]]:
    """Return tags that name the pronoun classes in each sentence, such as ``pronouns: feminine``.

    A sentence is tagged with a class if its source has a pronoun for which the rules evaluate the
    class (:meth:`PronounRules.classes_of`), and its reference has a pronoun of the class.

    Args:
        phenomena: phenomenon -> rules.
        source, references: (sentences,) tagged sentences.

    Returns:
        (sentences,) list of the tags of each sentence.
    """
    return [
        [
            f"{phenomenon}: {name}"
            for phenomenon, rules in phenomena.items()
            for name in rules.classes_of(original)
            if rules.count(name, reference)
        ]
        for original, reference in zip(source, references)
    ]


def tagger(name: str, exclude: Sequence[str] = ("ner", "lemmatizer", "parser")):
    """Load a spaCy pipeline for tagging words.

    Args:
        name: name of an installed model, or its folder.
        exclude: components of the pipeline that are not needed and not loaded.

    Raises:
        UserError: there is no such model or folder, the folder has none, it is damaged, a package
            that it needs is missing, or one of its components is unknown.
    """
    import spacy

    try:
        return spacy.load(name, exclude=exclude)
    except OSError:
        if os.path.exists(name):
            raise UserError(
                f"{name} is not the folder of a spaCy pipeline, with config.cfg and meta.json; "
                "give one, or the name of a model"
            ) from None
        if os.path.basename(name) != name:
            raise UserError(
                f"{name} not found; give the folder of a spaCy pipeline, or the name of a model"
            ) from None
        raise UserError(
            f"the spaCy model {name} is not installed; "
            f"install it with `python -m spacy download {name}`"
        ) from None
    except Exception as error:  # whatever the components raise
        message = " ".join(str(error).split())[:200]
        raise UserError(
            f"the spaCy model {name} is damaged, or needs a package or component that is missing: "
            f"{message}"
        ) from None


def check_languages(models: Sequence, pair: str) -> None:
    """Check that two spaCy pipelines fit a language pair; multilingual pipelines fit any pair.

    Args:
        models: pipelines of source and target.
        pair: codes of the languages, such as ``en-de``.

    Raises:
        UserError: a pipeline is for another language.
    """
    for side, model, language in zip(("source", "target"), models, pair.split("-")):
        if model.lang not in (language, MULTILINGUAL):
            raise UserError(
                f"--{side}-model: {spacy_name(model)} is of language {model.lang}, but --pair "
                f"{pair} needs {language}; give another model or --pair"
            )


def spacy_name(model) -> str:
    """Return the name of a spaCy pipeline with its language, such as ``en_core_web_sm``."""
    return f"{model.lang}_{model.meta['name']}"


def tag(model, sentences: Sequence[str], lowercase: bool = False) -> List[Tagged]:
    """Return the words of each sentence as pairs of word and part-of-speech tag.

    Args:
        model: spaCy pipeline.
        sentences: (sentences,) texts.
        lowercase: whether to convert the texts to lower case first.

    Raises:
        UserError: the pipeline gives no tags.
    """
    texts = (sentence.lower() if lowercase else sentence for sentence in sentences)
    tagged = [[(token.text, token.tag_) for token in found] for found in model.pipe(texts)]
    if any(tagged) and not any(label for words in tagged for _, label in words):
        raise UserError(f"the spaCy model {spacy_name(model)} gives no tags; use another one")
    return tagged


def add_tagging_arguments(parser: argparse.ArgumentParser, pairs: Iterable[str]) -> None:
    """Add the options shared by the commands that tag source and target with spaCy.

    They name the texts, the tag file to write, the language pair and the spaCy models.

    Args:
        parser: parser of the command.
        pairs: language pairs that the command supports, such as ``en-de``.
    """
    translations.add_arguments(parser, source_required=True)
    tags.add_argument(parser)
    parser.add_argument("--pair", choices=pairs, default="en-de", help="languages; default: en-de")
    parser.add_argument("--source-model", metavar="NAME", help="spaCy model of the source side")
    parser.add_argument("--target-model", metavar="NAME", help="spaCy model of the target side")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt pronouns``."""
    add_tagging_arguments(parser, PAIRS)
    parser.add_argument("--lowercase", action="store_true", help="lowercase texts before tagging")
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt pronouns``: tag the texts, and print or write the F1 of each class."""
    pair = PAIRS[args.pair]
    models = [tagger(args.source_model or pair.source_model)]
    models.append(tagger(args.target_model or pair.target_model))
    check_languages(models, args.pair)
    texts = translations.from_arguments(args)
    if len(texts.references) > 1:
        raise UserError("pronoun F1 is defined for a single reference; give --reference once")
    source = tag(models[0], texts.source, args.lowercase)
    reference = tag(models[1], texts.references[0], args.lowercase)
    counts: Dict[str, Dict[str, Dict[str, Counts]]] = {}
    parts: Dict[str, Dict[str, _intervals.Counts]] = {}
    for name, sentences in texts.systems.items():
        found = tag(models[1], sentences, args.lowercase)
        for phenomenon, rules in pair.phenomena.items():
            single = list(map(count_in_sentence, repeat(rules), source, found, reference))
            counts.setdefault(phenomenon, {})[name] = with_all(summed(rules.classes, single))
            parts.setdefault(phenomenon, {})[name] = by_sentence(
                [sum(by_class.values(), Counts()) for by_class in single]
            )
    if args.tags:
        tags.write(args.tags, texts, pronoun_tags(pair.phenomena, source, reference))
    taggers = [f"{spacy_name(model)} {model.meta['version']}" for model in models]
    case = "lc" if args.lowercase else "mixed"
    signature = "|".join([texts.signature, f"pair:{args.pair}", f"case:{case}", *taggers])
    signature = f"{signature}|{_intervals.PROCEDURE}"
    tables = [table(phenomenon, "class", systems) for phenomenon, systems in counts.items()]
    intervals = _intervals.compare(parts)
    tables.append(_intervals.table_of(intervals, "F1", "sentences"))
    results = {
        phenomenon: {name: numbers(by_class) for name, by_class in systems.items()}
        for phenomenon, systems in counts.items()
    }
    results = {"signature": signature, "notes": [*texts.notes], **results}
    results["intervals"] = _intervals.as_json(intervals)
    _tables.show(args, tables, [*texts.notes, signature], results)


def table(title: str, rows_are: str, systems: Dict[str, Dict[str, Counts]]) -> Table:
    """Return a table of F1 with a row for each class and a column for each system.

    Args:
        title: what is counted, such as ``pronouns``.
        rows_are: header of the first column, such as ``class``.
        systems: system -> class -> counts.
    """
    first = next(iter(systems.values()))
    rows = [
        [name, str(wanted.reference), *(f1_cell(found[name]) for found in systems.values())]
        for name, wanted in first.items()
    ]
    title = f"{title}: F1 (precision/recall), %"
    return Table(title, [rows_are, "in reference", *systems], rows)


def f1_cell(found) -> str:
    """Return F1, precision and recall in percent, such as ``66.7 (50.0/100.0)``.

    Args:
        found: counts with the properties ``f1``, ``precision`` and ``recall``.  A value that is
            None is shown as ``-``.
    """
    f1, *parts = map(_tables.percent, (found.f1, found.precision, found.recall))
    return f"{f1} ({'/'.join(parts)})"


def numbers(by_class: Dict[str, NamedTuple]) -> dict:
    """Return the counts, precision, recall and F1 of each class as dictionaries, for JSON.

    The counts are :class:`Counts`, or others with the same properties.
    """
    return {
        name: {**c._asdict(), "precision": c.precision, "recall": c.recall, "f1": c.f1}
        for name, c in by_class.items()
    }
