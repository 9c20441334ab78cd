r"""Measure the recall of pronouns that the Chinese source drops in the English translation.

    python -m fairseq_docmt.scoring dropped-pronouns --source zpdev.zp.zh --reference zpdev.en \
        sentence=sentence.out memory=memory.out

Dropped pronouns are marked in the source, as in ``<你>_S要不要去看电影``.  The English forms of a
person (I, me, my, mine, myself) in the translation are counted, and the pronouns of that person
that the source does have are subtracted.  The rest, up to the number of marks, is recalled.  Recall
is given over all marks, and over the marks that the reference recalls by the same count: references
often use another construction.
"""

import argparse
import re
from collections import Counter
from typing import Dict, List, NamedTuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import _tables, translations
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.translations import Translations

#: English forms of each person.  Words are maximal runs of letters: "it's" is "it" and "s".
FORMS = {
    "I": "i me my mine myself",
    "you": "you your yours yourself yourselves ya",
    "he": "he him his himself",
    "she": "she her hers herself",
    "it": "it its itself",
    "we": "we us our ours ourselves",
    "they": "they them their theirs themselves em",
}
PERSONS = {
    **dict.fromkeys(("我", "俺"), "I"),
    **dict.fromkeys(("你", "您", "妳", "你们"), "you"),
    "他": "he",
    "她": "she",
    **dict.fromkeys(("它", "牠"), "it"),
    **dict.fromkeys(("我们", "咱们"), "we"),
    **dict.fromkeys(("他们", "她们", "它们"), "they"),
}
PERSON_OF_FORM = {form: person for person, forms in FORMS.items() for form in forms.split()}
MARK = re.compile(r"<([^<>]+)>(?:_[A-Za-z]+)?")
# The character 他 (he) is also part of 其他 (other) and 吉他 (guitar).
CHINESE = re.compile(r"我们|咱们|你们|(?<![其吉])他们|她们|它们|[我俺你您妳她它牠]|(?<![其吉])他")


class Recall(NamedTuple):
    """Counts of the dropped pronouns of a person.

    Attributes:
        marked: marks in the source.
        found: marked pronouns that the translation has.
        in_reference: marked pronouns that the reference has.
        found_too: pronouns in the reference that the translation has as well.
    """

    marked: int
    found: int
    in_reference: int
    found_too: int

    def __add__(self, other: "Recall") -> "Recall":
        return Recall(*(a + b for a, b in zip(self, other)))


class Dropped(NamedTuple):
    """Pronouns of a source sentence, counted by person.

    Attributes:
        marked: dropped pronouns.
        there: pronouns that the sentence does have.
    """

    marked: Counter
    there: Counter


def read_marks(sentence: str) -> Dropped:
    """Count the pronouns of a marked sentence.

    Raises:
        ValueError: a mark holds an unknown pronoun.
    """
    marked: Counter = Counter()
    for pronoun in MARK.findall(sentence):
        plain = re.sub("自己|的", "", pronoun)
        if plain not in PERSONS:
            raise ValueError(pronoun)
        marked[PERSONS[plain]] += 1
    there = Counter(PERSONS[word] for word in CHINESE.findall(MARK.sub("", sentence)))
    return Dropped(marked, there)


def found_in(dropped: Dropped, translation: str) -> Counter:
    """Count the dropped pronouns that a translation has, by person."""
    words = re.findall(r"[a-z]+", translation.lower())
    forms = Counter(PERSON_OF_FORM[word] for word in words if word in PERSON_OF_FORM)
    return (forms - dropped.there) & dropped.marked


def recall_by_person(texts: Translations) -> Dict[str, Dict[str, Recall]]:
    """Count the recalled pronouns of each system: system -> person -> counts.

    Args:
        texts: translations with a marked source.  With several references, the highest count of
            each person is used.

    Raises:
        UserError: nothing is marked, or a mark holds an unknown pronoun.
    """
    sentences = _dropped(texts)
    results: Dict[str, Dict[str, Recall]] = {}
    for name, hypotheses in texts.systems.items():
        counts = dict.fromkeys(FORMS, Recall(0, 0, 0, 0))
        for number, dropped in enumerate(sentences):
            wanted: Counter = Counter()
            for reference in texts.references:
                wanted |= found_in(dropped, reference[number])
            found = found_in(dropped, hypotheses[number])
            for person, marked in dropped.marked.items():
                both = min(found[person], wanted[person])
                counts[person] += Recall(marked, found[person], wanted[person], both)
        results[name] = {person: count for person, count in counts.items() if count.marked}
    return results


def _dropped(texts: Translations) -> List[Dropped]:
    sentences = []
    for row, sentence in zip(texts.index.line_ids.tolist(), texts.source):
        try:
            sentences.append(read_marks(sentence))
        except ValueError as error:
            raise UserError(
                f"--source, line {row + 1}: the mark {error} is not one of {' '.join(PERSONS)}"
            ) from None
    if not any(dropped.marked for dropped in sentences):
        raise UserError("the source has no marks of dropped pronouns, such as <你>_S")
    return sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    translations.add_arguments(parser, source_required=True)
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    results = recall_by_person(translations.from_arguments(args))
    totals = {name: sum(c.values(), Recall(0, 0, 0, 0)) for name, c in results.items()}
    counts = {name: {**results[name], "all": totals[name]} for name in results}
    _tables.show(args, tables_of(counts), [], _as_json(counts))


def tables_of(counts: Dict[str, Dict[str, Recall]]) -> List[Table]:
    """Return tables of recall over all marks and over the marks that the reference recalls."""
    first = next(iter(counts.values()))
    marked = [
        [person, str(c.marked), *(_percent(s[person].found, c.marked) for s in counts.values())]
        for person, c in first.items()
    ]
    wanted = [
        [
            person,
            str(c.in_reference),
            *(_percent(s[person].found_too, c.in_reference) for s in counts.values()),
        ]
        for person, c in first.items()
    ]
    return [
        Table("Recall of marked pronouns, %", ["person", "marked", *counts], marked),
        Table("Of those in the reference, %", ["person", "in reference", *counts], wanted),
    ]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _as_json(counts: Dict[str, Dict[str, Recall]]) -> dict:
    return {
        name: {person: recall._asdict() for person, recall in persons.items()}
        for name, persons in counts.items()
    }
