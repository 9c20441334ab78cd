r"""Choose translations from n-best lists or several systems by a weighted sum of scores.

    python -m fairseq_docmt.scoring rerank --source test.zh --out best.en nbest.out \
        --score model --score length:0.05 --score quality.txt:0.5

A score is `model` (the H- lines of fairseq-generate), `length` (number of words), `oracle` (chrF
with --reference, an upper bound), `comet` (a
model of COMET without reference), or a file with one number for each candidate, sentence after
sentence; higher is better.  `--list FILE` writes the candidates in that order, to be scored by any
other tool.  The highest sum wins; of equal ones the first.
"""

import argparse
import math
from typing import List, NamedTuple, Optional

from sacrebleu.metrics import CHRF

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import candidates as candidate_lists
from fairseq_docmt.scoring import comet_metric
from fairseq_docmt.scoring._files import read_lines, write_text
from fairseq_docmt.scoring.candidates import Candidates
from fairseq_docmt.scoring.comet_metric import Scorer
from fairseq_docmt.scoring.translations import read_translations

#: Model of COMET that needs no reference.
DEFAULT_MODEL = "Unbabel/wmt22-cometkiwi-da"


class Feature(NamedTuple):
    """A score and its weight."""

    name: str
    weight: float


def parse_feature(text: str) -> Feature:
    """Read ``NAME`` or ``NAME:WEIGHT``.

    Raises:
        argparse.ArgumentTypeError: the weight is not a finite number.
    """
    name, colon, weight = text.rpartition(":")
    if not colon:
        return Feature(text, 1.0)
    try:
        value = float(weight)
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME:WEIGHT")
    return Feature(name, value)


def read_scores(path: str, candidates: Candidates) -> List[List[float]]:
    """Read a file with one number for each candidate.

    Raises:
        UserError: a line is not a finite number, or there is not one for each candidate.
    """
    values = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            values.append(float(line))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            raise UserError(f"{path}, line {number} is not a finite number: {line[:40]!r}")
    wanted = sum(map(len, candidates.texts))
    if len(values) != wanted:
        raise UserError(
            f"{path} has {len(values)} scores, but there are {wanted} candidates; make it from the "
            "file that --list writes"
        )
    return _by_sentence(values, candidates)


def _by_sentence(values: List[float], candidates: Candidates) -> List[List[float]]:
    rest = iter(values)
    return [[next(rest) for _ in texts] for texts in candidates.texts]


def scores_of(
    name: str, candidates: Candidates, references: List[str], comet: Optional[Scorer] = None
) -> List[List[float]]:
    """Return a score of all candidates.

    Args:
        name: ``model``, ``length``, ``oracle``, ``comet`` or a file.
        candidates: candidates of all sentences.
        references: (sentences,) for ``oracle``.
        comet: metric for ``comet``.

    Raises:
        UserError: the score is not available.
    """
    if name == "model":
        if candidates.scores is None:
            raise UserError("--score model needs the H- lines of an output of fairseq-generate")
        return candidates.scores
    if name == "length":
        return [[len(text.split()) for text in texts] for texts in candidates.texts]
    if name == "oracle":
        if not references:
            raise UserError("--score oracle needs --reference")
        metric = CHRF()
        return [
            [metric.sentence_score(text, [reference]).score for text in texts]
            for texts, reference in zip(candidates.texts, references)
        ]
    if name == "comet":
        if candidates.source is None:
            raise UserError("--score comet needs --source")
        rows = zip(candidates.source, candidates.texts)
        samples = [{"src": source, "mt": text} for source, texts in rows for text in texts]
        return _by_sentence(comet(samples), candidates)
    return read_scores(name, candidates)


def choose(
    candidates: Candidates,
    features: List[Feature],
    references: List[str],
    comet: Optional[Scorer] = None,
) -> List[int]:
    """Return the index of the candidate with the highest weighted sum for each sentence."""
    found = [scores_of(feature.name, candidates, references, comet) for feature in features]
    choice = []
    for rows in zip(*found):
        sums = [
            sum(f.weight * value for f, value in zip(features, values)) for values in zip(*rows)
        ]
        choice.append(sums.index(max(sums)))
    return choice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    candidate_lists.add_arguments(parser)
    parser.add_argument(
        "--score",
        action="append",
        type=parse_feature,
        metavar="NAME[:WEIGHT]",
        help="model, length, oracle, comet or a file; may be repeated; default: model",
    )
    parser.add_argument("--reference", metavar="FILE", help="reference for oracle")
    comet_metric.add_arguments(parser, DEFAULT_MODEL)
    parser.add_argument(
        "--list", metavar="FILE", help="also write all candidates as source, tab, candidate"
    )


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    candidates = candidate_lists.from_arguments(args)
    references: List[str] = []
    if args.reference:
        if not args.source:
            raise UserError("--reference needs --source")
        found = read_translations({"r": args.reference}, [args.source], None, args.docids)
        references = found.systems["r"]
    features = args.score or [Feature("model", 1.0)]
    choice = choose(candidates, features, references, comet_metric.scorer(args))
    if args.list:
        sources = candidates.source or [""] * len(candidates.texts)
        lines = (f"{s}\t{text}\n" for s, texts in zip(sources, candidates.texts) for text in texts)
        write_text(args.list, "".join(lines))
    candidate_lists.write(args, candidates, choice)
