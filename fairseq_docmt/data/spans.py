"""Stretches of consecutive sentences that are put together into one model input.

A span is a pair (first, end) of sentence numbers, end excluded; it never crosses a document.
All functions return an int64 array of shape (spans, 2).
"""

from typing import Sequence, Tuple

import numpy as np

from fairseq_docmt.data.document_index import DocumentIndex

#: (tokens of each sentence with its end symbol, most tokens a span may have)
Limit = Tuple[np.ndarray, int]


def _cumulative(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.float64))])


def window_spans(index: DocumentIndex, window_size: int, limits: Sequence[Limit]) -> np.ndarray:
    """For each sentence, the sentence with up to ``window_size - 1`` before it.

    Windows are shorter at the beginning of a document, and lose their oldest sentences where
    they would exceed a limit, but never the current sentence.
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
    """Cut each document into consecutive spans of ``size`` sentences, shorter ones at the end."""
    spans = []
    for start, end in zip(index.starts[:-1], index.starts[1:]):
        for first in range(start, end, size):
            last = min(first + size, end)
            spans.extend(_equal_parts(first, last, limits[0], limits))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def part_spans(index: DocumentIndex, length: Limit, limits: Sequence[Limit]) -> np.ndarray:
    """Whole documents, cut at sentence ends into parts of roughly equal length when too long.

    Herold and Ney (2023), section 3.1: a document of 1500 tokens under a limit of 1000 becomes
    two parts of about 750.  One more part is made until every part keeps all limits; a single
    sentence over a limit stays a part of its own.

    Args:
        length: what the parts are to be equal in, and its limit (target tokens).
        limits: further limits, as the positions of a model.
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
        # Of the two sentence ends around each goal take the nearer one.
        cuts -= (goals - ends[cuts - 1]) < (ends[cuts] - goals)
        cuts = np.unique(np.concatenate([[0], cuts, [end - start]]))
        if all((np.diff(total[cuts]) <= most).all() for total, most in sums):
            break
    else:
        cuts = np.arange(end - start + 1)
    return [(start + a, start + b) for a, b in zip(cuts[:-1], cuts[1:])]
