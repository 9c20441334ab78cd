"""Measure how much a model uses its context: CXMI of references (Fernandes et al., 2021), in bits.

Conditional cross-mutual information (CXMI) is the gain in log-probability of a reference through
context, ``log2 p(y | x, context) - log2 p(y | x)``, averaged over sentences.  The same gain for
single tokens is called pointwise CXMI.  Positive values mean that context helps.  Without context
each sentence is scored as a document of its own, by the same model or by that of --baseline.  The
end-of-sentence symbol is not counted.
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
    """A parallel corpus with document boundaries.

    Attributes:
        index: document of each sentence.
        source, target: (sentences,)
    """

    index: DocumentIndex
    source: List[str]
    target: List[str]

    def with_context(self, sentences: int) -> List[Tuple[List[str], List[str]]]:
        """Return for each sentence a document of itself and up to ``sentences`` previous ones."""
        position = self.index.position
        spans = [(i - min(position[i], sentences), i + 1) for i in range(len(self.source))]
        return [(self.source[a:b], self.target[a:b]) for a, b in spans]

    def whole(self) -> List[Tuple[List[str], List[str]]]:
        """Return the source and target sentences of each document."""
        starts = self.index.starts.tolist()
        return [(self.source[a:b], self.target[a:b]) for a, b in zip(starts, starts[1:])]


class Scores(NamedTuple):
    """Log-probabilities of the tokens of a sentence, to base 2.

    Attributes:
        words: (n,) tokens.
        bits: (n,) log-probability of each token.
    """

    words: List[str]
    bits: np.ndarray


class Usage(NamedTuple):
    """Gain through context, in bits.

    Attributes:
        sentence: mean over sentences, CXMI.
        low, high: 95 % confidence interval of ``sentence``, by bootstrap over sentences.
        token: mean over tokens.
    """

    sentence: float
    low: float
    high: float
    token: float


def read_documents(source: str, reference: str) -> Documents:
    """Read a parallel corpus: one sentence per line, blank lines between documents.

    Raises:
        UserError: a file is missing or empty, or the files are not line-aligned.
    """
    sides = [read_lines(path) for path in (source, reference)]
    if len(sides[0]) != len(sides[1]):
        raise UserError(f"{source} has {len(sides[0])} lines, but {reference} has {len(sides[1])}")
    for number, pair in enumerate(zip(*sides), start=1):
        if bool(pair[0]) != bool(pair[1]):
            raise UserError(f"line {number} is blank in only one of {source} and {reference}")
    index = DocumentIndex.from_sizes([2 if line else 1 for line in sides[0]])
    return Documents(index, *([lines[row] for row in index.line_ids] for lines in sides))


def score(scorer: ReferenceScorer, documents: Documents, context: str) -> List[Scores]:
    """Score all reference sentences.

    Args:
        scorer: scorer of the model.
        documents: B documents.
        context: number of previous sentences, or ``all`` to score whole documents with the context
            that the model has in decoding.
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
    """Compute the CXMI of sentences that were scored without and with context."""
    gains = [w.bits - wo.bits for wo, w in zip(without, with_context)]
    sums = np.array([gain.sum() for gain in gains])
    low = high = float(sums.mean())
    if len(sums) > 1 and sums.std() > 0:
        low, high = bootstrap(
            (sums,), np.mean, n_resamples=1000, method="percentile", rng=0
        ).confidence_interval
    return Usage(float(sums.mean()), float(low), float(high), float(np.concatenate(gains).mean()))


def by_word(without: Sequence[Scores], with_context: Sequence[Scores]) -> Dict[str, List[float]]:
    """Compute the pointwise CXMI of each occurrence of each token, in bits."""
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
    add("--source", required=True, metavar="FILE", help="source, blank lines between documents")
    add("--reference", required=True, metavar="FILE", help="reference translation")
    add(
        "--context",
        nargs="+",
        default=[ALL],
        metavar="K",
        help="numbers of previous sentences, or all: what the model sees in decoding; default: all",
    )
    add("--words", type=int, default=15, help="number of tokens to show, by their mean gain")
    add("--least", type=int, default=10, help="minimum occurrences of a token to be shown")
    add_model_arguments(parser)
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    for context in args.context:
        if context != ALL and not (context.isdecimal() and int(context) > 0):
            raise UserError(f"--context {context}: give positive numbers of sentences, or {ALL}")
    documents = read_documents(args.source, args.reference)
    scorer = scorer_of(args.path, args)
    base = scorer_of(args.baseline, args) if args.baseline else scorer
    if not base.task.target_dictionary == scorer.task.target_dictionary:
        raise UserError("the models of --baseline and --path have different target dictionaries")
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
