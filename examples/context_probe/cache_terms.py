r"""Measure whether a continuous cache has the right translation of a term, and matches it best.

    python cache_terms.py work/bin --path work/cache25/checkpoint_last.pt \
        --probe work/data/test.probe.jsonl

Three shares are printed over the questions about terms: the right translation is in a slot, a wrong
one is, and the slot with the highest matching probability (Tu et al. 2018, equation 5) has the
right one.  References take the place of translations.
"""

import argparse
import sys
from typing import Dict, Iterable, List, NamedTuple

import torch
from score import read_questions

from fairseq_docmt._quiet import quietly
from fairseq_docmt.analysis._documents import documents_of, load
from fairseq_docmt.analysis.cache_matching import matching_of


class Found(NamedTuple):
    """Result for one question: contents of the cache and the best match."""

    right_held: bool
    wrong_held: bool
    right_matches_best: bool


def found_for(question: dict, words: List[str], weights: List[float], index) -> Found:
    """Look up one question.

    Args:
        question: question with ``answer`` and ``alternatives``.
        words: (I,) indices of the words in the slots.
        weights: (I,) matching probabilities of the slots when the answer is produced.
        index: function from a word to its index.
    """
    best = words[max(range(len(words)), key=weights.__getitem__)]
    right = index(question["answer"])
    wrong = [index(word) for word in question["alternatives"]]
    return Found(right in words, any(word in words for word in wrong), best == right)


def look_up(model, task, split: str, questions: Iterable[dict]) -> List[Found]:
    """Look up all questions about terms of a split.

    Raises:
        ValueError: there are none, or they are about another text.
    """
    asked: Dict[int, dict] = {q["line"]: q for q in questions if q["phenomenon"] == "term"}
    if not asked:
        raise ValueError("--probe has no questions about terms; make data with --phenomena term")
    index, found = task.target_dictionary.index, []
    for document in documents_of(task, split):
        cache, weights = matching_of(model, document)
        for row, line in enumerate(document.sample["id"].tolist()):
            if line not in asked:
                continue
            answer = document.sample["target"][row].eq(index(asked[line]["answer"]))
            if not answer.any():
                raise ValueError(
                    f"line {line + 1} of {split} lacks the answer {asked[line]['answer']!r}; give "
                    "the questions of this split as --probe"
                )
            place = int(torch.nonzero(answer)[0])
            slots = (cache.words[row].tolist(), weights[row, place].tolist())
            found.append(found_for(asked.pop(line), *slots, index))
    if asked:
        raise ValueError(
            f"{split} has no sentence in line {min(asked) + 1}; give the questions of this split "
            "as --probe"
        )
    return found


def main() -> None:
    """Print a table of the questions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="binarised corpus")
    parser.add_argument("--path", required=True, help="checkpoint of cache_rnn")
    parser.add_argument("--probe", required=True, help="questions of the split")
    parser.add_argument("--split", default="test", help="default: test")
    args = parser.parse_args()
    try:
        with quietly():
            found = look_up(*load(args.path, args.data), args.split, read_questions(args.probe))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"{len(found)} questions about terms")
    for name, values in zip(Found._fields, zip(*found)):
        print(f"{name.replace('_', ' ')}: {sum(values) / len(values):.2f}")


if __name__ == "__main__":
    main()
