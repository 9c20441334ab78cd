"""Corpus metrics at sentence and document level, with significance tests.

s-BLEU, chrF, TER and METEOR compare sentences.  d-BLEU and d-chrF compare whole documents, in which
n-grams may match anywhere (Feng et al., 2022, section 4; Wu et al., 2022).  These document-level
metrics ignore sentence boundaries, and their scores increase with the length of documents.  So
signatures give the number of documents, and s-BLEU should be reported beside d-BLEU.
"""

import math
from collections import defaultdict
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from fairseq_docmt._processes import can_fork, forked_map
from fairseq_docmt.bleu import build_bleu
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.corpus import significance
from fairseq_docmt.scoring.corpus.comet_metric import CONTEXT, WINDOW, Comet, windows_of
from fairseq_docmt.scoring.corpus.meteor import Meteor
from fairseq_docmt.scoring.corpus.segment_scores import Given, SegmentMean
from fairseq_docmt.scoring.corpus.significance import Comparison, Statistics
from fairseq_docmt.scoring.texts.test_set import Translations

#: ``Kind.unit`` of metrics over blocks of sentences.
WINDOWS = f"{WINDOW} sentences"
#: Name of the group of documents whose segments belong to different groups.
MIXED = "several"
#: Key of the size of a group, beside the names of the systems.
SIZE = "segments"
#: Number of segments whose references are preprocessed at once.
BLOCK = 1000
#: Characters of a reference above which several processes work in parallel, and the least number of
#: blocks to divide it into then.
LARGE, BLOCKS = 1_000_000, 32


class Options(NamedTuple):
    """Settings of the metrics.

    Attributes:
        tokenize: sacreBLEU's tokenizer for BLEU; None for the default, 13a.
        lowercase: compute BLEU and chrF case-insensitively.  TER and METEOR always ignore case.
        comet_model: name or checkpoint of a COMET model; None for the default.
        comet_python: Python executable with unbabel-comet installed; None for the running
            interpreter.
    """

    tokenize: Optional[str] = None
    lowercase: bool = False
    comet_model: Optional[str] = None
    comet_python: Optional[str] = None


DEFAULT_OPTIONS = Options()


class Kind(NamedTuple):
    """Definition of a metric.

    Attributes:
        label: name in tables, such as ``s-BLEU``.
        unit: what is scored as one segment: ``sentence``, ``document``, or ``6 sentences`` for
            blocks of sentences.
        higher_is_better: whether a higher score is an improvement.
        build: function that builds the sacreBLEU metric from the settings and the test set; None if
            the scores come from another program.
    """

    label: str
    unit: str
    higher_is_better: bool
    build: Optional[Callable[[Options, Translations], Metric]] = None


def _bleu(options: Options, texts: Translations) -> BLEU:
    # `force` silences sacreBLEU's warning about tokenized text; checks.form_notes reports it.
    return build_bleu(options.tokenize, lowercase=options.lowercase, force=True)


def _chrf(options: Options, texts: Translations) -> CHRF:
    return CHRF(lowercase=options.lowercase)


def _chrf_with_words(options: Options, texts: Translations) -> CHRF:
    return CHRF(lowercase=options.lowercase, word_order=2)


def _comet(context: int) -> Callable[[Options, Translations], Comet]:
    return lambda options, texts: Comet(texts, options.comet_model, options.comet_python, context)


METRICS: Dict[str, Kind] = {
    "s-bleu": Kind("s-BLEU", "sentence", True, _bleu),
    "d-bleu": Kind("d-BLEU", "document", True, _bleu),
    "chrf": Kind("chrF2", "sentence", True, _chrf),
    "chrf++": Kind("chrF2++", "sentence", True, _chrf_with_words),
    "d-chrf": Kind("d-chrF2", "document", True, _chrf),
    "ter": Kind("TER", "sentence", False, lambda options, texts: TER()),
    "meteor": Kind("METEOR", "sentence", True, lambda options, texts: Meteor()),
    "comet": Kind("COMET", "sentence", True, _comet(0)),
    "comet-doc": Kind("doc-COMET", "sentence", True, _comet(CONTEXT)),
    "comet-slide": Kind("COMET-SLIDE", WINDOWS, True, _comet(0)),
}
#: Other names of metrics.
ALIASES = {"chrf2": "chrf", "chrf2++": "chrf++", "bleu": "s-bleu"}
DEFAULT_METRICS = ("s-bleu", "d-bleu", "chrf")


class MetricResult(NamedTuple):
    """Scores of all systems for one metric.

    Attributes:
        label: name of the metric in tables.
        signature: settings of the metric, like the signatures of sacreBLEU.
        higher_is_better: whether a higher score is an improvement.
        scores: system -> score.  Scores are from 0 to 100, but TER can exceed 100, and the scores
            of COMET and of other programs have their own ranges.
        tests: name of the test -> system -> comparison with the first system, the baseline.
        segments: system -> (sentences,) scores, for COMET, doc-COMET and scores read from files.
            Empty for other metrics.
        groups: name of a group of segments -> system -> score.  In addition to the systems, the key
            ``segments`` holds the size of the group.  Empty without the option ``--by``.
    """

    label: str
    signature: str
    higher_is_better: bool
    scores: Dict[str, float]
    tests: Dict[str, Dict[str, Comparison]]
    segments: Dict[str, List[float]] = {}
    groups: Dict[str, Dict[str, float]] = {}


def corpus_metrics(
    translations: Translations,
    metrics: Sequence[str] = DEFAULT_METRICS,
    tests: Sequence[str] = (),
    options: Options = DEFAULT_OPTIONS,
    samples: int = 0,
) -> List[MetricResult]:
    """Compute the metrics of all systems, and test each system against the first system.

    Args:
        translations: test set with the translations of one or more systems.
        metrics: names of metrics, such as ``s-bleu``; keys of ``METRICS``.
        tests: any of ``bootstrap``, ``randomisation`` and ``sign``.
        options: settings of the metrics.
        samples: number of bootstrap resamples or randomisation trials; 0 for sacreBLEU's defaults,
            1,000 resamples or 10,000 trials.

    Returns:
        The result of each metric.

    Raises:
        UserError: a metric or a test is unknown, or a metric needs a package or a model that is not
            installed.
    """
    for kind, names, known in (
        ("metric", metrics, METRICS),
        ("test", tests, (*significance.PAIRED_TESTS, "sign")),
    ):
        for name in names:
            if name not in known:
                raise UserError(f"unknown {kind} {name!r}; give {', '.join(known)}")
    return [_one_metric(translations, METRICS[m], tests, options, samples) for m in metrics]


def given_metrics(
    translations: Translations, given: Sequence[Given], tests: Sequence[str], samples: int = 0
) -> List[MetricResult]:
    """Average segment scores from other programs, and test each system against the first system.

    Args:
        translations: test set.
        given: segment scores, one entry for each metric.
        tests, samples: significance tests and their number of samples, as in
            :func:`corpus_metrics`.

    Returns:
        The result of each metric, in which the score of a system is the mean of its segment scores.
    """
    found = []
    for scores in given:
        statistics = {
            name: np.stack([values, np.ones(len(values))], axis=1)
            for name, values in scores.systems.items()
        }
        better = "higher" if scores.higher_is_better else "lower"
        signature = f"{translations.signature}|unit:sentence|given|better:{better}"
        kind = Kind(scores.name, "sentence", scores.higher_is_better)
        metric = SegmentMean(scores.name)
        found.append(_result(translations, kind, metric, statistics, signature, tests, samples))
    return found


def bleu_of_ranges(
    place: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    size: int,
    metric: BLEU,
) -> Dict[str, float]:
    """Compute BLEU for each range of sentence positions in documents.

    For example, range ``1-10`` consists of the first ten sentences of every document.

    Args:
        place: (sentences,) position of each sentence in its document, from 0.
        hypotheses: (sentences,) translations.
        references: one or more references, each (sentences,).
        size: number of positions in a range.
        metric: sacreBLEU's BLEU metric.

    Returns:
        Name of the range -> BLEU, in increasing order.  Ranges without sentences are left out.
    """
    ranges: Dict[int, List[int]] = defaultdict(list)
    for sentence, at in enumerate(place):
        ranges[at // size].append(sentence)
    scores = {}
    for number, sentences in sorted(ranges.items()):
        found = metric.corpus_score(
            [hypotheses[i] for i in sentences], [[r[i] for i in sentences] for r in references]
        )
        scores[range_of(number, size)] = found.score
    return scores


def range_of(number: int, size: int) -> str:
    """Return the name of a range of sentence positions, such as ``1-10``.

    Args:
        number: index of the range, from 0.
        size: number of positions in a range.
    """
    return f"{number * size + 1}-{(number + 1) * size}"


def counts_of_ranges(place: Sequence[int], size: int) -> Dict[str, int]:
    """Return the number of sentences in each range of positions in documents, e.g. ``1-10``.

    Ranges without sentences are left out.

    Args:
        place, size: see :func:`bleu_of_ranges`.
    """
    counts = np.bincount(np.asarray(place) // size).tolist()
    return {range_of(n, size): count for n, count in enumerate(counts) if count}


def _one_metric(translations: Translations, kind: Kind, tests, options, samples) -> MetricResult:
    if kind.unit == WINDOWS:
        translations = windows_of(translations)
    if kind.unit == "document":
        systems = {name: translations.documents(name) for name in translations.names}
        references = [translations.joined(texts) for texts in translations.references]
    else:
        systems, references = translations.systems, translations.references
    metric = kind.build(options, translations)
    statistics = statistics_of(systems, references, metric)
    signature = f"{translations.signature}|unit:{kind.unit}|{metric.get_signature()}"
    return _result(translations, kind, metric, statistics, signature, tests, samples)


def _by_group(
    texts: Translations, kind: Kind, metric: Metric, statistics: Statistics
) -> Dict[str, Dict[str, float]]:
    """Return the score of each system for each group of segments (option ``--by``).

    Document-level metrics score whole documents.  For them, all documents whose segments belong to
    different groups are put into a separate group called ``several``.

    Args:
        texts: test set.
        kind: definition of the metric.
        metric: the sacreBLEU metric.
        statistics: system -> (segments, statistics) array of sacreBLEU's statistics for each
            segment, such as the numbers of matching n-grams.

    Returns:
        Group -> system -> score.  Beside the systems, the key ``segments`` holds the size of the
        group.  The dictionary is empty if the test set has no groups or the metric scores blocks of
        sentences.

    Raises:
        UserError: a system is called ``segments``.
    """
    groups = texts.groups
    if groups is None or kind.unit == WINDOWS:
        return {}
    if SIZE in statistics:
        raise UserError(f"--by: the number of segments is called {SIZE}; rename the system")
    if kind.unit == "document":
        sets = [set(groups[a:b]) for a, b in texts.index.spans]
        groups = [each.pop() if len(each) == 1 else MIXED for each in sets]
    found = {}
    for group in dict.fromkeys(groups):
        rows = [row for row, own in enumerate(groups) if own == group]
        scores = {
            name: significance.score_of(metric, values[rows].sum(axis=0))
            for name, values in statistics.items()
        }
        found[group] = {SIZE: len(rows), **scores}
    return found


def _result(
    translations: Translations,
    kind: Kind,
    metric: Metric,
    statistics: Statistics,
    signature: str,
    tests: Sequence[str],
    samples: int,
) -> MetricResult:
    """Compute the scores and significance tests of a metric from the statistics of segments.

    Args:
        translations: test set.
        kind: definition of the metric.
        metric: the sacreBLEU metric.
        statistics: system -> (segments, statistics) array of sacreBLEU's statistics for each
            segment, such as the numbers of matching n-grams.
        signature: description of test set and metric, in sacreBLEU's format.
        tests, samples: significance tests and their number of samples, as in
            :func:`corpus_metrics`.
    """
    scores = {
        name: significance.score_of(metric, rows.sum(axis=0)) for name, rows in statistics.items()
    }
    found = {}
    for test in tests if len(statistics) > 1 else ():
        if test == "sign":
            found[test] = significance.sign_tests(statistics, metric, kind.higher_is_better)
        else:
            found[test] = significance.paired_tests(statistics, metric, test, samples)
    segments = {}
    if isinstance(metric, SegmentMean) and kind.unit == "sentence":
        segments = {name: (metric.scale * rows[:, 0]).tolist() for name, rows in statistics.items()}
    groups = _by_group(translations, kind, metric, statistics)
    return MetricResult(
        kind.label, signature, kind.higher_is_better, scores, found, segments, groups
    )


def statistics_of(
    systems: Dict[str, List[str]], references: List[List[str]], metric: Metric
) -> Statistics:
    """Compute, for each segment, the statistics from which sacreBLEU computes corpus scores.

    For BLEU, for example, these are lengths and numbers of matching n-grams.  Segments are
    processed in blocks, because the n-grams of references need a lot of memory.  Large test sets
    are processed in parallel where possible, with one process per CPU.  COMET scores all segments
    of a system at once.

    Args:
        systems: name -> segments.
        references: one or more references, each a list of segments.
        metric: the sacreBLEU metric.

    Returns:
        System -> (segments, statistics) float64 array; with this type, counts are exact and matrix
        products are fast.
    """
    size = len(references[0])
    if isinstance(metric, Comet):
        rows = {
            name: metric._extract_corpus_statistics(t, references) for name, t in systems.items()
        }
        return {name: np.asarray(found, dtype=np.float64) for name, found in rows.items()}

    def of_block(part: slice) -> List[np.ndarray]:
        metric._ref_cache = metric._cache_references([texts[part] for texts in references])
        found = (metric._extract_corpus_statistics(texts[part], None) for texts in systems.values())
        return [np.asarray(rows, dtype=np.float64) for rows in found]

    characters = sum(map(len, references[0]))
    is_large = characters > LARGE and can_fork()
    block = min(BLOCK, math.ceil(size / BLOCKS)) if is_large else BLOCK
    parts = [slice(first, first + block) for first in range(0, size, block)]
    # The metric in this process also has to know the number of references, for its signature.
    metric._cache_references([texts[:1] for texts in references])
    blocks = forked_map(of_block, parts) if is_large else [*map(of_block, parts)]
    return {name: np.concatenate(rows) for name, rows in zip(systems, zip(*blocks))}
