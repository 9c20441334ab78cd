"""Segment scores from other programs or annotators: MetricX, xCOMET, GEMBA, ESA, MQM and others.

The scores are read from files.  Their mean becomes the score of a system, and they take part in
significance tests, in scores by position and in the report.
"""

import re
from collections import defaultdict
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from sacrebleu.metrics.base import Metric, Score, Signature

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import record_files, with_selection
from fairseq_docmt.readers.files import finite_number, lines_of, read_text, segment_number
from fairseq_docmt.readers.record_files import DOCUMENT_FIELDS, SEGMENT_FIELDS
from fairseq_docmt.readers.records import SYSTEM_FIELDS, name_of
from fairseq_docmt.scoring.texts.layout import NOT_BY_ORDER
from fairseq_docmt.scoring.texts.test_set import Translations

#: Absolute value above which a score is taken for a mistake.
LARGEST = 1e100
#: Default name of the field of a record that holds the score.
FIELD = "score"


class SegmentMean(Metric):
    """sacreBLEU metric whose corpus score is the mean of the scores of its segments.

    The scores are read from a file or computed by a subclass.  The statistics of a segment are its
    score and 1, so that their sums give the mean.

    Args:
        name: name of the metric.
        scale: factor by which the mean is multiplied.
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
    """Segment scores of one metric, computed by another program.

    Attributes:
        name: name of the metric.
        higher_is_better: whether a higher score is an improvement.
        systems: system -> (segments,) scores.
    """

    name: str
    higher_is_better: bool
    systems: Dict[str, List[float]]


def read(arguments: Iterable[str], lower: Sequence[str], texts: Translations) -> List[Given]:
    """Read the segment scores in the files of the option ``--scores``.

    Args:
        arguments: values of the option: ``METRIC=FILE``, or ``METRIC:SYSTEM=FILE`` for files that
            do not name systems.
        lower: metrics for which a lower score is better.
        texts: test set.

    Returns:
        The scores of each metric, for all systems of the test set.

    Raises:
        UserError: an argument or a file is malformed, or scores are missing or given twice.
    """
    found: Dict[str, Dict[str, List[float]]] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        metric, _, system = name.partition(":")
        if not (metric and equals and path):
            raise UserError(f"--scores {argument}: give METRIC=FILE or METRIC:SYSTEM=FILE")
        if system and system not in texts.names:
            raise UserError(f"--scores {argument}: no system is called {system}")
        if not system and len(texts.names) == 1:
            system = texts.names[0]
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
    """Read the segment scores of each system from one file.

    Args:
        argument: ``FILE``, or ``FILE#FIELD`` to name the field that holds the score.
        metric: name of the metric; without ``FIELD``, a field of this name is tried.
        system: the system named in ``METRIC:SYSTEM=FILE``; "" if the file itself names systems.
        texts: test set.

    Returns:
        System -> (segments,) scores.  Systems that are not in the test set are left out.

    Raises:
        UserError: the file is malformed, does not name systems, or does not have one score for each
            segment.
    """
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
    for number, line in enumerate(lines_of(text), start=1):
        if not line:
            continue
        name, _, value = line.rpartition("\t")
        rows[name.strip()].append(_number(value, f"{path}: line {number}"))
    if "" in rows and (len(rows) > 1 or not system):
        raise UserError(f"{path} does not name systems; give --scores {metric}:SYSTEM={path}")
    rows = {system: rows[""]} if "" in rows else rows
    return {
        name: _in_order(scores, f"{path}: {name}", texts)
        for name, scores in rows.items()
        if name in texts.names and system in ("", name)
    }


def _of_records(
    records: record_files.Records,
    path: str,
    field: str,
    metric: str,
    system: str,
    texts: Translations,
) -> Dict[str, List[float]]:
    """Return the segment scores of each system, read from records of segments or documents.

    Args:
        records: for each record, its location in the file and its fields.  The record of a document
            with several segments holds a list of scores.
        path: file, for messages.
        field: field that holds the score; "" to try ``metric`` and ``score``.
        metric: name of the metric.
        system: the only system to read; records that name no system belong to it.  "" to read all
            systems.
        texts: test set.

    Returns:
        System -> (segments,) scores, in the order of the test set.

    Raises:
        UserError: a record names no system or is malformed, or a segment has no score or several.
    """
    places = _places(texts)
    found: Dict[str, Dict[int, float]] = defaultdict(dict)
    documents = set()
    for where, record in records:
        name = name_of(where, record, SYSTEM_FIELDS) or system
        if not name:
            raise UserError(f"{where} names no system; give --scores {metric}:SYSTEM={path}")
        if name not in texts.names or system not in ("", name):
            continue
        document = name_of(where, record, DOCUMENT_FIELDS)
        documents.add(document)
        if document not in places:
            continue
        value = _value(record, where, field, metric)
        for place, score in _by_segment(value, record, where, document, places[document]):
            if place in found[name]:
                raise UserError(f"{where}: {name} already has a score of this segment")
            found[name][place] = _number(score, where)
    if documents and documents.isdisjoint(places):
        raise UserError(
            f"{path} has the document {[*documents][0]}, but the test set {[*places][0]}: they "
            "have no document in common; give a reference with the same ids"
        )
    size = texts.index.num_sentences
    for name, scores in found.items():
        for place in range(size):
            if place not in scores:
                raise UserError(f"{path}: {name} lacks a score of {texts.place(place)}")
    return {name: [scores[place] for place in range(size)] for name, scores in found.items()}


def _by_segment(
    value, record: dict, where: str, document: str, segments: Dict[str, int]
) -> List[Tuple[int, Any]]:
    """Return (index of a segment, its score) for each segment of the test set in a record.

    Args:
        value: score of one segment, or list with those of a whole document, as in the file.
        record: fields of the record.
        where: location of the record, for error messages.
        document: name of its document.
        segments: name of each segment of the document -> index in the test set.

    Raises:
        UserError: it is unclear to which segments the scores belong.
    """
    number = segment_number(name_of(where, record, SEGMENT_FIELDS))
    if isinstance(value, list):
        if len(value) != len(segments):
            raise UserError(
                f"{where} has {len(value)} scores, but document {document} has {len(segments)} "
                "segments"
            )
        return list(zip(segments.values(), value))
    if number is not None:
        return [(segments[number], value)] if number in segments else []
    if len(segments) == 1:
        return [(next(iter(segments.values())), value)]
    raise UserError(f'{where} has no "segment", and document {document} has several')


def _places(texts: Translations) -> Dict[str, Dict[str, int]]:
    """Return where each segment is in the test set: document -> name of the segment -> index.

    Segments without names are named by their number in the document of the files, from 1.
    """
    found = {}
    segment_numbers = texts.numbers or (texts.position + 1).tolist()
    for number, (first, end) in enumerate(texts.index.spans):
        numbers = segment_numbers[first:end]
        names = dict(zip(map(str, numbers), range(first, end)))
        found[texts.name_of(number)] = names
    return found


def _in_order(scores: List[float], where: str, texts: Translations) -> List[float]:
    """Check the number of scores, and return one score for each evaluated segment.

    Args:
        scores: scores in the order of the test set: either of all segments in the files, or only of
            those that are evaluated.
        where: where the scores come from, for messages.
        texts: test set; its ``kept`` tells which segments are evaluated.

    Raises:
        UserError: the test set was reordered, or there is neither one score per segment nor one per
            evaluated segment.
    """
    if texts.reordered:
        raise UserError(NOT_BY_ORDER.format(path=where, test_set="the test set"))
    size = texts.index.num_sentences
    if texts.kept is not None and len(scores) == len(texts.kept):
        return [score for score, kept in zip(scores, texts.kept) if kept]
    if len(scores) != size:
        wanted = f"{size} segments"
        if texts.kept is not None:
            wanted = f"{len(texts.kept)} segments, {size} of them evaluated"
        raise UserError(f"{where} has {len(scores)} scores, but the test set {wanted}")
    return scores


def _value(record: dict, where: str, field: str, metric: str):
    """Return the score in a record, as it is in the file.

    Args:
        record: fields of the record.
        where: location of the record, for error messages.
        field: name of the score field, where ``a.b`` is the field ``b`` of the dictionary ``a``; ""
            to try ``metric``, then ``score``.
        metric: name of the metric.

    Raises:
        UserError: the record has no such field, or it is null.
    """
    names = [field] if field else [metric, FIELD]
    for name in names:
        value: Any = record
        for part in [name] if name in record else name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    for name in names:
        if name in record:
            raise UserError(f'{where}: "{name}" must be a number, not null')
    raise UserError(
        f'{where} has no "{field or FIELD}"; name the field of the score as {metric}=FILE#FIELD'
    )


def _number(value, where: str) -> float:
    """Convert a score to a number.

    Args:
        value: score, as read from a file.
        where: location in the file, for error messages.

    Raises:
        UserError: the value is not a finite number, or so large that a mean would overflow.  Files
            of mt-metrics-eval, for example, may have ``None`` for a segment without a score.
    """
    try:
        number = finite_number(value)
        if abs(number) > LARGEST:
            raise ValueError
        return number
    except ValueError:
        shown = re.sub(r"\s+", " ", str(value))[:40]
        raise UserError(
            f"{where}: {shown!r} is no score; every segment needs a finite number"
        ) from None
