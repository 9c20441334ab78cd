"""Print accuracy on the context probe, by phenomenon and distance, beside the ceiling.

    python score.py --probe data/test.probe.jsonl sentence=sentence.out window=window.out
    python score.py --probe data/test.probe.jsonl --format json --out FILE window=window.out

Systems are outputs of fairseq-generate.  An answer is correct if it is, and no alternative is,
among the words of the hypothesis.  The last rows compare whole sentences with the references:
share of equal sentences, and length ratio.
"""

import argparse
import io
import json
import re
import sys
from typing import Dict, List, NamedTuple, Optional, Tuple

from fairseq_docmt.scoring._tables import Table, add_arguments, show

Key = Tuple[str, int]
#: what fairseq-generate shows for a word of the reference that the dictionary lacks
UNKNOWN = "<<unk>>"
#: rows for whole sentences
EQUAL, LENGTH = "equal to the reference", "length / reference"
FIELDS = {
    "line": int,
    "phenomenon": str,
    "distance": int,
    "answer": str,
    "alternatives": list,
    "ceiling": (int, float),
}


class Accuracy(NamedTuple):
    """Correct answers to the questions of one kind, and the best accuracy without context."""

    right: int
    total: int
    ceiling: float

    @property
    def rate(self) -> float:
        """Share of correct answers."""
        return self.right / self.total


class Quality(NamedTuple):
    """Whole sentences compared with their references."""

    equal: int
    sentences: int
    #: number of words in all hypotheses divided by that in the references
    length_ratio: float

    @property
    def rate(self) -> float:
        """Share of sentences that equal the reference."""
        return self.equal / self.sentences


class Output(NamedTuple):
    """Words of the best hypotheses and of the references, by line number."""

    hypotheses: Dict[int, List[str]]
    references: Dict[int, List[str]]


def read_questions(path: str) -> List[dict]:
    """Read the questions written by make_data.py, one JSON object per line.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not a question, has no wrong answers, or the file has no questions.
    """
    questions = []
    for number, line in enumerate(io.StringIO(_text(path)), start=1):
        try:
            question = json.loads(line)
        except (ValueError, RecursionError):
            question = None
        if not isinstance(question, dict) or not all(
            isinstance(question.get(name), kind) for name, kind in FIELDS.items()
        ):
            raise ValueError(f"{path}, line {number}: not a question of make_data.py")
        answer, others = question["answer"], question["alternatives"]
        if not others or answer in others:
            wrong = f"the answer {answer!r} is an alternative too" if others else "no alternatives"
            raise ValueError(
                f"{path}, line {number}: {wrong}; give each question the wrong answers, which "
                "make_data.py writes"
            )
        questions.append(question)
    if not questions:
        raise ValueError(f"{path} has no questions")
    return questions


def read_output(path: str) -> Output:
    """Read an output of fairseq-generate; only the best hypothesis of a line is used."""
    text = _text(path)
    hypotheses: Dict[int, List[str]] = {}
    for match in re.finditer(r"^H-(\d+)\t[^\t\n]*\t(.*)$", text, flags=re.M):
        hypotheses.setdefault(int(match.group(1)), match.group(2).split())
    references = re.finditer(r"^T-(\d+)\t(.*)$", text, flags=re.M)
    return Output(hypotheses, {int(m.group(1)): m.group(2).split() for m in references})


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        try:
            return stream.read()
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8; convert the file") from None


def quality(output: Output) -> Quality:
    """Compare whole sentences with their references.

    Raises:
        ValueError: references are missing.
    """
    hypotheses, references = output
    missing = sorted(hypotheses.keys() - references.keys())
    if missing or not hypotheses:
        line = missing[0] + 1 if missing else 1
        raise ValueError(f"no reference (T-) for line {line}; give the output of fairseq-generate")
    equal = sum(words == references[line] for line, words in hypotheses.items())
    written = sum(map(len, hypotheses.values()))
    wanted = sum(len(references[line]) for line in hypotheses)
    return Quality(equal, len(hypotheses), written / wanted)


def accuracy(questions: List[dict], hypotheses: Dict[int, List[str]]) -> Dict[Key, Accuracy]:
    """Compute the accuracy of answers.

    An answer is correct if it is among the words of the hypothesis and no alternative is.

    Args:
        questions: questions of a probe file.
        hypotheses: words by line number.

    Returns:
        Accuracy by (phenomenon, distance in sentences).

    Raises:
        ValueError: a line has no hypothesis.
    """
    results: Dict[Key, Accuracy] = {}
    for question in questions:
        if question["line"] not in hypotheses:
            raise ValueError(
                f"no hypothesis for line {question['line'] + 1}; generate the whole test set"
            )
        words = hypotheses[question["line"]]
        right = question["answer"] in words
        right = right and not any(word in words for word in question["alternatives"])
        key = (question["phenomenon"], question["distance"])
        old = results.get(key, Accuracy(0, 0, question["ceiling"]))
        results[key] = Accuracy(old.right + right, old.total + 1, question["ceiling"])
    return results


def pooled(results: Dict[Key, Accuracy], phenomenon: str, most: int) -> Accuracy:
    """Compute the accuracy on one phenomenon over all distances up to ``most``."""
    chosen = [
        r for (name, distance), r in results.items() if name == phenomenon and distance <= most
    ]
    return Accuracy(sum(r.right for r in chosen), sum(r.total for r in chosen), chosen[0].ceiling)


class System(NamedTuple):
    """All results of one system."""

    accuracies: Dict[Key, Accuracy]
    quality: Quality


def table(systems: Dict[str, System]) -> Table:
    """Format one column per system, one row per phenomenon and distance, and two for sentences."""
    first = next(iter(systems.values()))
    rows = []
    for (name, distance), found in sorted(first.accuracies.items()):
        rates = [system.accuracies[name, distance].rate for system in systems.values()]
        rows.append([name, str(distance), str(found.total), *_formatted(found.ceiling, *rates)])
    sentences = str(first.quality.sentences)
    equal = [system.quality.rate for system in systems.values()]
    ratios = [system.quality.length_ratio for system in systems.values()]
    rows.append([EQUAL, "", sentences, "", *_formatted(*equal)])
    rows.append([LENGTH, "", sentences, "", *_formatted(*ratios)])
    headers = ["phenomenon", "distance", "questions", "ceiling without context", *systems]
    return Table("Accuracy", headers, rows)


def _formatted(*values: float) -> List[str]:
    return [f"{value:.2f}" for value in values]


def main(arguments: Optional[List[str]] = None) -> None:
    """Print the table; report invalid options or files in one sentence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--probe", required=True, help="questions, e.g. test.probe.jsonl")
    parser.add_argument("systems", nargs="+", metavar="NAME=OUTPUT", help="fairseq-generate output")
    add_arguments(parser)
    args = parser.parse_args(arguments)
    try:
        questions = read_questions(args.probe)
        systems = {}
        for system in args.systems:
            name, separator, path = system.partition("=")
            if not separator:
                raise ValueError(f"{system}: give systems as NAME=OUTPUT")
            if name in systems:
                raise ValueError(f"two systems are named {name}")
            systems[name] = _figures_of_file(questions, path)
        _check_sentences(systems)
        show(args, [table(systems)], [], _figures(systems))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def _figures_of_file(questions: List[dict], path: str) -> System:
    try:
        output = read_output(path)
        found = System(accuracy(questions, output.hypotheses), quality(output))
        _check_references(questions, output.references)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return found


def _check_references(questions: List[dict], references: Dict[int, List[str]]) -> None:
    """Raise a ValueError if references are not right, as in an output of another test set."""
    for question in questions:
        line, answer = question["line"], question["answer"]
        words = references[line]
        wrong = next((word for word in question["alternatives"] if word in words), None)
        if wrong is not None:
            found = f"has {wrong!r} where the answer is {answer!r}"
        elif answer not in words and UNKNOWN not in words:
            found = f"lacks the answer {answer!r}"
        else:
            continue
        raise ValueError(
            f"the reference of line {line + 1} {found}; give the output for the text of the "
            "questions"
        )


def _check_sentences(systems: Dict[str, System]) -> None:
    """Raise a ValueError if the systems translated different numbers of sentences."""
    first, *others = systems
    wanted = systems[first].quality.sentences
    for name in others:
        found = systems[name].quality.sentences
        if found != wanted:
            raise ValueError(
                f"{name} has {found} sentences, {first} has {wanted}; generate the whole test set "
                "with each"
            )


def _figures(systems: Dict[str, System]) -> Dict[str, dict]:
    return {
        name: {
            "questions": [
                {"phenomenon": phenomenon, "distance": distance, **result._asdict()}
                for (phenomenon, distance), result in sorted(system.accuracies.items())
            ],
            "sentences": system.quality._asdict(),
        }
        for name, system in systems.items()
    }


if __name__ == "__main__":
    main()
