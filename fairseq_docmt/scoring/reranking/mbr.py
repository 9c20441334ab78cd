"""Choose translations by minimum Bayes risk from n-best lists or several systems.

    fairseq-docmt mbr --source test.zh --out mbr.en nbest.out
    fairseq-docmt mbr --source test.zh --out mbr.en one=one.out two=two.out

Each candidate is scored against all candidates as references, and the one with the highest mean
score is chosen (Eikema and Aziz, 2022).  --by sets what is compared:

  sentence   each sentence by itself
  context    each sentence with the --context sentences before it: for a candidate, the translations
             already chosen; for a reference, the translations of the same system or rank
  document   whole documents: all translations of one system, or of one rank in the n-best lists

`--metric comet` compares sentences; it needs --source.
"""

import argparse
from typing import Callable, Dict, List, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from tqdm import tqdm

from fairseq_docmt.bleu import build_bleu
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.corpus import comet_metric
from fairseq_docmt.scoring.corpus.comet_metric import Scorer
from fairseq_docmt.scoring.reranking import candidates as candidate_lists
from fairseq_docmt.scoring.reranking.candidates import Candidates

#: Default number of previous sentences for ``--by context``.
DEFAULT_CONTEXT = 3

#: Function from hypotheses and references, two lists of n texts, to the n scores of the pairs.
Utility = Callable[[List[str], List[str]], Sequence[float]]


def _utility(metric) -> Utility:
    def score(hypotheses: List[str], references: List[str]) -> List[float]:
        rows = metric._extract_corpus_statistics(hypotheses, [references])
        return [metric._compute_score_from_stats(row).score for row in rows]

    return score


#: Name of a metric -> function from the tokenizer of BLEU to a utility.  In short sentences, BLEU
#: uses only the n-gram orders that they have.
UTILITIES: Dict[str, Callable[[str], Utility]] = {
    "chrf": lambda tokenize: _utility(CHRF()),
    "bleu": lambda tokenize: _utility(build_bleu(tokenize, effective_order=True)),
}


def best(hypotheses: List[str], references: List[str], utility: Utility) -> int:
    """Return the index of the candidate with the highest mean score against all references.

    Args:
        hypotheses: (candidates,) candidates, each preceded by its context if there is one.
        references: (candidates,) the same candidates as references.  Their context may differ from
            that of the hypotheses.
        utility: function that takes a list of hypotheses and a list of references, and scores each
            hypothesis against the reference at the same place.
    """
    distinct = list(dict.fromkeys(hypotheses))
    counts: Dict[str, int] = {}
    for reference in references:
        counts[reference] = counts.get(reference, 0) + 1
    if len(distinct) == 1:
        return 0
    pairs = [(one, other) for one in distinct for other in counts]
    scores = utility([one for one, _ in pairs], [other for _, other in pairs])
    table = np.reshape(scores, (len(distinct), len(counts)))
    expected = table @ np.array(list(counts.values())) / len(references)
    # Of candidates with the same text or score, the first is chosen, which the model prefers.
    return hypotheses.index(distinct[int(np.argmax(expected.round(9)))])


def choose(
    candidates: Candidates, utility: Utility, by: str, context: int = DEFAULT_CONTEXT
) -> List[int]:
    """Choose the translation of each sentence by minimum Bayes risk.

    Args:
        candidates: candidates of all sentences.
        utility: function that takes a list of hypotheses and a list of references, and scores each
            hypothesis against the reference at the same place.
        by: what is compared: ``sentence`` for single sentences, ``context`` for sentences together
            with the sentences before them, or ``document`` for whole documents.
        context: number of previous sentences for ``context``.

    Returns:
        (sentences,) index of the chosen candidate of each sentence.
    """
    choice: List[int] = []
    for first, end in tqdm(candidates.layout.index.spans, unit="document", disable=None):
        rows = candidates.texts[first:end]
        if by == "document":
            choice += _document(rows, utility)
            continue
        own: List[int] = []
        for place, texts in enumerate(rows):
            before = range(max(place - context, 0), place) if by == "context" else range(0)
            chosen = [rows[i][own[i]] for i in before]
            hypotheses = [" ".join([*chosen, text]) for text in texts]
            references = [
                " ".join([*(_ranked(rows[i], rank) for i in before), text])
                for rank, text in enumerate(texts)
            ]
            own.append(best(hypotheses, references, utility))
        choice += own
    return choice


def choose_by_comet(candidates: Candidates, comet: Scorer) -> List[int]:
    """Choose the translation of each sentence by minimum Bayes risk, with COMET as utility.

    All pairs of candidates are scored in one call, because loading the model is slow.

    Args:
        candidates: candidates of all sentences, with source.
        comet: function that scores samples, which are dictionaries with ``src``, ``mt`` and
            ``ref``.

    Returns:
        (sentences,) index of the chosen candidate of each sentence.
    """
    rows = list(zip(candidates.source, candidates.texts))
    pairs = dict.fromkeys(
        (source, one, other) for source, texts in rows for one in texts for other in texts
    )
    scores = comet([{"src": source, "mt": one, "ref": other} for source, one, other in pairs])
    table = dict(zip(pairs, scores))
    return [
        best(texts, texts, lambda *sides, s=source: [table[(s, *pair)] for pair in zip(*sides)])
        for source, texts in rows
    ]


def _ranked(texts: List[str], rank: int) -> str:
    """Return the candidate at position ``rank`` (from 0), or the last one if there are fewer."""
    return texts[min(rank, len(texts) - 1)]


def _document(rows: List[List[str]], utility: Utility) -> List[int]:
    ranks = range(max(map(len, rows)))
    documents = [" ".join(_ranked(texts, rank) for texts in rows) for rank in ranks]
    rank = best(documents, documents, utility)
    return [min(rank, len(texts) - 1) for texts in rows]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt mbr``."""
    candidate_lists.add_arguments(parser)
    parser.add_argument(
        "--metric", choices=[*UTILITIES, "comet"], default="chrf", help="default: chrf"
    )
    parser.add_argument(
        "--by",
        choices=["sentence", "context", "document"],
        default="sentence",
        help="see above; default: sentence",
    )
    parser.add_argument(
        "--context",
        type=int,
        help=f"sentences of context for --by context; default: {DEFAULT_CONTEXT}",
    )
    parser.add_argument("--tokenize", choices=BLEU.TOKENIZERS, metavar="NAME", help="for bleu")
    comet_metric.add_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt mbr``: choose translations, and write them."""
    if args.context is not None and args.context < 1:
        raise UserError(f"--context must be at least 1, got {args.context}; or use --by sentence")
    if args.context is not None and args.by != "context":
        raise UserError(f"--context is for --by context, not for --by {args.by}")
    if args.metric == "comet" and (args.by != "sentence" or not args.source):
        raise UserError("--metric comet needs --source and --by sentence")
    comet_metric.refuse_unused(args, args.metric == "comet", "--metric comet")
    if args.tokenize and args.metric != "bleu":
        raise UserError(f"--tokenize is for --metric bleu, not for {args.metric}")
    candidates = candidate_lists.from_arguments(args)
    if args.metric == "comet":
        choice = choose_by_comet(candidates, comet_metric.scorer(args))
    else:
        tokenizer = None
        if args.metric == "bleu":
            first = [texts[0] for texts in candidates.texts]
            tokenizer = candidate_lists.tokenizer_for(args, candidates, first)
        utility = UTILITIES[args.metric](tokenizer)
        choice = choose(candidates, utility, args.by, args.context or DEFAULT_CONTEXT)
    candidate_lists.write(args, candidates, choice)
