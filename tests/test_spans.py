"""Spans of sentences: windows, strides and parts of documents, with values worked out by hand."""

import numpy as np
import pytest

from fairseq_docmt.data import (
    DocumentIndex,
    part_spans,
    spans_of_sampled_lengths,
    spans_of_several_lengths,
    stride_spans,
    window_spans,
    with_next_sentences,
)


def no_limit(index):
    return [(np.ones(index.num_sentences, dtype=int), 10**9)]


@pytest.mark.parametrize(
    "lengths, sentence, size, want",
    [
        ((2, 3), 0, 2, [0]),  # first sentence of the corpus: no context, never wraps
        ((2, 3), 1, 2, [0, 1]),
        ((2, 3), 2, 2, [2]),  # first of a document: never the previous document's last
        ((2, 3), 4, 10, [2, 3, 4]),  # window longer than the document
        ((2, 3), 4, 1, [4]),
        ((1,), 0, 4, [0]),  # a corpus of one sentence
    ],
)
def test_windows(lengths, sentence, size, want):
    index = DocumentIndex.from_lengths(lengths)
    spans = window_spans(index, size, no_limit(index))
    assert list(range(*spans[sentence])) == want


def test_windows_lose_their_oldest_sentences_over_a_limit_but_never_the_current():
    index = DocumentIndex.from_lengths([4])
    sizes = np.array([5, 3, 4, 30])
    spans = window_spans(index, 4, [(sizes, 8), (np.array([1, 1, 1, 1]), 100)])
    assert spans.tolist() == [[0, 1], [0, 2], [1, 3], [3, 4]]


def test_strides_cover_each_document_once():
    index = DocumentIndex.from_lengths([5, 2])
    assert stride_spans(index, 2, no_limit(index)).tolist() == [[0, 2], [2, 4], [4, 5], [5, 7]]


def test_strides_over_a_limit_are_cut_in_equal_parts():
    """Parts are equal in the first limit; other limits may require more parts."""
    index = DocumentIndex.from_lengths([1, 4, 1])
    sizes, other = np.array([9, 4, 4, 4, 4, 9]), np.array([1, 3, 6, 2, 2, 1])
    spans = stride_spans(index, 4, [(sizes, 9), (other, 100)])
    assert spans.tolist() == [[0, 1], [1, 3], [3, 5], [5, 6]]
    spans = stride_spans(index, 4, [(sizes, 100), (other, 8)])
    assert spans.tolist() == [[0, 1], [1, 2], [2, 4], [4, 5], [5, 6]]


def test_a_document_within_the_limit_stays_whole():
    index = DocumentIndex.from_lengths([3, 2])
    sizes = np.array([4, 2, 4, 3, 3])
    assert part_spans(index, (sizes, 10), []).tolist() == [[0, 3], [3, 5]]
    assert part_spans(index, (sizes, 9), []).tolist() == [[0, 2], [2, 3], [3, 5]]


def test_parts_end_at_the_sentence_end_nearest_to_equal():
    """A goal of 10 tokens lies between the ends at 9 and 13, then between those at 7 and 12."""
    index = DocumentIndex.from_lengths([5])
    spans = part_spans(index, (np.array([4, 5, 4, 3, 4]), 11), [])
    assert spans.tolist() == [[0, 2], [2, 5]]
    spans = part_spans(index, (np.array([3, 4, 5, 4, 4]), 12), [])
    assert spans.tolist() == [[0, 3], [3, 5]]
    # Of two equally near sentence ends, the later one is taken.
    assert part_spans(index, (np.full(5, 4), 12), []).tolist() == [[0, 3], [3, 5]]
    three = part_spans(DocumentIndex.from_lengths([6]), (np.full(6, 5), 10), [])
    assert three.tolist() == [[0, 2], [2, 4], [4, 6]]


def test_a_document_of_1500_tokens_becomes_two_parts_of_750():
    index = DocumentIndex.from_lengths([30])
    sizes = np.full(30, 50)
    assert part_spans(index, (sizes, 1000), []).tolist() == [[0, 15], [15, 30]]


def test_parts_keep_every_limit_and_every_sentence():
    generator = np.random.RandomState(3)
    for _ in range(30):
        lengths = generator.randint(1, 25, size=6)
        index = DocumentIndex.from_lengths(lengths)
        sizes = generator.randint(2, 20, size=index.num_sentences)
        other = generator.randint(2, 30, size=index.num_sentences)
        spans = part_spans(index, (sizes, 60), [(other, 90)])
        covered = np.concatenate([np.arange(a, b) for a, b in spans])
        assert covered.tolist() == list(range(index.num_sentences))
        for first, end in spans:
            assert index.document[first] == index.document[end - 1]
            assert sizes[first:end].sum() <= 60 and other[first:end].sum() <= 90


def test_parts_are_roughly_equal():
    index = DocumentIndex.from_lengths([40])
    sizes = np.random.RandomState(0).randint(5, 15, size=40)
    spans = part_spans(index, (sizes, 120), [])
    totals = [sizes[a:b].sum() for a, b in spans]
    assert max(totals) - min(totals) <= 2 * 15


def test_a_sentence_over_the_limit_is_a_part_of_its_own():
    index = DocumentIndex.from_lengths([3])
    spans = part_spans(index, (np.array([4, 400, 4]), 100), [])
    assert spans.tolist() == [[0, 1], [1, 2], [2, 3]]
    index = DocumentIndex.from_lengths([1, 2, 1])
    spans = part_spans(index, (np.array([4, 4, 400, 4]), 100), [])
    assert spans.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


def windows_by_loop(index, size, stride, random=None, sample_size=False):
    """Windows that advance by ``stride``, sentence by sentence; with the draws of ``random``."""
    new_parts = []
    firsts = [stride] * index.num_documents
    if random is not None:
        firsts = random.randint(1, stride + 1, size=index.num_documents)
    for start, end, first in zip(index.starts[:-1], index.starts[1:], firsts):
        part = [start]
        while part[-1] < end:
            part.append(min(part[-1] + (first if part[-1] == start else stride), end))
        new_parts += [(start, a, b) for a, b in zip(part[:-1], part[1:])]
    context = [size - stride] * len(new_parts)
    if sample_size:
        context = random.randint(0, size - stride + 1, size=len(new_parts))
    return [[max(start, a - c), b] for (start, a, b), c in zip(new_parts, context)]


@pytest.mark.parametrize("sample_size", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_windows_advance_by_their_stride(stride, sample_size):
    index = DocumentIndex.from_lengths([1, 7, 4, 2, 11])
    limits = no_limit(index)
    for seed in range(5):
        options = {"stride": stride, "sample_size": sample_size}
        random, again = np.random.RandomState(seed), np.random.RandomState(seed)
        spans = window_spans(index, 4, limits, random=random, **options)
        assert spans.tolist() == windows_by_loop(index, 4, random=again, **options)
    spans = window_spans(index, 4, limits, stride=stride)
    assert spans.tolist() == windows_by_loop(index, 4, stride)


def test_every_sentence_is_in_as_many_windows_as_strides_fit():
    """Within a document in L / stride windows; the first draw decides where windows begin."""
    index = DocumentIndex.from_lengths([30])
    for stride, times in ((1, {4}), (2, {2}), (3, {1, 2}), (4, {1})):
        drawn = set()
        for seed in range(30):
            random = np.random.RandomState(seed)
            spans = window_spans(index, 4, no_limit(index), stride=stride, random=random)
            covered = np.concatenate([np.arange(a, b) for a, b in spans])
            counts = np.bincount(covered, minlength=30)
            assert counts.min() >= 1
            assert set(counts[4:-4].tolist()) == times
            drawn.add(int(spans[0, 1]))
        assert drawn == set(range(1, stride + 1))


def test_sampled_windows_have_every_size():
    index = DocumentIndex.from_lengths([200])
    for stride, sizes in ((1, [1, 2, 3, 4]), (3, [3, 4])):
        options = {"stride": stride, "sample_size": True, "random": np.random.RandomState(1)}
        spans = window_spans(index, 4, no_limit(index), **options)
        assert sorted(set(np.diff(spans[4:-1]).ravel().tolist())) == sizes


def test_windows_with_a_stride_keep_every_limit_and_every_sentence():
    """A window over a limit loses its context first; then its new sentences are cut in parts."""
    generator = np.random.RandomState(3)
    for seed in range(30):
        index = DocumentIndex.from_lengths(generator.randint(1, 25, size=6))
        sizes = generator.randint(2, 20, size=index.num_sentences)
        random = np.random.RandomState(seed)
        spans = window_spans(index, 6, [(sizes, 40)], stride=4, random=random)
        covered = np.concatenate([np.arange(a, b) for a, b in spans])
        assert sorted(set(covered.tolist())) == list(range(index.num_sentences))
        for first, end in spans:
            assert index.document[first] == index.document[end - 1]
            assert sizes[first:end].sum() <= 40
    index = DocumentIndex.from_lengths([4])
    spans = window_spans(index, 3, [(np.full(4, 5), 10)], stride=2)
    assert spans.tolist() == [[0, 2], [2, 4]]
    # The first three new sentences are cut into 0, 1 and 2.
    spans = window_spans(index, 4, [(np.full(4, 5), 10)], stride=3)
    assert spans.tolist() == [[0, 2], [1, 3], [2, 4]]


@pytest.mark.parametrize("number", [1, 2, 5])
def test_next_sentences_stay_in_the_document_and_the_limit(number):
    index = DocumentIndex.from_lengths([1, 4, 7])
    sizes = np.random.RandomState(2).randint(1, 9, size=12)
    spans = window_spans(index, 3, [(sizes, 20)])
    for most in (20, 30, 1000):
        wanted = []
        for first, end in spans.tolist():
            added = 0
            while added < number and end + added in np.flatnonzero(index.position > 0):
                if sizes[first : end + added + 1].sum() > most:
                    break
                added += 1
            wanted.append([first, end + added])
        assert with_next_sentences(spans, index, number, (sizes, most)).tolist() == wanted


def test_an_epoch_has_every_document_in_all_lengths():
    """Eight equal sentences: one part of eight, two of four, four of two, eight of one."""
    index = DocumentIndex.from_lengths([8, 1])
    length = (np.full(9, 5), 1000)
    spans = spans_of_several_lengths(index, length, [], [1, 2, 4, 8])
    wanted = [[a, a + size] for size in (8, 4, 2, 1) for a in range(0, 8, size)] + [[8, 9]]
    assert spans.tolist() == sorted(wanted)
    # A limit cuts further.
    spans = spans_of_several_lengths(index, (length[0], 20), [], [1, 4])
    assert spans.tolist() == sorted([[0, 4], [4, 8], [0, 2], [2, 4], [4, 6], [6, 8], [8, 9]])


def test_as_many_parts_as_sentences_are_the_sentences():
    index, sizes = DocumentIndex.from_lengths([4, 3]), np.array([2, 2, 90, 2, 90, 1, 1])
    for parts in (4, 100):
        spans = part_spans(index, (sizes, 1000), [], parts)
        assert spans.tolist() == [[i, i + 1] for i in range(7)]
    spans = part_spans(index, (sizes, 1000), [], np.array([1, 3]))
    assert spans.tolist() == [[0, 4], [4, 5], [5, 6], [6, 7]]


def test_sampled_lengths_cut_each_document_in_one_way():
    index = DocumentIndex.from_lengths([8, 5, 1, 30])
    sizes = np.random.RandomState(0).randint(2, 9, size=44)
    drawn = set()
    for seed in range(20):
        given = (index, (sizes, 100), [(sizes, 60)])
        random, again = np.random.RandomState(seed), np.random.RandomState(seed)
        spans = spans_of_sampled_lengths(*given, [1, 2, 4], random=random).tolist()
        wanted = []
        for document, number in enumerate(again.choice([1, 2, 4], size=4)):
            every = part_spans(*given, int(number))
            wanted += every[index.document[every[:, 0]] == document].tolist()
            drawn.add((document, int(number)))
        assert spans == wanted
    assert len(drawn) == 12
