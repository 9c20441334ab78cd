"""Corpus metrics over sentences and over documents, with significance.

s-BLEU, chrF, TER and METEOR are taken over sentences, d-BLEU over documents: its n-grams match
anywhere in the document (Feng et al., 2022, section 4; Wu et al., 2022).  d-BLEU does not see to
which sentence a translation belongs, and grows with the length of documents; signatures say how
many there were, and s-BLEU should stand beside it.
"""

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest
from scipy.stats import binomtest

from fairseq_docmt.scoring.meteor import Meteor
from fairseq_docmt.scoring.translations import Translations

#: name of a test -> what sacreBLEU calls it
PAIRED_TESTS = {"bootstrap": "bs", "randomisation": "ar"}
TESTS = (*PAIRED_TESTS, "sign")
#: With fewer documents than this the tests of sacreBLEU call anything significant.
FEWEST_SEGMENTS = 10


class Options(NamedTuple):
    """What metrics depend on.

    Attributes:
        tokenize: tokenizer of sacreBLEU for BLEU; None is its default, 13a.
        lowercase: BLEU and chrF without regard to case; TER and METEOR never regard it.
    """

    tokenize: Optional[str] = None
    lowercase: bool = False


DEFAULT_OPTIONS = Options()


class Kind(NamedTuple):
    """A metric as it can be chosen."""

    label: str
    unit: str
    higher_is_better: bool
    build: Callable[[Options], Metric]


def _bleu(options: Options) -> BLEU:
    return BLEU(lowercase=options.lowercase, tokenize=options.tokenize)


METRICS: Dict[str, Kind] = {
    "s-bleu": Kind("s-BLEU", "sentence", True, _bleu),
    "d-bleu": Kind("d-BLEU", "document", True, _bleu),
    "chrf": Kind("chrF2", "sentence", True, lambda options: CHRF(lowercase=options.lowercase)),
    "ter": Kind("TER", "sentence", False, lambda options: TER()),
    "meteor": Kind("METEOR", "sentence", True, lambda options: Meteor()),
}
DEFAULT_METRICS = ("s-bleu", "d-bleu", "chrf", "ter")


class Comparison(NamedTuple):
    """A test of a system against the baseline.

    Attributes:
        p: probability of such a difference by chance, None where it cannot be told.
        interval: half of the 95 % confidence interval of the system's score, where the test has
            one.
        better, worse: segments, for the sign test.
        procedure: number of samples and seed of a test that draws, as in a signature.
    """

    p: Optional[float]
    interval: Optional[float] = None
    better: Optional[int] = None
    worse: Optional[int] = None
    procedure: str = ""


class MetricResult(NamedTuple):
    """Scores of all systems by one metric.

    Attributes:
        scores: system -> score, from 0 to 100 (TER can be more).
        tests: name of the test -> system -> comparison with the baseline.
    """

    label: str
    signature: str
    higher_is_better: bool
    scores: Dict[str, float]
    tests: Dict[str, Dict[str, Comparison]]


def corpus_metrics(
    translations: Translations,
    metrics: Sequence[str] = DEFAULT_METRICS,
    tests: Sequence[str] = (),
    options: Options = DEFAULT_OPTIONS,
    samples: int = 0,
) -> List[MetricResult]:
    """Score systems, and compare each with the first one.

    Args:
        translations: of any number of systems.
        metrics: names from METRICS.
        tests: names from TESTS.
        options: what the metrics depend on.
        samples: of bootstrap and randomisation; 0: 1,000 and 10,000, as sacreBLEU has it.

    Raises:
        UserError: a metric needs what is not installed.
    """
    return [_one_metric(translations, METRICS[m], tests, options, samples) for m in metrics]


def _one_metric(translations: Translations, kind: Kind, tests, options, samples) -> MetricResult:
    def segments(sentences):
        return translations.joined(sentences) if kind.unit == "document" else sentences

    systems = {name: segments(texts) for name, texts in translations.systems.items()}
    references = [segments(texts) for texts in translations.references]
    metric = _with_memory(kind.build(options))
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
    return MetricResult(kind.label, signature, kind.higher_is_better, scores, found)


def _with_memory(metric: Metric) -> Metric:
    """Let a metric count the matches of each text once, not anew for each test."""
    count, known = metric._extract_corpus_statistics, {}

    def remembered(hypotheses, references):
        key = (id(hypotheses), id(references))
        if key not in known:
            # The texts are kept too, so that no other ones come to stand at their place.
            known[key] = (hypotheses, references, count(hypotheses, references))
        return known[key][2]

    metric._extract_corpus_statistics = remembered
    return metric


def paired_tests(
    systems: Dict[str, List[str]],
    references: List[List[str]],
    metric: Metric,
    test: str,
    samples: int = 0,
) -> Dict[str, Comparison]:
    """Compare systems with the first by a paired test of sacreBLEU.

    Args:
        systems: name -> segments.
        references: one or more times segments.
        metric: of sacreBLEU.
        test: ``bootstrap`` (Koehn, 2004) or ``randomisation`` (Riezler and Maxwell, 2005).
        samples: 0: 1,000 resamples or 10,000 trials.

    Returns:
        Comparison of each system but the first; without p for fewer than 10 segments, where
        too few resamples differ, and with p = 1 for equal scores.
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
        # sacreBLEU counts only larger differences, of which there are none between equal texts.
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
    """Compare systems with the first by the sign test of Collins et al. (2005).

    A segment counts for a system if the score of the baseline's text improves when the segment's
    translation is replaced by that of the system, and against it if it worsens; a two-sided
    binomial test then says how likely such numbers are if both are equally probable.

    Args:
        systems: name -> segments.
        references: one or more times segments.
        metric: of sacreBLEU.
        higher_is_better: what an improvement is.
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
        better = sum(value > reached for value in changed)
        worse = sum(value < reached for value in changed)
        p = binomtest(better, better + worse).pvalue if better + worse else 1.0
        results[name] = Comparison(float(p), better=better, worse=worse)
    return results
