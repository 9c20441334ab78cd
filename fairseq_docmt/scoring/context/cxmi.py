"""Measure how much a model uses its context: CXMI of references (Fernandes et al., 2021).

    fairseq-docmt cxmi --path checkpoint_best.pt --source test.zh --reference test.en --context 1 3

Conditional cross-mutual information (CXMI) is the gain in log-probability of a reference due to
context, ``log p(y | x, context) - log p(y | x)``.  Two definitions are reported:

  bits per sentence  base-2 logarithm, summed over the tokens of a sentence without its end symbol,
                     averaged over sentences; also averaged over all tokens
  as published       as in the authors' code: natural logarithm, averaged over the tokens of a
                     sentence with its end symbol, then over sentences; an end symbol is left out
                     if it is <sep> with context and </s> without

Without context, each sentence is scored as a document of its own.  A model that gains as much with
--context other-document makes no use of the content of its context; the gain of the other contexts
over this control is reported too.
"""

import argparse
import math
from collections import defaultdict
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Lines, read_input
from fairseq_docmt.readers.files import whole_number
from fairseq_docmt.scoring import _tables
from fairseq_docmt.scoring._intervals import bootstrap_interval
from fairseq_docmt.scoring.context.reference_scores import MANY_UNKNOWN, ReferenceScorer
from fairseq_docmt.scoring.context.scorer_options import add_model_arguments, load_scorer
from fairseq_docmt.scoring.texts.checks import unrelated_note
from fairseq_docmt.scoring.texts.matching import Reading
from fairseq_docmt.scoring.texts.translations import read_translations

ALL = "all"
OTHER = "other-document"


class Documents(NamedTuple):
    """A parallel corpus with document boundaries.

    Attributes:
        index: document boundaries.
        source, target: (sentences,) source sentences and their reference translations, document by
            document.
        notes: notes for the user on sentences that are left out.
    """

    index: DocumentIndex
    source: List[str]
    target: List[str]
    notes: Sequence[str] = ()

    def with_context(self, sentences: int) -> List[Tuple[List[str], List[str]]]:
        """Make a short document for each sentence: its context, followed by the sentence itself.

        Args:
            sentences: maximum number of previous sentences in the context.

        Returns:
            A pair for each short document: its source sentences and its target sentences.
        """
        position = self.index.position
        spans = [(i - min(position[i], sentences), i + 1) for i in range(len(self.source))]
        return [(self.source[a:b], self.target[a:b]) for a, b in spans]

    def with_other_context(self, most: Optional[int] = None) -> List[Tuple[List[str], List[str]]]:
        """Make a short document for each sentence, with its context taken from another document.

        For a sentence with ``i`` sentences before it in its document, the context is the first
        ``i`` sentences of the next document, or all of them if that document is shorter.  For the
        last document, the next one is the first.  The sentence itself follows the context.

        Args:
            most: maximum number of context sentences.  If there are more, the last ones are kept;
                None keeps all.

        Returns:
            A pair for each short document: its source sentences and its target sentences.
        """
        starts, position = self.index.starts.tolist(), self.index.position.tolist()
        pairs = []
        for i, document in enumerate(self.index.document.tolist()):
            other = (document + 1) % self.index.num_documents
            first, size = starts[other], starts[other + 1] - starts[other]
            end = first + min(position[i], size)
            begin = first if most is None else max(first, end - most)
            sides = (self.source, self.target)
            pairs.append(tuple([*side[begin:end], side[i]] for side in sides))
        return pairs

    def whole(self) -> List[Tuple[List[str], List[str]]]:
        """Return a pair for each document: its source sentences and its target sentences."""
        return [(self.source[a:b], self.target[a:b]) for a, b in self.index.spans]


class Scores(NamedTuple):
    """Base-2 log-probabilities of the n tokens of a reference sentence.

    Attributes:
        words: (n,) tokens, without the end symbol.
        bits: (n,) log-probability of each token.
        end: log-probability of the end symbol.
        end_symbol: the end symbol, ``</s>``, or ``<sep>`` if another sentence follows in the
            sequence that the model reads.
    """

    words: List[str]
    bits: np.ndarray
    end: float = 0.0
    end_symbol: str = "</s>"


class Gain(NamedTuple):
    """Mean gain in log-probability due to context, with its 95 % bootstrap interval.

    Attributes:
        mean: mean over sentences or tokens, in the unit of the averaged gains (bits or nats).
        low, high: ends of the interval; None for a single document.
    """

    mean: float
    low: Optional[float]
    high: Optional[float]


class Usage(NamedTuple):
    """CXMI of a test set: mean gain in log-probability due to context.

    Attributes:
        sentence: bits per sentence, without the end symbol.
        token: bits per token, averaged over all tokens except end symbols.
        published: the CXMI as in the code of Fernandes et al. (2021): nats per token, end symbol
            included, averaged over the tokens of each sentence and then over sentences.  End
            symbols that differ without and with context are left out.
    """

    sentence: Gain
    token: float
    published: Gain


def read_documents(source: str, reference: str) -> Documents:
    """Read a parallel corpus from files in plain text or any other format that evaluation can read.

    In plain text, blank lines separate documents.

    Raises:
        UserError: a file is missing or empty, or source and reference do not match.
    """
    texts = [read_input(source, "source"), read_input(reference, "reference")]
    if not all(isinstance(text, Lines) for text in texts):
        found = read_translations({"source": source}, [reference], reading=Reading(role="source"))
        notes = [note for note in found.notes if note.startswith("left out")]
        return Documents(found.index, found.systems["source"], found.references[0], notes)
    sides = [text.lines for text in texts]
    if len(sides[0]) != len(sides[1]):
        raise UserError(
            f"{source} has {len(sides[0])} lines, but {reference} has {len(sides[1])}; both need a "
            "line for each sentence"
        )
    for number, pair in enumerate(zip(*sides), start=1):
        if bool(pair[0]) != bool(pair[1]):
            raise UserError(
                f"line {number} is blank in only one of {source} and {reference}; a blank line "
                "separates documents on both sides"
            )
    index = DocumentIndex.from_sizes([2 if line else 1 for line in sides[0]])
    return Documents(index, *([lines[row] for row in index.line_ids] for lines in sides))


def score(scorer: ReferenceScorer, documents: Documents, context: str) -> List[Scores]:
    """Compute the log-probabilities of all reference sentences, in the order of the corpus.

    Args:
        scorer: scorer of the model.
        documents: the corpus.
        context: value of ``--context``, or ``0`` for no context.  A number is the maximum number of
            previous sentences.  ``all`` scores whole documents with the context that the model has
            in decoding.  ``other-document`` takes the context from another document, and
            ``other-document:K`` at most K sentences of it.
    """
    other, _, most = context.partition(":")
    if other == OTHER:
        pairs = documents.with_other_context(int(most) if most else None)
        found = scorer.sentence_scores(pairs, last_only=True)
    elif context == ALL:
        found = scorer.sentence_scores(documents.whole())
    else:
        found = scorer.sentence_scores(documents.with_context(int(context)), last_only=True)
    dictionary = scorer.task.target_dictionary
    return [
        Scores([dictionary[t] for t in tokens[:-1]], *_in_bits(scores), dictionary[tokens[-1]])
        for sentences in found
        for tokens, scores in sentences
    ]


def _in_bits(scores) -> Tuple[np.ndarray, float]:
    bits = scores.numpy() / math.log(2)
    return bits[:-1], float(bits[-1])


def usage(
    without: Sequence[Scores], with_context: Sequence[Scores], document: Sequence[int]
) -> Usage:
    """Compute the CXMI of a test set from scores of its sentences without and with context.

    Args:
        without, with_context: scores of each sentence without and with context.
        document: (sentences,) index of the document of each sentence.
    """
    gains = [w.bits - wo.bits for wo, w in zip(without, with_context)]
    with_ends = [
        np.append(gain, w.end - wo.end) if w.end_symbol == wo.end_symbol else gain
        for gain, wo, w in zip(gains, without, with_context)
    ]
    nats = [math.log(2) * gain.sum() / max(len(gain), 1) for gain in with_ends]
    return Usage(
        mean_gain([gain.sum() for gain in gains], document),
        float(np.concatenate(gains).mean()),
        mean_gain(nats, document),
    )


def over_other_documents(
    found: Dict[str, Sequence[Scores]], document: Sequence[int]
) -> Dict[str, Usage]:
    """Compute the gain of each real context over each context from another document.

    Args:
        found: context, such as ``10`` or ``other-document:10`` -> scores of each sentence.
        document: (sentences,) index of the document of each sentence, for confidence intervals.

    Returns:
        Name such as ``10 over other-document:10`` -> gain; empty if there are no contexts from
        other documents.
    """
    others = [context for context in found if context.startswith(OTHER)]
    own = [context for context in found if context not in others]
    return {f"{a} over {b}": usage(found[b], found[a], document) for a in own for b in others}


def mean_gain(values: Sequence[float], document: Sequence[int]) -> Gain:
    """Compute the mean of N gains and its 95 % confidence interval, by bootstrap over documents.

    Args:
        values: (N,) gains of sentences or of tokens.
        document: (N,) index of the document that each gain belongs to.
    """
    numbers = np.unique(np.asarray(document), return_inverse=True)[1]
    sums, counts = np.bincount(numbers, weights=values), np.bincount(numbers)
    low, high = bootstrap_interval(
        (sums, counts), lambda total, count, axis: total.sum(axis) / count.sum(axis)
    )
    return Gain(float(np.mean(values)), low, high)


def by_word(without: Sequence[Scores], with_context: Sequence[Scores]) -> Dict[str, List[float]]:
    """Collect the gains (pointwise CXMI, in bits) of all occurrences of each distinct token.

    Args:
        without, with_context: scores of each sentence without and with context.

    Returns:
        Token -> gains of its occurrences, in the order of the corpus.
    """
    found: Dict[str, List[float]] = defaultdict(list)
    for one, other in zip(without, with_context):
        for word, gain in zip(one.words, other.bits - one.bits):
            found[word].append(float(gain))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt cxmi``."""
    add = parser.add_argument
    add("--path", required=True, help="checkpoint, or several joined by ':'")
    add("--baseline", metavar="PATH", help="model without context; default: --path")
    add("--source", required=True, metavar="FILE", help="source; blank lines end documents")
    add("--reference", required=True, metavar="FILE", help="reference translation")
    add(
        "--context",
        nargs="+",
        default=[ALL],
        metavar="K",
        help="at most K previous sentences; all: what the model reads in decoding (default); "
        "other-document or other-document:K: (at most K) sentences of another document",
    )
    add(
        "--words",
        type=int,
        default=15,
        metavar="N",
        help="tokens to show, by their mean gain; default: 15",
    )
    add(
        "--min-count",
        type=int,
        default=10,
        metavar="N",
        help="least occurrences of a shown token; default: 10",
    )
    add_model_arguments(parser)
    _tables.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt cxmi``: score the references, and print or write the gains."""
    for context in args.context:
        _check_context(context)
    if args.words < 0 or args.min_count < 1:
        raise UserError("--words must not be negative, and --min-count at least 1")
    documents = read_documents(args.source, args.reference)
    if documents.index.num_documents < 2 and any(c.startswith(OTHER) for c in args.context):
        raise UserError(f"--context {OTHER} needs two or more documents; {args.source} has one")
    scorer, base = _load_scorers(args)
    without = score(base, documents, "0")
    found = {context: score(scorer, documents, context) for context in args.context}
    number = documents.index.document
    used = {context: usage(without, scores, number) for context, scores in found.items()}
    used.update(over_other_documents(found, number))
    unknown = float(
        np.mean([w == base.task.target_dictionary.unk_word for s in without for w in s.words])
    )
    tables = [
        _tables.Table("context usage", ["context", *_HEADERS], [_row(*x) for x in used.items()]),
        _table_of_words(by_word(without, found[args.context[-1]]), args),
    ]
    notes = [
        f"docs:{documents.index.num_documents}|sentences:{len(without)}|"
        f"tokens:{sum(len(s.words) for s in without)}|intervals:95 % bootstrap over documents",
        "CXMI, bits per sentence: base 2, without end symbols; CXMI as published: nats per token "
        "with end symbols, mean of each sentence, then over sentences (code of Fernandes et al., "
        "2021)",
        *_notes_on_unknown(unknown),
        *documents.notes,
        *_notes_on_ends(without, found),
        *_notes_on_lengths(args.context, int(documents.index.position.max()), scorer.room()),
        *_notes_on_beginnings(args.context, scorer.task),
    ]
    unrelated = unrelated_note("source and reference", documents.source, documents.target)
    notes += [unrelated] if unrelated else []
    results = {
        "unknown": unknown,
        "usage": {context: _as_json(value) for context, value in used.items()},
        "sentences": _of_sentences(without, found),
    }
    _tables.show(args, tables, notes, results)


def _check_context(context: str) -> None:
    """Refuse an invalid value of ``--context``.

    Raises:
        UserError: the value is not a positive number, ``all``, ``other-document`` or
            ``other-document:K``.
    """
    kind, colon, most = context.partition(":")
    other = kind == OTHER and colon and _is_positive(most)
    if not (context in (ALL, OTHER) or _is_positive(context) or other):
        raise UserError(
            f"--context {context}: give positive numbers of sentences, {ALL}, or {OTHER}:K"
        )


def _load_scorers(args: argparse.Namespace) -> Tuple[ReferenceScorer, ReferenceScorer]:
    """Load the scorers of ``--path`` and ``--baseline``, in this order.

    Without ``--baseline``, the second is the same scorer as the first.

    Raises:
        UserError: the models have different target dictionaries, or one cannot be loaded.
    """
    scorer = load_scorer(args.path, args)
    base = load_scorer(args.baseline, args) if args.baseline else scorer
    if not base.task.target_dictionary == scorer.task.target_dictionary:
        raise UserError(
            "the models of --baseline and --path have different target dictionaries; compare "
            "models that were trained on the same binarised data"
        )
    return scorer, base


def _notes_on_unknown(unknown: float) -> List[str]:
    """Return a list with a note if too large a share of the reference's tokens is unknown."""
    if unknown <= MANY_UNKNOWN:
        return []
    return [
        f"{100 * unknown:.0f} % of the reference's tokens are unknown to the model; give the "
        "options with which its training data were made, such as --bpe-codes"
    ]


def _notes_on_lengths(contexts: Sequence[str], longest: int, room: Optional[int]) -> List[str]:
    """Return a note for each context that is longer than what the texts or the model have.

    Args:
        contexts: values of ``--context``.
        longest: largest number of sentences that any sentence has before it.
        room: largest number of previous sentences that the model reads; None for no limit.
    """
    ends = [(context, whole_number(context.rpartition(":")[2])) for context in contexts]
    wanted = {context: most for context, most in ends if most is not None}
    return [
        *(
            f"context {context}: no sentence has more than {longest} sentence(s) before it"
            for context, most in wanted.items()
            if most > longest
        ),
        *(
            f"context {context}: this model reads at most {room} sentence(s) before the scored one"
            for context, most in wanted.items()
            if room is not None and most > room
        ),
    ]


def _notes_on_beginnings(contexts: Sequence[str], task) -> List[str]:
    """Return a list with a note if the model reads ``<bod>`` before contexts within documents."""
    options = getattr(task, "options", {})  # fairseq's own tasks have none
    if not options.get("mark_document_start") or {*contexts} == {ALL}:
        return []
    return [
        f"contexts other than {ALL} begin with <bod> (--mark-document-start), as each is read as a "
        "document of its own"
    ]


def _notes_on_ends(without: Sequence[Scores], found: Dict[str, Sequence[Scores]]) -> List[str]:
    """Return a note for each context in which some sentences end with another end symbol.

    Args:
        without: scores of each sentence without context.
        found: context -> scores of each sentence.
    """
    others = {
        context: sum(a.end_symbol != b.end_symbol for a, b in zip(without, scores))
        for context, scores in found.items()
    }
    return [
        f"context {context}: {count} of {len(without)} sentences are followed by another one in "
        "the same sequence and end with <sep>, without context with </s>; CXMI as published leaves "
        "these end symbols out"
        for context, count in others.items()
        if count
    ]


def _table_of_words(words: Dict[str, List[float]], args: argparse.Namespace) -> _tables.Table:
    """Return the table of the tokens that gain most from the last context.

    Args:
        words: token -> gains of its occurrences.
        args: options of the command.
    """
    return _tables.Table(
        f"tokens that gain most (context {args.context[-1]})",
        ["token", "occurrences", "bits each"],
        [
            [word, str(len(words[word])), f"{np.mean(words[word]):.2f}"]
            for word in _most_improved(words, args.min_count)[: args.words]
        ],
    )


def _most_improved(words: Dict[str, List[float]], min_count: int) -> List[str]:
    """Return the tokens that occur at least ``min_count`` times, by decreasing mean gain.

    Args:
        words: token -> gains of its occurrences.
        min_count: minimum number of occurrences.
    """
    frequent = [word for word, gains in words.items() if len(gains) >= min_count]
    return sorted(frequent, key=lambda word: -np.mean(words[word]))


def _of_sentences(without: Sequence[Scores], found: Dict[str, Sequence[Scores]]) -> List[dict]:
    """Return the tokens of each sentence and their log-probabilities, for JSON output.

    Args:
        without: scores of each sentence without context.
        found: context -> scores of each sentence.

    Returns:
        A dictionary for each sentence.  ``words`` is the list of its tokens.  ``without`` and each
        context are lists of base-2 log-probabilities: of each token, then of the end symbol.
    """
    everything = {"without": without, **found}
    return [
        {
            "words": sentence.words,
            **{
                name: [*scores[number].bits.tolist(), scores[number].end]
                for name, scores in everything.items()
            },
        }
        for number, sentence in enumerate(without)
    ]


_HEADERS = ["CXMI, bits per sentence", "95 %", "bits per token", "CXMI as published", "95 %"]


def _is_positive(text: str) -> bool:
    return (whole_number(text) or 0) > 0


def _row(context: str, found: Usage) -> List[str]:
    sentence, published = found.sentence, found.published
    return [
        context,
        f"{sentence.mean:.3f}",
        _interval(sentence, 3),
        f"{found.token:.4f}",
        f"{published.mean:.4f}",
        _interval(published, 4),
    ]


def _interval(found: Gain, digits: int) -> str:
    if found.low is None:
        return "-"
    return f"{found.low:.{digits}f} to {found.high:.{digits}f}"


def _as_json(found: Usage) -> dict:
    return {
        "sentence": found.sentence._asdict(),
        "token": found.token,
        "published": found.published._asdict(),
    }
