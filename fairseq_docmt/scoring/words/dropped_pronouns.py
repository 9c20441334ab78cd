r"""Measure how well the English translation restores the pronouns that a Chinese source drops.

    fairseq-docmt dropped-pronouns --source zpdev.zp.zh --reference zpdev.en \
        sentence=sentence.out memory=memory.out

Dropped pronouns must be marked in the source, as in ``<你>_S要不要去看电影``; marks without a
suffix such as ``_S`` are left out and reported.  In each sentence and for each person, the
translation adds as many pronouns as it has English forms (for example I, me, my, mine, myself) more
than the source has overt pronouns.  Added pronouns count as restored, up to the number of marked
ones.

Recall is the proportion of the marked pronouns that are restored, also over only those that the
reference restores.  Precision is the proportion of the added pronouns that restore a marked one.
English needs pronouns where nothing is marked, too, so the reference is scored for comparison.  The
F1 of each system is compared with that of the first system by bootstrap over sentences, because
corpora with marks have few documents.  With --from-reference, "it" in "it is late" counts, too.
"""

import argparse
import re
from collections import Counter
from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np

import fairseq_docmt
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import _tables
from fairseq_docmt.scoring._intervals import PROCEDURE, Counts, difference_interval, ends_of
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.texts import translations
from fairseq_docmt.scoring.texts.test_set import Translations
from fairseq_docmt.scoring.words import tags
from fairseq_docmt.scoring.words.pronouns import f1_cell, numbers

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
    **dict.fromkeys(("你", "您", "妳", "你们", "妳们"), "you"),
    "他": "he",
    "她": "she",
    **dict.fromkeys(("它", "牠"), "it"),
    **dict.fromkeys(("我们", "俺们", "咱们"), "we"),
    **dict.fromkeys(("他们", "她们", "它们", "牠们"), "they"),
}
PERSONS.update({word.replace("们", "們"): person for word, person in PERSONS.items()})
PERSON_OF_FORM = {form: person for person, forms in FORMS.items() for form in forms.split()}
#: The country, which is no form of "we".
COUNTRY = re.compile(r"\bUS\b")
MARK = re.compile(r"<([^<>]+)>(_[A-Za-z]+)?")
# The characters 他 (he) and 它 (it) are also part of 其他 and 其它 (other), 他 of 吉他 (guitar).
CHINESE = re.compile(
    r"[我俺咱][们們]|[你妳][们們]|(?<![其吉])他[们們]|她[们們]|(?<!其)[它牠][们們]|"
    r"[我俺你您妳她]|(?<![其吉])他|(?<!其)[它牠]"
)


class Restored(NamedTuple):
    """Counts of dropped and added pronouns, for one person (such as I, you, he) or for all persons.

    Attributes:
        marked: number of dropped pronouns in the source.
        found: number of dropped pronouns that the translation restores.
        produced: number of pronouns that the translation adds to the overt pronouns of the source.
        in_reference: number of dropped pronouns that the reference restores.
        found_too: number of dropped pronouns that both the reference and the translation restore.
    """

    marked: int = 0
    found: int = 0
    produced: int = 0
    in_reference: int = 0
    found_too: int = 0

    @property
    def precision(self) -> Optional[float]:
        """Proportion of the added pronouns that restore a dropped one; None if none is added."""
        return _tables.ratio(self.found, self.produced)

    @property
    def recall(self) -> Optional[float]:
        """Proportion of dropped pronouns that the translation restores; None if there are none."""
        return _tables.ratio(self.found, self.marked)

    @property
    def f1(self) -> Optional[float]:
        """Harmonic mean of precision and recall; None if ``marked`` and ``produced`` are both 0."""
        return _tables.ratio(2 * self.found, self.marked + self.produced)

    def __add__(self, other: "Restored") -> "Restored":
        return Restored(*(a + b for a, b in zip(self, other)))


class Difference(NamedTuple):
    """Difference between the F1 of a system and of the first system, with a 95 % interval.

    Attributes:
        f1: F1 of the system minus F1 of the first system.
        low, high: ends of the confidence interval; None if the test set has a single sentence.
    """

    f1: float
    low: Optional[float]
    high: Optional[float]


class Dropped(NamedTuple):
    """Numbers of dropped and overt pronouns in a source sentence.

    Attributes:
        marked: number of dropped pronouns of each person.  The persons are the keys of ``FORMS``.
        there: number of overt pronouns of each person.
        left_out: mark -> number of its occurrences, for marks that do not count: a pronoun in
            brackets without a suffix such as ``_S``, or another word with a suffix.
    """

    marked: Counter
    there: Counter
    left_out: Counter


def read_marks(sentence: str) -> Dropped:
    """Count dropped pronouns, marked as in ``<你>_S``, and overt pronouns of a source sentence."""
    marked: Counter = Counter()
    left_out: Counter = Counter()

    def count(mark) -> str:
        word, suffix = mark.groups()
        person = PERSONS.get(re.sub("自己|的", "", word))
        if person and suffix:
            marked[person] += 1
        elif person or suffix:
            left_out[mark[0]] += 1
        else:  # a title in angle brackets, for instance
            return mark[0]
        return " "

    plain = MARK.sub(count, sentence)
    there = Counter(PERSONS[word] for word in CHINESE.findall(plain))
    return Dropped(marked, there, left_out)


def produced_in(dropped: Dropped, translation: str) -> Counter:
    """Count the pronouns of each person that a translation adds to the overt ones of its source."""
    if not translation.isupper():
        translation = COUNTRY.sub(" ", translation)
    words = re.findall(r"[a-z]+", translation.lower())
    forms = Counter(PERSON_OF_FORM[word] for word in words if word in PERSON_OF_FORM)
    return forms - dropped.there


def found_in(dropped: Dropped, translation: str) -> Counter:
    """Count the dropped pronouns of each person that a translation restores.

    This is the number of pronouns that the translation adds, up to the number of dropped ones.
    """
    return produced_in(dropped, translation) & dropped.marked


def count_restored(
    sentences: Sequence[Dropped], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> Dict[str, Restored]:
    """Count the restored pronouns in the translations of a system.

    Args:
        sentences: (sentences,) dropped and overt pronouns of the source.
        hypotheses: (sentences,) translations.
        references: one or more references, each (sentences,).  For each sentence and person, the
            highest count of any reference is used.

    Returns:
        Person -> counts.  Persons without any dropped pronoun are omitted, but their counts are
        included in the entry ``all``, which is the sum over all persons.
    """
    counts = dict.fromkeys(FORMS, Restored())
    for number, dropped in enumerate(sentences):
        wanted: Counter = Counter()
        for reference in references:
            wanted |= found_in(dropped, reference[number])
        produced = produced_in(dropped, hypotheses[number])
        found = produced & dropped.marked
        for person in FORMS:
            both = min(found[person], wanted[person])
            counts[person] += Restored(
                dropped.marked[person], found[person], produced[person], wanted[person], both
            )
    total = sum(counts.values(), Restored())
    return {**{person: count for person, count in counts.items() if count.marked}, "all": total}


def f1_differences(sentences: Sequence[Dropped], texts: Translations) -> Dict[str, Difference]:
    """Compare each system's F1 with the first system's, by paired bootstrap over sentences.

    Args:
        sentences: (sentences,) dropped and overt pronouns of the source.
        texts: test set with the translations of all systems.

    Returns:
        System -> difference in F1, for all systems but the first.
    """
    counts = {name: _by_sentence(sentences, found) for name, found in texts.systems.items()}
    first, *others = counts
    return {name: Difference(*difference_interval(counts[name], counts[first])) for name in others}


def _by_sentence(sentences, hypotheses) -> Counts:
    """Return each sentence's contribution to the numerator and to the denominator of F1.

    Args:
        sentences: (sentences,) dropped and overt pronouns of the source.
        hypotheses: (sentences,) translations.

    Returns:
        Numerators: (sentences,) twice the number of restored pronouns.
        Denominators: (sentences,) number of dropped pronouns plus number of added ones.
    """
    restored, total = [], []
    for dropped, hypothesis in zip(sentences, hypotheses):
        produced = produced_in(dropped, hypothesis)
        restored.append(2 * sum((produced & dropped.marked).values()))
        total.append(sum(produced.values()) + sum(dropped.marked.values()))
    return np.array(restored), np.array(total)


def from_reference(texts: Translations) -> List[Dropped]:
    """Count the dropped and overt pronouns of each source sentence by means of the references.

    A pronoun counts as dropped if a reference has it and the source lacks it.  With several
    references, the highest count for each person is used.  Marks such as ``<你>_S`` in the source
    are ignored.

    Raises:
        UserError: no pronoun is dropped, or most source sentences are not Chinese.
    """
    chinese = sum(any("\u4e00" <= letter <= "\u9fff" for letter in text) for text in texts.source)
    if 2 * chinese < len(texts.source):
        raise UserError(
            f"the source has Chinese characters in only {chinese} of {len(texts.source)} "
            "sentences; give Chinese text as --source and English references"
        )
    sentences = []
    for source, *references in zip(texts.source, *texts.references):
        there = Dropped(Counter(), read_marks(source).there, Counter())
        marked: Counter = Counter()
        for reference in references:
            marked |= produced_in(there, reference)
        sentences.append(there._replace(marked=marked))
    if not any(dropped.marked for dropped in sentences):
        raise UserError(
            "--from-reference: no reference has an English pronoun that the source lacks"
        )
    return sentences


def marks_of(texts: Translations) -> List[Dropped]:
    """Count the dropped and the overt pronouns of each source sentence.

    In the source, dropped pronouns have been put back with marks, as in ``<你>_S``; all other
    pronouns are overt.

    Returns:
        The counts of each source sentence, see :class:`Dropped`.

    Raises:
        UserError: no pronoun is marked.
    """
    sentences = [read_marks(sentence) for sentence in texts.source]
    if not any(dropped.marked for dropped in sentences):
        raise UserError(
            "the source has no marks of dropped pronouns, such as <你>_S; without marks, give "
            "--from-reference"
        )
    return sentences


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt dropped-pronouns``."""
    translations.add_arguments(parser, source_required=True)
    parser.add_argument(
        "--from-reference",
        action="store_true",
        help="instead of marks: pronouns that the reference has and the source lacks",
    )
    tags.add_argument(parser)
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt dropped-pronouns``: count pronouns, and print or write the scores."""
    texts = translations.from_arguments(args)
    sentences = from_reference(texts) if args.from_reference else marks_of(texts)
    counts = {
        name: count_restored(sentences, found, texts.references)
        for name, found in texts.systems.items()
    }
    reference = count_restored(sentences, texts.references[0], texts.references)
    if args.tags:
        persons = [[f"dropped {person}" for person in dropped.marked] for dropped in sentences]
        tags.write(args.tags, texts, persons)
    left_out = sum((dropped.left_out for dropped in sentences), Counter())
    differences = f1_differences(sentences, texts)
    signature = _signature(texts, args.from_reference)
    notes = [*texts.notes, signature]
    if not args.from_reference:
        notes.append(_left_out_note(left_out))
    _tables.show(
        args,
        [*tables_of(counts, reference), *_table_of_differences(differences, texts)],
        notes,
        {
            "signature": signature,
            "notes": [*texts.notes],
            "systems": {name: numbers(persons) for name, persons in counts.items()},
            "differences": {name: found._asdict() for name, found in differences.items()},
            "reference": numbers(reference),
            "left_out": dict(left_out),
        },
    )


def _signature(texts: Translations, from_reference: bool) -> str:
    """Return the settings that the scores depend on, as a signature in the style of sacreBLEU.

    Args:
        texts: test set.
        from_reference: True if dropped pronouns were found by means of the references, and not by
            marks in the source.
    """
    parts = [texts.signature]
    parts += [f"nrefs:{len(texts.references)}"]
    parts += ["marks:reference"] if from_reference else []
    parts += [PROCEDURE] if len(texts.systems) > 1 else []
    return "|".join([*parts, f"version:{fairseq_docmt.__version__}"])


def tables_of(
    counts: Dict[str, Dict[str, Restored]], reference: Dict[str, Restored]
) -> List[Table]:
    """Return a table of F1, and a table of recall over the pronouns that the reference restores.

    Both tables have a row for each person and a column for each system.  The table of F1 also has a
    column for the reference.

    Args:
        counts: system -> person -> counts.
        reference: person -> counts of the reference, as if it were a system.
    """
    columns = {**counts, "(reference)": reference}
    f1 = [
        [person, str(c.marked), *(f1_cell(found[person]) for found in columns.values())]
        for person, c in reference.items()
    ]
    wanted = [
        [
            person,
            str(c.in_reference),
            *(
                _tables.percent(_tables.ratio(s[person].found_too, c.in_reference))
                for s in counts.values()
            ),
        ]
        for person, c in reference.items()
    ]
    return [
        Table("Dropped pronouns: F1 (precision/recall), %", ["person", "marked", *columns], f1),
        Table("Recall of those in the reference, %", ["person", "in reference", *counts], wanted),
    ]


def _table_of_differences(differences: Dict[str, Difference], texts: Translations) -> List[Table]:
    rows = [
        [name, f"{100 * found.f1:+.1f}", ends_of(found.low, found.high, "+")]
        for name, found in differences.items()
    ]
    first = texts.names[0]
    columns = ["system", f"F1 over {first}", "95 % interval"]
    return [Table("Differences, bootstrap over sentences", columns, rows)] if rows else []


def _left_out_note(left_out: Counter) -> str:
    marks = ", ".join(f"{mark} ({count})" for mark, count in left_out.most_common())
    return f"marks left out: {sum(left_out.values())}" + (f": {marks}" if marks else "")
