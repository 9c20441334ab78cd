r"""Choose translations from n-best lists or several systems by a weighted sum of scores.

    fairseq-docmt rerank --source test.zh --out best.en nbest.out \
        --score model --score length:0.05 --score quality.txt:0.5
    fairseq-docmt rerank --source valid.zh --reference valid.en --out best.en \
        nbest.out --language-model lm.pt --channel en-zh.pt --score proposal \
        --score language-model:0.2,0.5,1 --score channel:0.2,0.5,1 --score length:0,0.5

A score is one of the following; higher is better; log-probabilities are natural:

  model           score in the H- lines of fairseq-generate (base 2), or in JSON
  proposal        log-probability of the translation, from the P- lines of fairseq-generate
  length          number of words
  channel         log-probability of the source given the translation, from the model of --channel
  language-model  log-probability of the translation given the translations chosen before it in its
                  document, from the model of --language-model
  comet           a reference-free model of COMET
  oracle          chrF with --reference, an upper bound
  FILE            one number for each candidate, sentence after sentence

`--list FILE` writes all candidates in the order of a file of scores.  The first candidate with the
highest weighted sum is chosen.  With a language model, documents are searched with a beam (Yu et
al., 2020).  Of several weights, those with the best BLEU are chosen, which needs --reference.
"""

import argparse
import itertools
import math
import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from sacrebleu.metrics import BLEU, CHRF
from tqdm import tqdm

from fairseq_docmt.bleu import build_bleu
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Documents, read_input
from fairseq_docmt.readers.files import finite_number, read_lines, write_text
from fairseq_docmt.scoring.corpus import comet_metric
from fairseq_docmt.scoring.corpus.comet_metric import Scorer
from fairseq_docmt.scoring.reranking import candidates as candidate_lists
from fairseq_docmt.scoring.reranking import document_beam, noisy_channel
from fairseq_docmt.scoring.reranking.candidates import Candidates
from fairseq_docmt.scoring.reranking.noisy_channel import NoisyChannel
from fairseq_docmt.scoring.texts.layout import Layout

#: Default COMET model, which needs no reference.
DEFAULT_MODEL = "Unbabel/wmt22-cometkiwi-da"


NO_MODELS = NoisyChannel()

#: Name of the score that depends on the translations of previous sentences.
LANGUAGE_MODEL = "language-model"

#: Default number of hypotheses that the beam search with a language model keeps.
DEFAULT_BEAM = 5

#: Absolute value above which a weight is refused, as sums could overflow.
LARGEST_WEIGHT = 1e9

#: For each sentence, the scores of its candidates.
Table = List[List[float]]


class Feature(NamedTuple):
    """A score in the weighted sum, with its weight or the weights to try.

    Attributes:
        name: name of the score, such as ``model``, or a file with scores.
        weights: weight of the score, or several weights to try.
    """

    name: str
    weights: Tuple[float, ...]


def parse_feature(text: str) -> Feature:
    """Parse a score and its weight, or several weights to choose from.

    The format is ``NAME``, ``NAME:WEIGHT`` or ``NAME:WEIGHT,WEIGHT,...``; the default weight is 1.

    Raises:
        argparse.ArgumentTypeError: a weight is not a finite number, or so large that sums could
            overflow.
    """
    name, colon, weights = text.rpartition(":")
    if not colon:
        return Feature(text, (1.0,))
    try:
        values = tuple(map(float, weights.split(",")))
    except ValueError:
        values = (math.nan,)
    if not name or not all(map(math.isfinite, values)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME or NAME:WEIGHT")
    if max(map(abs, values)) > LARGEST_WEIGHT:
        raise argparse.ArgumentTypeError(f"{text!r}: give weights up to {LARGEST_WEIGHT:,.0f}")
    return Feature(name, values)


def read_scores(path: str, candidates: Candidates) -> Table:
    """Read the scores of all candidates from a file with one number for each candidate.

    Returns:
        For each sentence, the scores of its candidates.

    Raises:
        UserError: a line is not a finite number, or the number of lines is not the number of
            candidates.
    """
    values = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            values.append(finite_number(line))
        except ValueError:
            raise UserError(
                f"{path}, line {number} is not a finite number: {line[:40]!r}"
            ) from None
    wanted = sum(map(len, candidates.texts))
    if len(values) != wanted:
        raise UserError(
            f"{path} has {len(values)} scores, but there are {wanted} candidates; make it from the "
            "file that --list writes"
        )
    return _by_sentence(values, candidates)


def _by_sentence(values: Sequence[float], candidates: Candidates) -> Table:
    rest = iter(values)
    return [[next(rest) for _ in texts] for texts in candidates.texts]


def scores_of(
    name: str,
    candidates: Candidates,
    references: List[Optional[str]],
    comet: Optional[Scorer] = None,
    models: NoisyChannel = NO_MODELS,
) -> Table:
    """Compute one kind of score for all candidates.

    The score ``language-model`` is the exception: it depends on the translations chosen before, so
    :func:`choose` computes it during the search.

    Args:
        name: name of the score, or a file with scores.
        candidates: candidates of all sentences.
        references: (sentences,) references for ``oracle``; None for a sentence without a reference.
        comet: function that scores samples, which are dictionaries with ``src`` and ``mt``; for the
            score ``comet``.
        models: channel model and language model; the score ``channel`` uses the channel model.

    Returns:
        For each sentence, the scores of its candidates.

    Raises:
        UserError: the score is unknown, or needs a text or a field that is not given.
    """
    if name == "model":
        if candidates.scores is None:
            raise UserError(
                "--score model needs the H- lines of an output of fairseq-generate, or JSON with "
                "a score for each translation"
            )
        return candidates.scores
    if name == "proposal":
        if candidates.log_probabilities is None:
            raise UserError("--score proposal needs the P- lines of an output of fairseq-generate")
        return candidates.log_probabilities
    if name == "length":
        return [[len(text.split()) for text in texts] for texts in candidates.texts]
    if name == "oracle":
        if not references:
            raise UserError("--score oracle needs --reference")
        metric = CHRF()
        return [
            [
                0.0 if reference is None else metric.sentence_score(text, [reference]).score
                for text in texts
            ]
            for texts, reference in zip(candidates.texts, references)
        ]
    if name in ("comet", "channel"):
        if candidates.source is None:
            raise UserError(f"--score {name} needs --source")
        rows = zip(candidates.source, candidates.texts)
        pairs = [(source, text) for source, texts in rows for text in texts]
        if name == "channel":
            return _by_sentence(models.source_scores(pairs), candidates)
        return _by_sentence(comet([{"src": s, "mt": text} for s, text in pairs]), candidates)
    if not os.path.isfile(name):
        known = "model, proposal, language-model, channel, length, oracle, comet"
        raise UserError(f"--score {name}: no such file, and none of {known}")
    return read_scores(name, candidates)


def choose(
    candidates: Candidates,
    tables: Dict[str, Table],
    weights: Dict[str, float],
    models: NoisyChannel = NO_MODELS,
    beam: int = 1,
) -> List[int]:
    """Choose the translation of each sentence by the weighted sum of scores.

    Args:
        candidates: candidates of all sentences.
        tables: name of a score -> for each sentence, the scores of its candidates.
        weights: name of a score -> weight, including ``language-model`` if it is used.
        models: channel model and language model; the score ``language-model`` uses the language
            model.
        beam: number of hypotheses that the search with a language model keeps.

    Returns:
        (sentences,) index of the chosen candidate of each sentence.
    """
    sums = [
        [sum(weights[name] * value for name, value in zip(tables, values)) for values in zip(*rows)]
        for rows in zip(*tables.values())
    ] or [[0.0] * len(texts) for texts in candidates.texts]
    weight = weights.get(LANGUAGE_MODEL, 0.0)
    if weight == 0:
        return [own.index(max(own)) for own in sums]
    choice: List[int] = []
    for a, b in tqdm(candidates.layout.index.spans, unit="document", disable=None):
        rows = candidates.texts[a:b]
        choice += document_beam.search(rows, sums[a:b], models.sentence_scores, weight, beam)
    return choice


def tune(
    candidates: Candidates,
    features: Sequence[Feature],
    references: List[Optional[str]],
    choose_by,
    metric: BLEU,
) -> Dict[str, float]:
    """Try all combinations of weights, and return the one with the best BLEU.

    Each combination is printed with its BLEU.  If several have the best BLEU, their number is
    printed, and the first is returned.

    Args:
        candidates: candidates of all sentences.
        features: scores with the weights to try.
        references: (sentences,) references; None for a sentence without a reference.
        choose_by: function from weights to the (sentences,) indices of the chosen candidates.
        metric: sacreBLEU's BLEU.

    Returns:
        Name of the score -> weight.
    """
    names = [feature.name for feature in features]
    known = [place for place, text in enumerate(references) if text is not None]
    wanted = [references[place] for place in known]
    tried = []
    for values in itertools.product(*(feature.weights for feature in features)):
        weights = dict(zip(names, values))
        found = candidates.chosen(choose_by(weights))
        found = [found[place] for place in known]
        tried.append((metric.corpus_score(found, [wanted]).score, weights))
        print(f"s-BLEU {tried[-1][0]:.2f}  {_written(weights)}")
    best, weights = max(tried, key=lambda pair: pair[0])
    print(f"best: {_written(weights)}  ({metric.get_signature()})")
    equal = sum(score == best for score, _ in tried)
    if equal > 1:
        print(
            f"{equal} of {len(tried)} combinations of weights have this s-BLEU; the first is taken"
        )
    return weights


def _written(weights: Dict[str, float]) -> str:
    return " ".join(f"{name}:{weight:g}" for name, weight in weights.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt rerank``."""
    candidate_lists.add_arguments(parser)
    parser.add_argument(
        "--score",
        action="append",
        type=parse_feature,
        metavar="NAME[:WEIGHT,...]",
        help="a score of the list above; may be repeated; default: model",
    )
    parser.add_argument(
        "--reference", metavar="FILE", help="reference for oracle, and to choose among weights"
    )
    parser.add_argument("--tokenize", choices=BLEU.TOKENIZERS, metavar="NAME", help="for BLEU")
    parser.add_argument(
        "--beam",
        type=int,
        metavar="N",
        help=f"hypotheses of the search with a language model; default: {DEFAULT_BEAM}",
    )
    noisy_channel.add_arguments(parser)
    comet_metric.add_arguments(parser, DEFAULT_MODEL)
    parser.add_argument(
        "--list", metavar="FILE", help="also write all candidates as source, tab, candidate"
    )


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt rerank``: write the candidate with the best score for each sentence."""
    features = args.score or [Feature("model", (1.0,))]
    names = [feature.name for feature in features]
    _check(args, features, names)
    candidates = candidate_lists.from_arguments(args)
    references: List[Optional[str]] = []
    if args.reference:
        references = _references(candidates.layout, args.reference, args.input_format == "text")
    chooses_weights = any(len(feature.weights) > 1 for feature in features)
    if chooses_weights:  # before the scores, which take long: a tokenizer may lack its package
        lines = [line or "" for line in references]
        metric = build_bleu(candidate_lists.tokenizer_for(args, candidates, lines))
    comet = comet_metric.scorer(args, DEFAULT_MODEL)
    models = noisy_channel.from_arguments(args, names, candidates)
    tables = {
        name: scores_of(name, candidates, references, comet, models)
        for name in names
        if name != LANGUAGE_MODEL
    }
    for name, table in tables.items():
        _refuse_infinite(name, table, candidates)

    def choose_by(weights: Dict[str, float]) -> List[int]:
        return choose(candidates, tables, weights, models, args.beam or DEFAULT_BEAM)

    weights = {feature.name: feature.weights[0] for feature in features}
    if chooses_weights:
        weights = tune(candidates, features, references, choose_by, metric)
    choice = choose_by(weights)
    if args.list:
        sources = candidates.source or [""] * len(candidates.texts)
        lines = (f"{s}\t{text}\n" for s, texts in zip(sources, candidates.texts) for text in texts)
        write_text(args.list, "".join(lines))
    candidate_lists.write(args, candidates, choice)


def _refuse_infinite(name: str, table: Table, candidates: Candidates) -> None:
    """Refuse scores that are infinite or not numbers, which would decide every choice.

    Args:
        name: name of the score.
        table: for each sentence, the scores of its candidates.
        candidates: candidates of all sentences.

    Raises:
        UserError: a score is not finite; the message names the candidate.
    """
    for place, values in enumerate(table):
        for number, value in enumerate(values, start=1):
            if not math.isfinite(value):
                of_layout = f"sentence {place + 1} of {candidates.layout.path}"
                where = candidates.places[place] if candidates.places else of_layout
                raise UserError(
                    f"{where}: candidate {number} has the --score {name} {value}, and a choice "
                    "needs finite numbers; correct it, or choose without this score"
                )


def _references(layout: Layout, path: str, plain: bool) -> List[Optional[str]]:
    """Read the reference of each sentence, as a list with None for missing and bad references.

    A reference is bad if its file marks the sentence as bad.

    Args:
        layout: documents and sentences of the test set.
        path: file of the reference.
        plain: whether to read the file as plain text, whatever its content looks like.

    Raises:
        UserError: no sentence has a reference.
    """
    text = layout.filled(read_input(path, "reference", plain=plain))
    gaps = layout.gaps_of_side(text)
    dropped = gaps.missing | gaps.bad
    if dropped.all():
        raise UserError(f"{path} has no reference of these sentences")
    if dropped.any():
        print(f"{path}: {dropped.sum()} sentences without a reference, or marked as bad, left out")
    for note in layout.notes(path, text) if isinstance(text, Documents) else ():
        print(note)
    return [None if gone else line for line, gone in zip(layout.sentences(text), dropped)]


def _check(args: argparse.Namespace, features: Sequence[Feature], names: List[str]) -> None:
    """Refuse options that are invalid, have no effect, or need another option that is missing.

    Args:
        args: options of the command line.
        features: scores and weights of ``--score``.
        names: names of the scores in ``features``.

    Raises:
        UserError: an option is refused, or a score is given twice.
    """
    if len(set(names)) < len(names):
        raise UserError("a --score is given twice; give each name once")
    if args.beam is not None and args.beam < 1:
        raise UserError(f"--beam must be at least 1, got {args.beam}")
    if args.beam is not None and LANGUAGE_MODEL not in names:
        raise UserError(f"--beam is for --score {LANGUAGE_MODEL}; leave it out")
    comet_metric.refuse_unused(args, "comet" in names, "--score comet")
    several = [feature for feature in features if len(feature.weights) > 1]
    if args.tokenize and not several:
        raise UserError("--tokenize is for the choice among several weights of a --score")
    if args.reference and not several and "oracle" not in names:
        raise UserError(
            "--reference is for --score oracle and for the choice among several weights; leave it "
            "out"
        )
    if several and not args.reference:
        raise UserError(
            f"--score {several[0].name} has several weights, of which --reference chooses; give "
            "one, or the reference"
        )
