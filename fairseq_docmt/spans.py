"""Spans: consecutive sentences that form one model input.

A span is a pair (first, end) of sentence indices, end excluded, within one document.
All public functions return an int64 array of shape (spans, 2).
"""

from typing import Callable, Optional, Sequence, Tuple, Union

import numpy as np

from fairseq_docmt.document_index import DocumentIndex

#: (number of tokens of each sentence with its end symbol, maximum number of tokens of a span)
Limit = Tuple[np.ndarray, int]
#: (examples, 2) spans, or a function that draws an epoch's spans with a random generator
Spans = Union[np.ndarray, Callable[..., np.ndarray]]


def _cumulative(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.float64))])


def window_spans(
    index: DocumentIndex,
    window_size: int,
    limits: Sequence[Limit],
    *,
    stride: int = 1,
    sample_size: bool = False,
    random: Optional[np.random.RandomState] = None,
) -> np.ndarray:
    """Return the spans of windows of up to ``window_size`` sentences, ``stride`` sentences apart.

    A window consists of ``stride`` new sentences and of up to ``window_size - stride`` earlier
    sentences of the document before them.  The last window of a document has only the new sentences
    that are left, so every sentence is new in exactly one window.  With a stride of 1, each
    sentence is therefore the last one of a window.

    A window that exceeds a limit loses its oldest sentences.  If the new sentences alone exceed the
    limit, they are divided among several windows of similar length.

    Args:
        index: sentences and documents.
        window_size: maximum number of sentences.
        limits: maximum numbers of tokens, for example one for the source and one for the target.
        stride: number of new sentences, at most ``window_size``.
        sample_size: whether to draw the number of earlier sentences of each window, from 0 to
            ``window_size - stride``; no effect without ``random``.
        random: random generator.  If it is given, the number of new sentences in the first window
            of each document is drawn, too, from 1 to ``stride``.  If it is None, nothing is drawn.
    """
    drawn = None if random is None else random.randint(1, stride + 1, size=index.num_documents)
    firsts = stride if drawn is None else drawn[index.document]
    is_last = (index.position + 1 - firsts) % stride == 0
    is_last[index.starts[1:] - 1] = True
    ends = np.flatnonzero(is_last) + 1
    new, ends = _cut_where_too_long(np.append(0, ends)[:-1], ends, limits)
    before = window_size - stride
    if sample_size and random is not None:
        before = random.randint(0, before + 1, size=len(ends))
    first = np.maximum(index.starts[index.document[new]], new - before)
    for sizes, most in limits:
        total = _cumulative(sizes)
        while True:
            too_long = (total[ends] - total[first] > most) & (first < new)
            if not too_long.any():
                break
            first = first + too_long
    return np.stack([first, ends], axis=1)


def _cut_where_too_long(first: np.ndarray, ends: np.ndarray, limits: Sequence[Limit]):
    """Cut spans that exceed a limit into parts of similar length.

    The spans must cover all sentences in order, without gaps.

    Returns:
        First sentences and exclusive ends of the resulting spans, as two arrays.
    """
    too_long = np.zeros(len(ends), dtype=bool)
    for sizes, most in limits:
        total = _cumulative(sizes)
        too_long |= total[ends] - total[first] > most
    if not too_long.any():
        return first, ends
    parts = [
        part
        for a, b in zip(first[too_long].tolist(), ends[too_long].tolist())
        for part in _equal_parts(a, b, limits[0], limits)
    ]
    cut_at = np.array([a for a, _ in parts], dtype=np.int64)
    first = np.union1d(first, cut_at)
    return first, np.append(first[1:], ends[-1])


def stride_spans(index: DocumentIndex, size: int, limits: Sequence[Limit]) -> np.ndarray:
    """Cut each document into consecutive spans of ``size`` sentences; the last may be shorter.

    A span that exceeds one of ``limits`` is cut into parts of similar length.
    """
    return window_spans(index, size, limits, stride=size)


def with_next_sentences(
    spans: np.ndarray, index: DocumentIndex, number: int, limit: Limit
) -> np.ndarray:
    """Extend spans by up to ``number`` sentences that follow them in the document.

    If a span would exceed the limit, it is extended by fewer sentences.
    """
    first, end = spans[:, 0], spans[:, 1]
    total, most = _cumulative(limit[0]), limit[1]
    following = np.minimum(end + number, index.starts[index.document[first] + 1])
    while True:
        too_long = (total[following] - total[first] > most) & (following > end)
        if not too_long.any():
            return np.stack([first, following], axis=1)
        following = following - too_long


def part_spans(
    index: DocumentIndex,
    length: Limit,
    limits: Sequence[Limit],
    parts: Union[int, np.ndarray] = 1,
) -> np.ndarray:
    """Return a span for each document, or for each of several parts if a document is too long.

    Documents are cut at sentence ends, into parts of similar length.  In Herold and Ney (2023),
    section 3.1, for example, the limit is 1000 tokens, so that a document of 1500 tokens becomes
    two parts of about 750.  The number of parts is increased until all parts are within all limits.
    A single sentence that exceeds a limit is a part of its own.

    Args:
        index: sentences and documents.
        length: sentence lengths by which parts are balanced, and the maximum length of a part
            (target tokens).
        limits: further limits, such as the maximum positions of a model.
        parts: number of parts to begin with, either one number or an array with a number for each
            document.  A document with no more sentences than this is cut into single sentences.
    """
    spans, limits = [], [length, *limits]
    fewest = np.broadcast_to(parts, index.num_documents)
    for (start, end), least in zip(index.spans, fewest):
        spans.extend(_equal_parts(start, end, length, limits, least))
    return np.array(spans, dtype=np.int64).reshape(-1, 2)


def spans_of_several_lengths(
    index: DocumentIndex, length: Limit, limits: Sequence[Limit], numbers: Sequence[int]
) -> np.ndarray:
    """Cut each document once for each number of parts in ``numbers``, and return all parts.

    A part that results from several cuts is returned once.  This serves multi-resolution training
    (Sun et al., 2022, Rethinking Document-level Neural Machine Translation).

    Args:
        index, length, limits: see :func:`part_spans`.
        numbers: values of the argument ``parts`` of :func:`part_spans`, one for each cut.
    """
    cut = [part_spans(index, length, limits, number) for number in numbers]
    return np.unique(np.concatenate(cut), axis=0)


def spans_of_sampled_lengths(
    index: DocumentIndex,
    length: Limit,
    limits: Sequence[Limit],
    numbers: Sequence[int],
    *,
    random: np.random.RandomState,
) -> np.ndarray:
    """Cut each document into a number of parts that is drawn from ``numbers``.

    Args:
        index, length, limits: see :func:`part_spans`.
        numbers: values from which the argument ``parts`` of :func:`part_spans` is drawn for each
            document.
        random: random number generator.
    """
    return part_spans(index, length, limits, random.choice(numbers, size=index.num_documents))


def _equal_parts(
    start: int, end: int, length: Limit, limits: Sequence[Limit], least: int = 1
) -> list:
    """Cut a span into parts of similar length, with as many parts as the limits require.

    The number of parts is increased until all parts meet the limits.

    Args:
        start, end: first sentence and exclusive end of the span.
        length: sentence lengths by which parts are balanced; the maximum in it is not used.
        limits: token limits of a part.
        least: number of parts to begin with.  Fewer parts result if several cuts fall on the same
            sentence end.

    Returns:
        (first, end) of each part.  If no number of parts meets the limits, each sentence is a part.
    """
    if least >= end - start:
        return [(sentence, sentence + 1) for sentence in range(start, end)]
    sums = [(_cumulative(sizes[start:end]), most) for sizes, most in limits]
    ends = _cumulative(length[0][start:end])
    wanted = max([least] + [int(np.ceil(total[-1] / most)) for total, most in sums])
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


def mixed_spans(
    spans: Spans,
    tgt_sizes: np.ndarray,
    first_pair: int,
    ratio: float,
    loss_on_last: bool = False,
    *,
    random: np.random.RandomState,
) -> np.ndarray:
    """Return the spans of documents, followed by randomly chosen single sentence pairs.

    Pairs are chosen until they have ``ratio`` times as many target tokens as the documents.  Only
    target tokens that contribute to the loss are counted.  No pair is chosen again before all other
    pairs have been chosen.

    Args:
        spans: spans of the documents, or a function that draws them with ``random``.
        tgt_sizes: (sentences,) number of target tokens.
        first_pair: index of the first sentence pair; earlier sentences belong to documents.
        ratio: desired number of target tokens in sentence pairs per target token in documents.
        loss_on_last: whether only the last sentence of a document's span contributes to the loss.
        random: random generator of the epoch.
    """
    spans = spans(random=random) if callable(spans) else spans
    total = np.append(0, np.cumsum(tgt_sizes))
    first, end = spans.T
    wanted = ratio * (total[end] - total[end - 1 if loss_on_last else first]).sum()
    sizes = tgt_sizes[first_pair:]
    times, rest = divmod(wanted, sizes.sum())
    shuffled = random.permutation(len(sizes))
    # The sum before a pair decides whether it is still needed.
    before = np.cumsum(sizes[shuffled]) - sizes[shuffled]
    chosen = np.concatenate([np.tile(np.arange(len(sizes)), int(times)), shuffled[before < rest]])
    chosen = np.sort(chosen) + first_pair
    return np.concatenate([spans, np.stack([chosen, chosen + 1], axis=1)])
