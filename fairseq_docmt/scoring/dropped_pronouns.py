"""Are pronouns that the Chinese source drops there in the English translation?

    python -m fairseq_docmt.scoring dropped-pronouns --source zpdev.zp.zh --reference zpdev.en \\
        sentence=sentence.out memory=memory.out

Of the source, dropped pronouns are marked as in ``<你>_S要不要去看电影``.  A sentence has found as
many of its dropped pronouns of a person as its translation has forms of that person (I, me, my,
mine, myself) beyond the pronouns of that person that its source does have.  Recall is given over
all marks, and over those that the reference found by the same count: often it says things in
another way.
"""

import argparse
import re
from collections import Counter
from typing import Dict, List, NamedTuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import _tables, translations
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.translations import Translations

#: English forms of a person, as words between letters of other kinds: "it's" is it and s.
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
# The character for "he" is also part of 其他 (other) and 吉他 (guitar).
CHINESE = re.compile(r"我们|咱们|你们|(?<![其吉])他们|她们|它们|[我俺你您妳她它牠]|(?<![其吉])他")


class Recall(NamedTuple):
    """Dropped pronouns of a person.

    Attributes:
        marked: in the source.
        found: of these, in the translation.
        in_reference: of the marked ones, in the reference.
        found_too: of those in the reference, in the translation.
    """

    marked: int
    found: int
    in_reference: int
    found_too: int

    def __add__(self, other: "Recall") -> "Recall":
        return Recall(*(a + b for a, b in zip(self, other)))


class Dropped(NamedTuple):
    """Pronouns of a source sentence by person."""

    marked: Counter
    there: Counter


def read_marks(sentence: str) -> Dropped:
    """Pronouns of a marked sentence.

    Raises:
        ValueError: a mark holds no pronoun that is known.
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
    """How many of the dropped pronouns a translation has, by person."""
    words = re.findall(r"[a-z]+", translation.lower())
    forms = Counter(PERSON_OF_FORM[word] for word in words if word in PERSON_OF_FORM)
    return (forms - dropped.there) & dropped.marked


def recall_by_person(texts: Translations) -> Dict[str, Dict[str, Recall]]:
    """Recall of each system: system -> person -> counts.

    Args:
        texts: with a marked source.  Of several references the one with the most counts.

    Raises:
        UserError: nothing is marked, or a mark holds no pronoun that is known.
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
    for row, sentence in zip(texts.index.rows.tolist(), texts.source):
        try:
            sentences.append(read_marks(sentence))
        except ValueError as error:
            raise UserError(
                f"--source, line {row + 1}: the mark {error} holds none of {' '.join(PERSONS)}"
            ) from None
    if not any(dropped.marked for dropped in sentences):
        raise UserError("the source marks no dropped pronoun, as <你>_S would be one")
    return sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    translations.add_arguments(parser, source_required=True)
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Read, count, show."""
    results = recall_by_person(translations.from_arguments(args))
    totals = {name: sum(c.values(), Recall(0, 0, 0, 0)) for name, c in results.items()}
    counts = {name: {**results[name], "all": totals[name]} for name in results}
    _tables.show(args, tables_of(counts), [], _as_json(counts))


def tables_of(counts: Dict[str, Dict[str, Recall]]) -> List[Table]:
    """Recall over all marks and over those that the reference has."""
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
