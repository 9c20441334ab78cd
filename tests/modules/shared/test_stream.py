"""Layout of batches of consecutive sentences, with values worked out by hand."""

import torch

from fairseq_docmt.modules.shared.stream import Stream

TOKENS = torch.zeros(6, 4, dtype=torch.long)


def test_without_marks_each_row_is_a_document_in_a_lane_of_its_own():
    stream = Stream.of(TOKENS)
    assert stream.starts.tolist() == [True] * 6
    assert (stream.lanes, stream.doc_state) == (6, None)


def test_marks_and_lanes_are_kept():
    starts = torch.tensor([True, False, False, False, True, False])
    stream = Stream.of(TOKENS, starts, 2, {"memory": torch.ones(2, 1)})
    assert stream.starts is starts and stream.lanes == 2


def test_rows_are_repeated_for_beams():
    starts = torch.tensor([True, False])
    stream = Stream(starts, 2, {"memory": torch.tensor([[1.0], [2.0]])})
    assert stream.for_rows(2) is stream
    beams = stream.for_rows(6)
    assert beams.starts.tolist() == [True] * 3 + [False] * 3
    assert beams.lanes == 6
    assert beams.doc_state["memory"].view(-1).tolist() == [1, 1, 1, 2, 2, 2]


def test_previous_sentences_of_two_lanes():
    """Three rows of each lane after one and two sentences; the second lane begins a document."""
    starts = torch.tensor([False, False, False, True, False, False])
    place, known, kept = Stream(starts, 2, None).previous(torch.tensor([1, 2]), 2)
    # Incoming sentences have the places 0 to 3, two lanes by two; the rows follow from 4.
    assert place.tolist() == [[0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7]]
    assert known.int().tolist() == [[0, 1], [1, 1], [1, 1], [0, 0], [1, 1], [0, 1]]
    assert kept.int().tolist() == [[1, 1], [1, 1]]
