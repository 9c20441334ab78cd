"""Scores of segments by other programs, such as MetricX, xCOMET, GEMBA, ESA or MQM.

They are read from files and averaged, and take part in significance tests, in scores by position
and in the report.
"""

import math
import re
from collections import defaultdict
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

from sacrebleu.metrics.base import Metric, Score, Signature

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import record_files, with_selection
from fairseq_docmt.readers.files import lines_of, read_text
from fairseq_docmt.readers.record_files import DOCUMENT_FIELDS, SEGMENT_FIELDS
from fairseq_docmt.readers.records import SYSTEM_FIELDS, value_of
from fairseq_docmt.scoring.texts.translations import Translations

#: Field with the score of a record, if none is named.
FIELD = "score"


class SegmentMean(Metric):
    """A metric that is the mean over segments; its statistics are the score and 1.

    Args:
        name: name of the metric.
        scale: factor of the mean.
    """

    _SIGNATURE_TYPE = Signature

    def __init__(self, name: str, scale: float = 1.0):
        super().__init__()
        self.name, self.scale = name, scale

    def _compute_score_from_stats(self, stats: List[float]) -> Score:
        return Score(self.name, self.scale * stats[0] / stats[1])

    def _aggregate_and_compute(self, stats: List[List[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats)])

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> Dict[str, Any]:
        return {}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: Dict) -> List[float]:
        raise NotImplementedError("all segments are scored at once")


class Given(NamedTuple):
    """Scores of one metric.

    Attributes:
        name: name of the metric.
        higher_is_better: direction.
        systems: system -> (segments,) scores.
    """

    name: str
    higher_is_better: bool
    systems: Dict[str, List[float]]


def read(arguments: Iterable[str], lower: Sequence[str], texts: Translations) -> List[Given]:
    """Read the arguments ``METRIC=FILE`` and ``METRIC:SYSTEM=FILE`` of ``--scores``.

    Args:
        arguments: arguments; a file without systems needs the name of its system.
        lower: metrics of which a lower score is better.
        texts: test set.

    Raises:
        UserError: an argument or a file is not understood, or scores are missing or given twice.
    """
    found: Dict[str, Dict[str, List[float]]] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        metric, _, system = name.partition(":")
        if not (metric and equals and path):
            raise UserError(f"--scores {argument}: give METRIC=FILE or METRIC:SYSTEM=FILE")
        if system and system not in texts.names:
            raise UserError(f"--scores {argument}: no system is called {system}")
        systems = found.setdefault(metric, {})
        for own, scores in _read_file(path, metric, system, texts).items():
            if own in systems:
                raise UserError(f"--scores {argument}: {own} already has scores of {metric}")
            systems[own] = scores
    for name in lower:
        if name not in found:
            raise UserError(f"--lower-is-better {name}: --scores gives no such metric")
    for metric, systems in found.items():
        for name in texts.names:
            if name not in systems:
                raise UserError(f"--scores {metric}: scores of {name} are missing")
    return [
        Given(metric, metric not in lower, {name: systems[name] for name in texts.names})
        for metric, systems in found.items()
    ]


def _read_file(
    argument: str, metric: str, system: str, texts: Translations
) -> Dict[str, List[float]]:
    """Return the scores of each system in a file."""
    path, chosen = with_selection(argument)
    field = chosen or ""
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} has no scores")
    records = record_files.json_of(text, path)
    separator = record_files.separator_with(text, [field or metric, FIELD])
    if records is None and separator:
        records = record_files.table_records(text, path, separator)
    if records is not None:
        return _of_records(records, path, field, metric, system, texts)
    rows: Dict[str, List[float]] = defaultdict(list)
    for number, line in enumerate(filter(None, lines_of(text)), start=1):
        name, _, value = line.rpartition("\t")
        rows[name.strip()].append(_number(value, f"{path}: line {number}"))
    if "" in rows and (len(rows) > 1 or not system):
        raise UserError(f"{path} does not name systems; give --scores {metric}:SYSTEM={path}")
    rows = {system: rows[""]} if "" in rows else rows
    return {
        name: _in_order(scores, f"{path}: {name}", texts)
        for name, scores in rows.items()
        if name in texts.names
    }


def _of_records(
    records: record_files.Records,
    path: str,
    field: str,
    metric: str,
    system: str,
    texts: Translations,
) -> Dict[str, List[float]]:
    """Return the scores of each system in records of segments, or of documents with lists."""
    places = _places(texts)
    found: Dict[str, Dict[int, float]] = defaultdict(dict)
    for where, record in records:
        name = value_of(record, SYSTEM_FIELDS) or system
        if not name:
            raise UserError(f"{where} names no system; give --scores {metric}:SYSTEM={path}")
        if name not in texts.names or system and name != system:
            continue
        document = value_of(record, DOCUMENT_FIELDS)
        if document not in places:
            continue
        segments = places[document]
        value = _value(record, where, field, metric)
        number = value_of(record, SEGMENT_FIELDS)
        if isinstance(value, list):
            if len(value) != len(segments):
                raise UserError(
                    f"{where} has {len(value)} scores, but document {document} has "
                    f"{len(segments)} segments"
                )
            scores = list(zip(segments.values(), value))
        elif number is not None:
            scores = [(segments[number], value)] if number in segments else []
        elif len(segments) == 1:
            scores = [(next(iter(segments.values())), value)]
        else:
            raise UserError(f'{where} has no "segment", and document {document} has several')
        for place, score in scores:
            if place in found[name]:
                raise UserError(f"{where}: {name} already has a score of this segment")
            found[name][place] = _number(score, where)
    size = texts.index.num_sentences
    for name, scores in found.items():
        for place in range(size):
            if place not in scores:
                raise UserError(f"{path}: {name} lacks a score of {texts.place(place)}")
    return {name: [scores[place] for place in range(size)] for name, scores in found.items()}


def _places(texts: Translations) -> Dict[str, Dict[str, int]]:
    """Return the place of each segment: document -> name or number from 1 -> place."""
    found = {}
    for number, (first, end) in enumerate(texts.index.spans):
        numbers = texts.numbers[first:end] if texts.numbers else range(1, end - first + 1)
        names = dict(zip(map(str, numbers), range(first, end)))
        found[texts.name_of(number)] = names
    return found


def _in_order(scores: List[float], where: str, texts: Translations) -> List[float]:
    """Return scores that are given in the order of the test set, without left-out segments."""
    size = texts.index.num_sentences
    if texts.kept is not None and len(scores) == len(texts.kept):
        return [score for score, kept in zip(scores, texts.kept) if kept]
    if len(scores) != size:
        raise UserError(f"{where} has {len(scores)} scores, but the test set {size} segments")
    return scores


def _value(record: dict, where: str, field: str, metric: str):
    """Return the named field, or that of the metric, or ``score``."""
    for name in [field] if field else [metric, FIELD]:
        value: Any = record
        for part in [name] if name in record else name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    raise UserError(
        f'{where} has no "{field or FIELD}"; name the field of the score as {metric}=FILE#FIELD'
    )


def _number(value, where: str) -> float:
    """Return a finite number.

    Raises:
        UserError: it is none, such as ``None`` in files of mt-metrics-eval.
    """
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found) or isinstance(value, bool):
        shown = re.sub(r"\s+", " ", str(value))[:40]
        raise UserError(f"{where}: {shown!r} is no score; every segment needs a finite number")
    return found
