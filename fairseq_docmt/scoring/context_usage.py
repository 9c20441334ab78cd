"""How much of its context does a model use?  CXMI of references (Fernandes et al., 2021), in bits.

The conditional cross-mutual information is what context adds to the log-probability of a reference,
``log2 p(y | x, context) - log2 p(y | x)``: the mean over sentences, and the same for single tokens
(pointwise CXMI).  Above zero, context helps.  Without context each sentence is scored as a document
of its own, by the same model or by that of --baseline.  What ends a sentence is not counted.
"""

import argparse
import math
from collections import defaultdict
from typing import Dict, List, NamedTuple, Sequence, Tuple

import numpy as np
from scipy.stats import bootstrap

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import _tables
from fairseq_docmt.scoring._files import read_lines
from fairseq_docmt.scoring.reference_scores import ReferenceScorer, add_model_arguments, scorer_of

ALL = "all"


class Documents(NamedTuple):
    """A parallel corpus.

    Attributes:
        index: which sentence belongs to which document.
        source, target: (sentences,)
    """

    index: DocumentIndex
    source: List[str]
    target: List[str]

    def with_context(self, sentences: int) -> List[Tuple[List[str], List[str]]]:
        """For each sentence a document of it and at most so many sentences before it."""
        position = self.index.position
        spans = [(i - min(position[i], sentences), i + 1) for i in range(len(self.source))]
        return [(self.source[a:b], self.target[a:b]) for a, b in spans]

    def whole(self) -> List[Tuple[List[str], List[str]]]:
        """The documents as they are."""
        starts = self.index.starts.tolist()
        return [(self.source[a:b], self.target[a:b]) for a, b in zip(starts, starts[1:])]


class Scores(NamedTuple):
    """Log-probabilities of the words of a sentence, to base 2.

    Attributes:
        words: (n,) tokens.
        bits: (n,)
    """

    words: List[str]
    bits: np.ndarray


class Usage(NamedTuple):
    """What a context adds, in bits.

    Attributes:
        sentence: mean over sentences, CXMI.
        low, high: its 95 % interval, by bootstrap over sentences.
        token: mean over tokens.
    """

    sentence: float
    low: float
    high: float
    token: float


def read_documents(source: str, reference: str) -> Documents:
    """Read a parallel corpus with a sentence per line, blank lines between documents.

    Raises:
        UserError: a file is missing or empty, or their lines do not belong together.
    """
    sides = [read_lines(path) for path in (source, reference)]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{source} has {len(sides[0])} lines, but {reference} {len(sides[1])}")
    for number, pair in enumerate(zip(*sides), start=1):
        if bool(pair[0]) != bool(pair[1]):
            raise UserError(f"line {number} is blank in one of {source} and {reference} alone")
    index = DocumentIndex.from_sizes([2 if line else 1 for line in sides[0]])
    return Documents(index, *([lines[row] for row in index.rows] for lines in sides))


def score(scorer: ReferenceScorer, documents: Documents, context: str) -> List[Scores]:
    """Scores of all sentences.

    Args:
        scorer: of the model.
        documents: B of them.
        context: number of sentences before each, or ``all`` for whole documents, of which the model
            sees what it sees in decoding.
    """
    if context == ALL:
        found = scorer.sentence_scores(documents.whole())
    else:
        found = scorer.sentence_scores(documents.with_context(int(context)), last_only=True)
    dictionary = scorer.task.target_dictionary
    return [
        Scores([dictionary[t] for t in tokens[:-1]], scores[:-1].numpy() / math.log(2))
        for sentences in found
        for tokens, scores in sentences
    ]


def usage(without: Sequence[Scores], with_context: Sequence[Scores]) -> Usage:
    """CXMI of the same sentences scored without context and with it."""
    gains = [w.bits - wo.bits for wo, w in zip(without, with_context)]
    sums = np.array([gain.sum() for gain in gains])
    low = high = float(sums.mean())
    if len(sums) > 1 and sums.std() > 0:
        low, high = bootstrap(
            (sums,), np.mean, n_resamples=1000, method="percentile", rng=0
        ).confidence_interval
    return Usage(float(sums.mean()), float(low), float(high), float(np.concatenate(gains).mean()))


def by_word(without: Sequence[Scores], with_context: Sequence[Scores]) -> Dict[str, List[float]]:
    """What context adds to each occurrence of each token, in bits: pointwise CXMI."""
    found: Dict[str, List[float]] = defaultdict(list)
    for one, other in zip(without, with_context):
        for word, gain in zip(one.words, other.bits - one.bits):
            found[word].append(float(gain))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("--path", required=True, help="checkpoint, or several joined by ':'")
    add("--baseline", metavar="PATH", help="scores sentences without context; default: --path")
    add("--source", required=True, metavar="FILE", help="documents, blank lines between them")
    add("--reference", required=True, metavar="FILE", help="their translation")
    add(
        "--context",
        nargs="+",
        default=[ALL],
        metavar="K",
        help="sentences before each one to give; default: all that the model sees in decoding",
    )
    add("--words", type=int, default=15, help="tokens to show, those with the highest mean")
    add("--least", type=int, default=10, help="occurrences that a token must have to be shown")
    add_model_arguments(parser)
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    for context in args.context:
        if context != ALL and not (context.isdecimal() and int(context) > 0):
            raise UserError(f"--context {context}: give numbers of sentences from 1, or {ALL}")
    documents = read_documents(args.source, args.reference)
    scorer = scorer_of(args.path, args)
    base = scorer_of(args.baseline, args) if args.baseline else scorer
    if not base.task.target_dictionary == scorer.task.target_dictionary:
        raise UserError("--baseline has another target dictionary than --path")
    without = score(base, documents, "0")
    found = {context: score(scorer, documents, context) for context in args.context}
    used = {context: usage(without, scores) for context, scores in found.items()}
    words = by_word(without, found[args.context[-1]])
    best = sorted(
        (word for word, gains in words.items() if len(gains) >= args.least),
        key=lambda word: -np.mean(words[word]),
    )[: args.words]
    tables = [
        _tables.Table("context usage", ["context", *_HEADERS], [_row(*x) for x in used.items()]),
        _tables.Table(
            f"tokens that gain most (context {args.context[-1]})",
            ["token", "occurrences", "bits each"],
            [[word, str(len(words[word])), f"{np.mean(words[word]):.2f}"] for word in best],
        ),
    ]
    notes = [f"sentences:{len(without)}|tokens:{sum(len(s.words) for s in without)}|base:2"]
    results = {
        "usage": {context: value._asdict() for context, value in used.items()},
        "sentences": [
            {
                "words": one.words,
                "without": one.bits.tolist(),
                **{context: scores[number].bits.tolist() for context, scores in found.items()},
            }
            for number, one in enumerate(without)
        ],
    }
    _tables.show(args, tables, notes, results)


_HEADERS = ["CXMI, bits a sentence", "95 %", "bits a token"]


def _row(context: str, found: Usage) -> List[str]:
    interval = f"{found.low:.3f} to {found.high:.3f}"
    return [context, f"{found.sentence:.3f}", interval, f"{found.token:.4f}"]
