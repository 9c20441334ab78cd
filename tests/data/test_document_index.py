"""Documents read from the blank lines of a corpus."""

import numpy as np
import pytest

from fairseq_docmt.data import DocumentIndex


@pytest.mark.parametrize(
    "sizes, joints, rows, starts",
    [
        ([3, 4, 1, 5], [], [0, 1, 3], [0, 2, 3]),
        ([1, 1, 3, 1, 1, 4, 1], [], [2, 5], [0, 1, 2]),  # blanks at both ends and repeated
        ([3, 4, 5], [], [0, 1, 2], [0, 3]),  # one document
        ([3, 4, 5, 6], [0, 2], [0, 1, 2, 3], [0, 2, 4]),  # a joint without a blank line
        ([3, 1, 4, 5], [1], [0, 2, 3], [0, 1, 3]),  # a joint at a blank line opens one document
        ([3, 4, 1], [2], [0, 1], [0, 2]),  # a joint after the last sentence
        ([1, 1], [], [], [0]),
        ([], [], [], [0]),
    ],
)
def test_from_sizes(sizes, joints, rows, starts):
    index = DocumentIndex.from_sizes(sizes, joints)
    assert index.line_ids.tolist() == rows
    assert index.starts.tolist() == starts


def test_positions_and_documents():
    index = DocumentIndex.from_lengths([2, 1, 3])
    assert index.line_ids.tolist() == [0, 1, 3, 5, 6, 7]
    assert index.document.tolist() == [0, 0, 1, 2, 2, 2]
    assert index.position.tolist() == [0, 1, 0, 0, 1, 2]
    assert (index.num_documents, index.num_sentences) == (3, 6)


def test_without_drops_sentences_and_documents_left_empty():
    index = DocumentIndex.from_lengths([2, 1, 3])
    kept = index.without(np.array([False, True, True, False, True, False]))
    assert kept.line_ids.tolist() == [0, 5, 7]
    assert kept.starts.tolist() == [0, 1, 3]
    assert kept.document.tolist() == [0, 1, 1]
    assert (index.numbers.tolist(), kept.numbers.tolist()) == ([0, 1, 2], [0, 2])
    assert kept.without(np.array([True, False, False])).numbers.tolist() == [2]
    first = index.without(np.array([False, False, True, True, True, True]))
    assert (first.line_ids.tolist(), first.starts.tolist()) == ([0, 1], [0, 2])


def test_agrees_with_a_plain_loop_on_random_corpora():
    for seed in range(20):
        generator = np.random.RandomState(seed)
        sizes = generator.choice([1, 1, 3, 7], size=40)
        documents, current = [], []
        for row, size in enumerate(sizes):
            if size == 1 and current:
                documents.append(current)
                current = []
            elif size > 1:
                current.append(row)
        documents += [current] if current else []
        index = DocumentIndex.from_sizes(sizes)
        found = np.split(index.line_ids, index.starts[1:-1])
        assert [part.tolist() for part in found] == documents
