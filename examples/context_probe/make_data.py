"""Write the context probe: a parallel corpus with words that can only be translated with context.

    python make_data.py --out data

Each sentence has at most one word that depends on context.  With n forms, the correct one is drawn
uniformly and independently of the sentence, so without context at most 1 / n of the answers can be
correct.  score.py prints this ceiling.
"""

import argparse
import json
import os
import random
import sys
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from language import (
    ARTICLES,
    CEILINGS,
    CUES,
    ELIDED,
    GREETINGS,
    ONE_SIDED,
    PHENOMENA,
    PRONOUN,
    PRONOUNS,
    YOU,
    YOUS,
    Vocabulary,
    build_vocabulary,
)

# A stem has three of 65 syllables; up to this number of words, random stems are rarely repeated.
MOST_WORDS = 50000


class Question(NamedTuple):
    """A word that depends on context.

    Attributes:
        phenomenon: name of the phenomenon.
        distance: number of sentences back to the nearest one whose translation shows the answer;
            for formality to the greeting, although answers before it show it as well.
        distance_to_first: number of sentences back to the one whose source shows it.  For terms
            with more than two mentions it is larger than ``distance``; a system without target
            context must reach this far.
        answer: correct form.
        alternatives: other forms.
    """

    phenomenon: str
    distance: int
    distance_to_first: int
    answer: str
    alternatives: tuple


class Sentence(NamedTuple):
    """A sentence pair with its question, if any.

    Attributes:
        source, target: words.
        special: positions of the words that are no fillers: (of the source, of the target).
        question: word that depends on context.
    """

    source: List[str]
    target: List[str]
    special: Tuple[range, range]
    question: Optional[Question]


class DocumentWriter:
    """Generator of a random document.

    A document is a sequence of episodes: one sentence that shows an answer, ``d - 1`` plain
    sentences, and one sentence with the question.  Plain sentences have no nouns, action verbs or
    terms, so the nearest such word before a question is the one it refers to.

    Args:
        vocabulary: words.
        options: options of the command line.
        generator: random number generator.
    """

    def __init__(self, vocabulary: Vocabulary, options, generator: random.Random):
        self.vocabulary, self.options, self.random = vocabulary, options, generator
        self.form = generator.randrange(2)
        self.sentences: List[Sentence] = []
        self.renderings: dict = {}
        self.first_mention: dict = {}
        self.last_mention: dict = {}
        self.told: dict = {}

    def write(self) -> List[Sentence]:
        """Write the document with ``sentences_per_document`` sentences."""
        self._greet()
        while len(self.sentences) < self.options.sentences_per_document:
            left = self.options.sentences_per_document - len(self.sentences)
            fitting = [d for d in self.options.distances if d < left]
            phenomenon = self.random.choice(self.options.phenomena)
            if not fitting:
                self._plain(1)
            elif phenomenon == "formality":
                self._address()
            elif phenomenon in ONE_SIDED:
                self._ask_one_sided(phenomenon)
            else:
                getattr(self, f"_{phenomenon}")(self.random.choice(fitting))
        return self.sentences

    # ---- episodes --------------------------------------------------------------------------------

    def _greet(self) -> None:
        source, target = GREETINGS[self.form]
        self._say([source], [target])
        if "formality" in self.options.phenomena:
            # Most later questions are far from the greeting.  Without a near one in each document,
            # a system with a short window would hardly ever see greeting and question together.
            self._plain(self.random.choice(self.options.distances) - 1)
            self._address()
        for phenomenon in ONE_SIDED:
            if phenomenon in self.options.phenomena:
                tells, _, _ = ONE_SIDED[phenomenon]
                form = self.random.randrange(2)
                self.told[phenomenon] = (form, len(self.sentences))
                self._say([tells[form][0]], [tells[form][1]])
                self._plain(self.random.choice(self.options.distances) - 1)
                self._ask_one_sided(phenomenon)

    def _ask_one_sided(self, phenomenon: str) -> None:
        form, place = self.told[phenomenon]
        _, asks, forms = ONE_SIDED[phenomenon]
        distance = len(self.sentences) - place
        question = Question(phenomenon, distance, distance, forms[form], (forms[1 - form],))
        self._say([asks], [forms[form]], question)

    def _address(self) -> None:
        answer = YOUS[self.form]
        others = tuple(word for word in YOUS if word != answer)
        distance = len(self.sentences)
        question = Question("formality", distance, distance, answer, others)
        self._say([YOU], [answer], question)

    def _pronoun(self, distance: int) -> None:
        # Draw the gender first, so that all genders are equally frequent.
        gender = self.random.randrange(3)
        nouns = [word for word, (_, g) in self.vocabulary.nouns.items() if g == gender]
        noun = self.random.choice(nouns)
        self._say([noun], [ARTICLES[gender], self.vocabulary.nouns[noun][0]])
        self._plain(distance - 1)
        others = tuple(word for i, word in enumerate(PRONOUNS) if i != gender)
        question = Question("pronoun", distance, distance, PRONOUNS[gender], others)
        self._say([PRONOUN], [PRONOUNS[gender]], question)

    def _ellipsis(self, distance: int) -> None:
        verb, target = self.random.choice(list(self.vocabulary.verbs.items()))
        self._say([verb], [target])
        self._plain(distance - 1)
        others = tuple(t for t in self.vocabulary.verbs.values() if t != target)
        question = Question("ellipsis", distance, distance, target, others)
        self._say([ELIDED], [target], question)

    def _term(self, distance: int) -> None:
        term = self.random.choice(list(self.vocabulary.terms))
        forms = self.vocabulary.terms[term]
        if term not in self.renderings:
            self.renderings[term] = self.random.randrange(2)
            cue, cue_target = CUES[self.renderings[term]]
            self._say([cue, term], [cue_target, forms[self.renderings[term]]])
            self.first_mention[term] = self.last_mention[term] = len(self.sentences) - 1
            self._plain(distance - 1)
        chosen = self.renderings[term]
        here = len(self.sentences)
        distance, to_first = here - self.last_mention[term], here - self.first_mention[term]
        question = Question("term", distance, to_first, forms[chosen], (forms[1 - chosen],))
        self.last_mention[term] = here
        self._say([term], [forms[chosen]], question)

    def _plain(self, count: int) -> None:
        for _ in range(count):
            self._say([], [])

    def _say(self, source: list, target: list, question: Optional[Question] = None) -> None:
        """Add a sentence: the given words among two to four fillers."""
        fillers = self.random.choices(list(self.vocabulary.fillers), k=self.random.randint(2, 4))
        place = self.random.randrange(len(fillers) + 1)
        translated = [self.vocabulary.fillers[word] for word in fillers]
        # Swap the first two fillers in the target, so that word order differs between the sides.
        translated[:2] = translated[1::-1]
        self.sentences.append(
            Sentence(
                fillers[:place] + source + fillers[place:],
                translated[:place] + target + translated[place:],
                (range(place, place + len(source)), range(place, place + len(target))),
                question,
            )
        )


def write_split(folder: Path, split: str, documents: List[List[Sentence]]) -> None:
    """Write both sides of a split, supporting words and, except for training, questions.

    Questions are written twice: by line number, and as a contrastive set with the true context.
    """
    sides: dict = {"src": [], "tgt": []}
    questions, items, supporting, line = [], [], [], 0
    for document in documents:
        if line > 0:
            sides["src"].append("")
            sides["tgt"].append("")
            line += 1
        for number, sentence in enumerate(document):
            sides["src"].append(" ".join(sentence.source))
            sides["tgt"].append(" ".join(sentence.target))
            if sentence.question is not None:
                row = {"line": line, **sentence.question._asdict()}
                row["ceiling"] = CEILINGS[sentence.question.phenomenon]
                questions.append(json.dumps(row))
                items.append(json.dumps(contrastive_item(document[: number + 1])))
                words = supporting_words(document[: number + 1], line)
                supporting.append(json.dumps(words))
            line += 1
    for side, lines in sides.items():
        _write(folder / f"{split}.{side}", lines)
    _write(folder / f"{split}.src-tgt.supporting.jsonl", supporting)
    if split != "train":
        _write(folder / f"{split}.probe.jsonl", questions)
        _write(folder / f"{split}.contrastive.jsonl", items)


def supporting_words(document: List[Sentence], line: int) -> dict:
    """Return the words that show the answer to the question of the last sentence.

    Args:
        document: document up to the question.
        line: its line.
    """
    question = document[-1].question
    first, nearest = (
        document[-1 - distance].special
        for distance in (question.distance_to_first, question.distance)
    )
    source, target = document[-1].special
    return {
        "line": line,
        "source": list(source),
        "target": list(target),
        "supporting_source": {line - question.distance_to_first: list(first[0])},
        "supporting_target": {line - question.distance: list(nearest[1])},
    }


def contrastive_item(document: List[Sentence]) -> dict:
    """Return the question of the last sentence, with its document, as a contrastive item."""
    *context, last = document
    before = [" ".join(sentence.target) for sentence in context]
    answer, *others = (last.question.answer, *last.question.alternatives)
    candidates = [
        [*before, " ".join(form if word == answer else word for word in last.target)]
        for form in (answer, *others)
    ]
    return {
        "source": [" ".join(sentence.source) for sentence in document],
        "candidates": candidates,
        "correct": 0,
        "labels": {"phenomenon": last.question.phenomenon, "distance": last.question.distance},
    }


def _write(path: Path, lines: List[str]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    os.replace(partial, path)


class _HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Formatter that keeps the lines of the description and adds defaults."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:
        """Report an invalid option in one sentence, without usage text, and exit with status 1."""
        raise ValueError(message)


def parse_args(arguments: Optional[List[str]] = None) -> argparse.Namespace:
    """Parse the command line; distances and phenomena become lists.

    Raises:
        ValueError: an option has an invalid value; the message is one sentence.
    """
    parser = _Parser(description=__doc__, formatter_class=_HelpFormatter)
    add = parser.add_argument
    add("--out", required=True, default=argparse.SUPPRESS, help="folder to write to")
    add("--seed", type=int, default=1, help="random seed for vocabulary and documents")
    add("--train-documents", type=int, default=2000, help="documents of train")
    add("--valid-documents", type=int, default=50, help="documents of valid")
    add("--test-documents", type=int, default=200, help="documents of test")
    add("--sentences-per-document", type=int, default=12, help="sentences of a document")
    add("--nouns", type=int, default=12, help="number of nouns, a multiple of 3")
    add("--fillers", type=int, default=20, help="number of filler words")
    add("--terms", type=int, default=4, help="number of terms")
    add("--distances", default="1,2,3", help="distances of answers, in sentences")
    add("--phenomena", default=",".join(PHENOMENA), help=f"others: {', '.join(ONE_SIDED)}")
    args = parser.parse_args(arguments)
    try:
        args.distances = [int(distance) for distance in args.distances.split(",")]
    except ValueError:
        raise ValueError(f"--distances must be numbers like 1,2,3, got {args.distances}") from None
    args.phenomena = args.phenomena.split(",")
    _check(args)
    return args


def _check(args: argparse.Namespace) -> None:
    for name in ("phenomena", "distances"):
        found = getattr(args, name)
        if len({*found}) < len(found):
            raise ValueError(f"--{name} has a value twice; leave one")
    for phenomenon in args.phenomena:
        if phenomenon not in CEILINGS:
            raise ValueError(f"--phenomena: no {phenomenon!r}; choose from {', '.join(CEILINGS)}")
    if min(args.distances) < 1:
        raise ValueError(f"--distances must be at least 1 sentence, got {min(args.distances)}")
    longest = max(args.distances)
    needed = max(longest + 2, _longest_opening(args.phenomena, longest))
    if needed > args.sentences_per_document:
        raise ValueError(
            f"--sentences-per-document {args.sentences_per_document} is too short for --distances "
            f"up to {longest}; give at least {needed}"
        )
    words = args.nouns + args.fillers + args.terms
    if words > MOST_WORDS:
        raise ValueError(f"--nouns, --fillers and --terms make {words} words, over {MOST_WORDS}")
    if args.nouns < 3 or args.nouns % 3 or args.terms < 1 or args.fillers < 2:
        raise ValueError("--nouns must be a multiple of 3, --terms at least 1, --fillers 2")
    if args.seed < 0:  # Python would take it for a positive one
        raise ValueError(f"--seed must not be negative, got {args.seed}")
    for split in ("train", "valid", "test"):
        if getattr(args, f"{split}_documents") < 1:
            raise ValueError(f"--{split}-documents must be at least 1")


def _longest_opening(phenomena: List[str], distance: int) -> int:
    """Return the most sentences that ``DocumentWriter._greet`` writes."""
    one_sided = sum(phenomenon in phenomena for phenomenon in ONE_SIDED)
    return 1 + distance * ("formality" in phenomena) + (distance + 1) * one_sided


def main(arguments: Optional[List[str]] = None) -> None:
    """Write the corpus; report an invalid option or folder in one sentence."""
    try:
        args = parse_args(arguments)
        write_corpus(args)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"wrote train, valid and test to {args.out}")


def write_corpus(args: argparse.Namespace) -> None:
    """Write all splits.

    Args:
        args: from :func:`parse_args`.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = build_vocabulary(args.nouns, args.fillers, args.terms, args.seed)
    for split in ("train", "valid", "test"):
        generator = random.Random(f"{args.seed} {split}")
        documents = [
            DocumentWriter(vocabulary, args, generator).write()
            for _ in range(getattr(args, f"{split}_documents"))
        ]
        write_split(folder, split, documents)


if __name__ == "__main__":
    main()
