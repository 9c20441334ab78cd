"""Corpus metrics at sentence and document level, with significance tests.

s-BLEU, chrF, TER and METEOR are computed over sentences, d-BLEU and d-chrF over documents: their
n-grams match anywhere in the document (Feng et al., 2022, section 4; Wu et al., 2022).  They ignore
sentence boundaries and increase with document length.  Signatures give the number of documents;
report s-BLEU beside d-BLEU.
"""

from collections import defaultdict
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest
from scipy.stats import binomtest

from fairseq_docmt.bleu import build_bleu
from fairseq_docmt.scoring.comet_metric import CONTEXT, Comet
from fairseq_docmt.scoring.meteor import Meteor
from fairseq_docmt.scoring.translations import Translations

#: Name of a test -> its name in sacreBLEU.
PAIRED_TESTS = {"bootstrap": "bs", "randomisation": "ar"}
TESTS = (*PAIRED_TESTS, "sign")
#: With fewer segments the paired tests of sacreBLEU call almost any difference significant.
FEWEST_SEGMENTS = 10


class Options(NamedTuple):
    """Settings of the metrics.

    Attributes:
        tokenize: tokenizer of sacreBLEU for BLEU; None is its default, 13a.
        lowercase: compute BLEU and chrF case-insensitively.  TER and METEOR always are.
        comet_model: name or checkpoint; None for the default.
        comet_python: Python that has unbabel-comet; None for this one.
    """

    tokenize: Optional[str] = None
    lowercase: bool = False
    comet_model: Optional[str] = None
    comet_python: Optional[str] = None


DEFAULT_OPTIONS = Options()


class Kind(NamedTuple):
    """A metric: label, unit of a segment, direction and constructor."""

    label: str
    unit: str
    higher_is_better: bool
    build: Callable[[Options, Translations], Metric]


def _bleu(options: Options, texts: Translations) -> BLEU:
    return build_bleu(options.tokenize, lowercase=options.lowercase)


def _chrf(options: Options, texts: Translations) -> CHRF:
    return CHRF(lowercase=options.lowercase)


def _comet(context: int) -> Callable[[Options, Translations], Comet]:
    return lambda options, texts: Comet(texts, options.comet_model, options.comet_python, context)


METRICS: Dict[str, Kind] = {
    "s-bleu": Kind("s-BLEU", "sentence", True, _bleu),
    "d-bleu": Kind("d-BLEU", "document", True, _bleu),
    "chrf": Kind("chrF2", "sentence", True, _chrf),
    "d-chrf": Kind("d-chrF2", "document", True, _chrf),
    "ter": Kind("TER", "sentence", False, lambda options, texts: TER()),
    "meteor": Kind("METEOR", "sentence", True, lambda options, texts: Meteor()),
    "comet": Kind("COMET", "sentence", True, _comet(0)),
    "comet-doc": Kind("doc-COMET", "sentence", True, _comet(CONTEXT)),
}
DEFAULT_METRICS = ("s-bleu", "d-bleu", "chrf")


class Comparison(NamedTuple):
    """A significance test of a system against the baseline.

    Attributes:
        p: p-value; None where the test is not applicable.
        interval: half the width of the 95 % confidence interval of the system's score, for
            bootstrap tests.
        better, worse: numbers of better and worse segments, for the sign test.
        procedure: number of samples and seed of a randomised test, as in a signature.
    """

    p: Optional[float]
    interval: Optional[float] = None
    better: Optional[int] = None
    worse: Optional[int] = None
    procedure: str = ""


class MetricResult(NamedTuple):
    """Scores of all systems for one metric.

    Attributes:
        scores: system -> score, from 0 to 100 (TER can exceed 100).
        tests: name of the test -> system -> comparison with the baseline.
        segments: system -> (sentences,) scores, for metrics that are means of them.
    """

    label: str
    signature: str
    higher_is_better: bool
    scores: Dict[str, float]
    tests: Dict[str, Dict[str, Comparison]]
    segments: Dict[str, List[float]] = {}


def corpus_metrics(
    translations: Translations,
    metrics: Sequence[str] = DEFAULT_METRICS,
    tests: Sequence[str] = (),
    options: Options = DEFAULT_OPTIONS,
    samples: int = 0,
) -> List[MetricResult]:
    """Score systems and compare each with the first one.

    Args:
        translations: translations by any number of systems.
        metrics: names from METRICS.
        tests: names from TESTS.
        options: settings of the metrics.
        samples: number of bootstrap resamples or randomisation trials; 0 for 1,000 and 10,000, the
            defaults of sacreBLEU.

    Raises:
        UserError: a metric needs a package or a model that is not installed.
    """
    return [_one_metric(translations, METRICS[m], tests, options, samples) for m in metrics]


def bleu_of_ranges(
    place: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    size: int,
    metric: BLEU,
) -> Dict[str, float]:
    """Compute BLEU for each range of positions.

    Args:
        place: (sentences,) position of each sentence in its document, from 0.
        hypotheses: (sentences,)
        references: one or more lists of (sentences,).
        size: number of positions in a range.
        metric: BLEU.

    Returns:
        Scores by range, in order; ranges are named e.g. ``1-10``.
    """
    ranges: Dict[int, List[int]] = defaultdict(list)
    for sentence, at in enumerate(place):
        ranges[at // size].append(sentence)
    scores = {}
    for number, sentences in sorted(ranges.items()):
        found = metric.corpus_score(
            [hypotheses[i] for i in sentences], [[r[i] for i in sentences] for r in references]
        )
        scores[f"{number * size + 1}-{(number + 1) * size}"] = found.score
    return scores


def _one_metric(translations: Translations, kind: Kind, tests, options, samples) -> MetricResult:
    if kind.unit == "document":
        systems = {name: translations.documents(name) for name in translations.names}
        references = [translations.joined(texts) for texts in translations.references]
    else:
        systems, references = translations.systems, translations.references
    metric = kind.build(options, translations)
    neural = isinstance(metric, Comet)
    metric = _with_memory(metric)
    scores = {
        name: float(metric.corpus_score(texts, references).score) for name, texts in systems.items()
    }
    signature = f"docs:{translations.index.num_documents}|sents:{translations.index.num_sentences}"
    signature = f"{signature}|unit:{kind.unit}|{metric.get_signature()}"
    found = {}
    for test in tests if len(systems) > 1 else ():
        if test == "sign":
            found[test] = sign_tests(systems, references, metric, kind.higher_is_better)
        else:
            found[test] = paired_tests(systems, references, metric, test, samples)
    by_segment = {
        name: [100 * row[0] for row in metric._extract_corpus_statistics(texts, references)]
        for name, texts in (systems.items() if neural else ())
    }
    return MetricResult(kind.label, signature, kind.higher_is_better, scores, found, by_segment)


def _with_memory(metric: Metric) -> Metric:
    """Cache what a metric knows of references and systems, so that it is computed once.

    The sufficient statistics become float64, in which counts are exact: randomisation multiplies a
    matrix of trials by them, for which numpy has no fast routine in integers.
    """
    count = metric._extract_corpus_statistics
    metric._cache_references = _remembering(metric._cache_references)
    metric._extract_corpus_statistics = _remembering(
        lambda *texts: np.asarray(count(*texts), dtype=np.float64)
    )
    return metric


def _remembering(function: Callable) -> Callable:
    """Return the function with a cache for lists of texts, which must not change."""
    known = {}

    def remembered(*texts):
        key = tuple(map(id, texts))
        if key not in known:
            # Keep the texts alive: their ids must not be reused for other objects.
            known[key] = (texts, function(*texts))
        return known[key][1]

    return remembered


def paired_tests(
    systems: Dict[str, List[str]],
    references: List[List[str]],
    metric: Metric,
    test: str,
    samples: int = 0,
) -> Dict[str, Comparison]:
    """Compare systems with the first one by a paired test of sacreBLEU.

    Args:
        systems: name -> segments.
        references: one or more lists of segments.
        metric: metric of sacreBLEU.
        test: ``bootstrap`` (Koehn, 2004) or ``randomisation`` (Riezler and Maxwell, 2005).
        samples: number of resamples or trials; 0 for 1,000 resamples or 10,000 trials.

    Returns:
        Comparison of each system but the first.  ``p`` is None for fewer than 10 segments, which
        give too few distinct resamples, and 1 for equal scores.
    """
    kind = PAIRED_TESTS[test]
    signatures, results = PairedTest(
        list(systems.items()), {"": metric}, references, kind, samples
    )()
    ((label, signature),) = signatures.items()
    drawn = "|".join(f"{key}:{signature.info[key]}" for key in (kind, "seed"))
    base, *others = results[label]
    enough = len(references[0]) >= FEWEST_SEGMENTS
    found = {}
    for name, row in zip(list(systems)[1:], others):
        # sacreBLEU counts only larger differences, so that equal texts would get the smallest p.
        p = float(row.p_value) if row.score != base.score else 1.0
        interval = float(row.ci) if row.ci is not None and enough else None
        found[name] = Comparison(p if enough else None, interval, procedure=drawn)
    return found


def sign_tests(
    systems: Dict[str, List[str]],
    references: List[List[str]],
    metric: Metric,
    higher_is_better: bool = True,
) -> Dict[str, Comparison]:
    """Compare systems with the first one by the sign test of Collins et al. (2005).

    The translation of one segment at a time is replaced in the baseline's output by that of the
    system.  The segment counts for the system if the corpus score improves, and against it if the
    score drops.  The p-value is that of a two-sided binomial test.

    Args:
        systems: name -> segments.
        references: one or more lists of segments.
        metric: metric of sacreBLEU.
        higher_is_better: whether a higher score is an improvement.
    """

    def score(sums) -> float:
        value = metric._compute_score_from_stats(sums).score
        return value if higher_is_better else -value

    counts = {
        name: np.asarray(metric._extract_corpus_statistics(segments, references))
        for name, segments in systems.items()
    }
    (_, base), *others = counts.items()
    total = base.sum(axis=0)
    reached, results = score(total), {}
    for name, system in others:
        differ = (base != system).any(axis=1)
        changed = [score(row) for row in total - base[differ] + system[differ]]
        better = int(sum(value > reached for value in changed))
        worse = int(sum(value < reached for value in changed))
        p = binomtest(better, better + worse).pvalue if better + worse else 1.0
        results[name] = Comparison(float(p), better=better, worse=worse)
    return results
