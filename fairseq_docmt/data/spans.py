"""Spans: consecutive sentences that form one model input.

A span is a pair (first, end) of sentence numbers, end excluded, within one document.
All functions return an int64 array of shape (spans, 2).
"""

from typing import Sequence, Tuple

import numpy as np

from fairseq_docmt.data.document_index import DocumentIndex

#: (number of tokens of each sentence with its end symbol, maximum number of tokens of a span)
Limit = Tuple[np.ndarray, int]


def _cumulative(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.float64))])


def window_spans(index: DocumentIndex, window_size: int, limits: Sequence[Limit]) -> np.ndarray:
    """Return a window for each sentence: it and up to ``window_size - 1`` sentences before it.

    Windows are shorter at the beginning of a document.  A window that exceeds a limit loses its
    oldest sentences, but never the current one.
    """
    current = np.arange(index.num_sentences)
    first = np.maximum(index.starts[index.document], current - window_size + 1)
    for sizes, most in limits:
        ends = _cumulative(sizes)
        while True:
            too_long = (ends[current + 1] - ends[first] > most) & (first < current)
            if not too_long.any():
                break
            first = first + too_long
    return np.stack([first, current + 1], axis=1)


def stride_spans(index: DocumentIndex, size: int, limits: Sequence[Limit]) -> np.ndarray:
    """Cut each document into consecutive spans of ``size`` sentences; the last may be shorter."""
    spans = []
    for start, end in zip(index.starts[:-1], index.starts[1:]):
        for first in range(start, end, size):
            last = min(first + size, end)
            spans.extend(_equal_parts(first, last, limits[0], limits))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def part_spans(index: DocumentIndex, length: Limit, limits: Sequence[Limit]) -> np.ndarray:
    """Return whole documents, cutting those that are too long into parts of similar length.

    Documents are cut at sentence ends.  Herold and Ney (2023), section 3.1: with a limit of 1000,
    a document of 1500 tokens becomes two parts of about 750.  The number of parts is increased
    until all parts are within all limits; a single sentence over a limit is a part of its own.

    Args:
        index: sentences and documents.
        length: length that the parts have in common, and its limit (target tokens).
        limits: further limits, such as the maximum positions of a model.
    """
    spans = []
    for start, end in zip(index.starts[:-1], index.starts[1:]):
        spans.extend(_equal_parts(start, end, length, [length, *limits]))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def _equal_parts(start: int, end: int, length: Limit, limits: Sequence[Limit]) -> list:
    sums = [(_cumulative(sizes[start:end]), most) for sizes, most in limits]
    ends = _cumulative(length[0][start:end])
    wanted = max([1] + [int(np.ceil(total[-1] / most)) for total, most in sums])
    for parts in range(min(wanted, end - start), end - start + 1):
        goals = ends[-1] * np.arange(1, parts) / parts
        cuts = np.searchsorted(ends, goals)
        # Cut at the sentence end that is nearest to each goal.
        cuts -= (goals - ends[cuts - 1]) < (ends[cuts] - goals)
        cuts = np.unique(np.concatenate([[0], cuts, [end - start]]))
        if all((np.diff(total[cuts]) <= most).all() for total, most in sums):
            break
    else:
        cuts = np.arange(end - start + 1)
    return [(start + a, start + b) for a, b in zip(cuts[:-1], cuts[1:])]
