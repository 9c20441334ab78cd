r"""Compute the F1 of words whose translation depends on previous sentences (after MuDA).

    fairseq-docmt muda --pair en-fr --source test.en \
        --reference test.fr --tags tags.jsonl sentence=sentence.out window=window.out

As in Fernandes et al. (2023), words of the reference and of each system are tagged for lexical
cohesion, formality, verb form and pronouns.  A phenomenon is left out if there are no rules for it
in the target language.  In each sentence, a tagged word of the system is correct if the reference
has the same word with the same tag; each word of the reference is matched only once.  The words are
analysed with spaCy.  Rules replace the neural word alignment and coreference resolution of the
published code, whose scores therefore differ; the guide to tests of context has the phenomena.
"""

import argparse
from collections import Counter
from typing import Dict, List, Sequence

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import _intervals, _tables
from fairseq_docmt.scoring.texts import translations
from fairseq_docmt.scoring.texts.test_set import Translations
from fairseq_docmt.scoring.words import pronouns, tags
from fairseq_docmt.scoring.words.muda_rules import (
    LANGUAGES,
    PHENOMENA,
    SOURCE_MODEL,
    Rules,
    Sentence,
    Tagged,
    Word,
    tag_document,
)
from fairseq_docmt.scoring.words.pronouns import Counts

PAIRS = {f"en-{language}": rules for language, rules in LANGUAGES.items()}


def analyse(model, sentences: Sequence[str], pos: bool, lemmas: bool) -> List[Sentence]:
    """Split sentences into words with spaCy, and analyse the words.

    Args:
        model: spaCy pipeline.
        sentences: (sentences,) texts.
        pos, lemmas: whether parts of speech and lemmas are needed.

    Returns:
        The analysed words of each sentence.

    Raises:
        UserError: parts of speech or lemmas are needed, but the pipeline gives none.
    """
    found = []
    given = {"parts of speech": not pos, "lemmas": not lemmas}
    for document in model.pipe(sentences):
        given["parts of speech"] |= any(token.pos_ for token in document)
        given["lemmas"] |= any(token.lemma_ for token in document)
        found.append([_word(token) for token in document if not token.is_space])
    for name, there in given.items():
        if any(found) and not there:
            raise UserError(
                f"the spaCy model {pronouns.spacy_name(model)} gives no {name}; use another"
            )
    return found


def _word(token) -> Word:
    return Word(
        token.text,
        (token.lemma_ or token.text).lower(),
        token.pos_,
        not (token.is_stop or token.is_punct),
        frozenset(token.morph.get("Tense")),
    )


def tag(
    rules: Rules, texts: Translations, source: List[Sentence], target: List[Sentence]
) -> List[Tagged]:
    """Return the context-dependent words of each target sentence.

    Args:
        rules: rules of the target language.
        texts: test set, for its document boundaries.
        source, target: analysed source and target sentences of the test set.

    Returns:
        For each sentence, phenomenon -> words whose translation depends on previous sentences.
    """
    return [
        tagged
        for first, end in texts.index.spans
        for tagged in tag_document(rules, source[first:end], target[first:end])
    ]


def count(
    rules: Rules, hypotheses: Sequence[Tagged], references: Sequence[Tagged]
) -> Dict[str, Counts]:
    """Count the tagged words of hypotheses and references, and the matches between them.

    A word of a hypothesis matches the same word of its reference if both have the same tag.

    Args:
        rules: rules of the target language.
        hypotheses, references: (sentences,) tagged words of each sentence.

    Returns:
        Phenomenon -> counts.
    """
    counts = dict.fromkeys(rules.phenomena, Counts())
    for found, wanted in zip(hypotheses, references):
        for name in counts:
            one, other = Counter(found[name]), Counter(wanted[name])
            both = sum((one & other).values())
            counts[name] += Counts(sum(one.values()), sum(other.values()), both)
    return counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt muda``."""
    pronouns.add_tagging_arguments(parser, PAIRS)
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt muda``: tag words, and print or write the F1 of each phenomenon."""
    rules = PAIRS[args.pair]
    # The English models need the parser to tell "this" as a pronoun from "this" as a determiner.
    models = [pronouns.tagger(args.source_model or SOURCE_MODEL, exclude=["ner"])]
    models.append(pronouns.tagger(args.target_model or rules.model, exclude=["ner", "parser"]))
    pronouns.check_languages(models, args.pair)
    texts = translations.from_arguments(args)
    if len(texts.references) > 1:
        raise UserError("F1 of tagged words is defined for one reference; give --reference once")
    source = analyse(models[0], texts.source, pos=bool(rules.pronouns), lemmas=True)

    def tagged(sentences: List[str]) -> List[Tagged]:
        found = analyse(models[1], sentences, pos=bool(rules.tenses), lemmas=rules.lemmas)
        return tag(rules, texts, source, found)

    reference = tagged(texts.references[0])
    counts, parts = {}, {name: {} for name in rules.phenomena}
    for name, sentences in texts.systems.items():
        single = [
            count(rules, [found], [wanted]) for found, wanted in zip(tagged(sentences), reference)
        ]
        for phenomenon, systems in parts.items():
            systems[name] = pronouns.by_sentence([found[phenomenon] for found in single])
        counts[name] = pronouns.summed(rules.phenomena, single)
    intervals = _intervals.compare(parts)
    if args.tags:
        found = [[name for name, words in each.items() if words] for each in reference]
        tags.write(args.tags, texts, found)
    taggers = [f"{pronouns.spacy_name(model)} {model.meta['version']}" for model in models]
    signature = f"{texts.signature}|pair:{args.pair}|{'|'.join(taggers)}|{_intervals.PROCEDURE}"
    missing = [name for name in PHENOMENA if name not in rules.phenomena]
    texts.notes.extend(texts.context_notes)
    notes = [*texts.notes, signature]
    notes += [f"not covered: {', '.join(missing)}"] if missing else []
    tables = [pronouns.table("tagged words", "phenomenon", counts)]
    tables.append(_intervals.table_of(intervals, "F1", "sentences"))
    systems = {name: pronouns.numbers(by_phenomenon) for name, by_phenomenon in counts.items()}
    results = {"signature": signature, "notes": [*texts.notes]}
    results.update({"not covered": missing, "systems": systems})
    results["intervals"] = _intervals.as_json(intervals)
    _tables.show(args, tables, notes, results)
