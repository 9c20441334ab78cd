"""Distribution of documents over lanes, and groups of rows of similar length."""

import itertools
import random

import numpy as np
import pytest
import torch

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.data.stream_view import (
    FILLER,
    Place,
    chunk_sizes,
    fill_lanes,
    group_rows,
    groups_with_least_padding,
    stream_batches,
)

LENGTHS = [4, 1, 6, 3, 5, 1, 1, 9, 2]
INDEX = DocumentIndex.from_lengths(LENGTHS)


def lanes_of(batches, shards=1):
    """Return the places of each lane of all processes, in reading order."""
    lanes = {}
    for number, batch in enumerate(batches):
        for row, place in enumerate(batch):
            lane = (number % shards) * place.lanes + row % place.lanes
            lanes.setdefault(lane, []).append(place)
    return [lanes[lane] for lane in sorted(lanes)]


@pytest.mark.parametrize("seed", [None, 0, 5])
@pytest.mark.parametrize("shards, lanes, chunk", [(1, 1, 1), (1, 3, 4), (2, 2, 3), (3, 3, 1)])
def test_every_sentence_once_and_documents_in_order(shards, lanes, chunk, seed):
    documents = fill_lanes(INDEX, lanes * shards, seed)
    steps = max(sum(LENGTHS[d] for d in lane) for lane in documents)
    batches = stream_batches(INDEX, documents, chunk_sizes(steps, chunk, seed), shards)
    assert len(batches) % shards == 0
    seen = []
    for lane in lanes_of(batches, shards):
        places = [place for place in lane if place.sentence != FILLER]
        assert all(place.starts for place in lane[len(places) :])  # fillers come last
        for before, place in zip([None, *places], places):
            assert place.starts == (INDEX.position[place.sentence] == 0)
            assert place.starts or place.sentence == before.sentence + 1
        seen += [place.sentence for place in places]
    assert sorted(seen) == list(range(sum(LENGTHS)))
    assert [batch[0].step for batch in batches] == [i // shards for i in range(len(batches))]


def test_processes_share_the_lanes_of_one():
    documents = fill_lanes(INDEX, 4, seed=3)
    sizes = chunk_sizes(12, 2)
    alone = lanes_of(stream_batches(INDEX, documents, sizes, 1))
    shared = lanes_of(stream_batches(INDEX, documents, sizes, 2), shards=2)
    without_lanes = [
        [[p._replace(lanes=0) for p in lane] for lane in lanes] for lanes in (alone, shared)
    ]
    assert without_lanes[0] == without_lanes[1]


def test_the_longest_goes_to_the_shortest_lane():
    assert [lane.tolist() for lane in fill_lanes(INDEX, 3)] == [[7, 8], [1, 2, 3, 6], [0, 4, 5]]
    for seed in range(5):
        lanes = fill_lanes(INDEX, 3, seed)
        assert sorted(sum(LENGTHS[d] for d in lane) for lane in lanes) == [10, 11, 11]


def test_documents_of_equal_length_change_lanes_with_the_seed():
    index = DocumentIndex.from_lengths([2] * 6)
    pairs = {frozenset(fill_lanes(index, 3, seed)[0].tolist()) for seed in range(9)}
    assert len(pairs) > 3


def test_lanes_without_documents():
    lanes = fill_lanes(DocumentIndex.from_lengths([2]), 2)
    assert [lane.tolist() for lane in lanes] == [[0], []]
    assert all(lane.dtype == np.int64 for lane in lanes)


def test_a_batch_by_hand():
    index = DocumentIndex.from_lengths([2, 3])
    batches = stream_batches(index, [np.array([0]), np.array([1])], [2, 1], shards=1)
    assert [[tuple(place) for place in batch] for batch in batches] == [
        [(0, True, 0, 2), (2, True, 0, 2), (1, False, 0, 2), (3, False, 0, 2)],
        [(FILLER, True, 1, 2), (4, False, 1, 2)],
    ]
    assert stream_batches(index, [np.array([0]), np.zeros(0, int)], [1], shards=2) == [
        [Place(0, True, 0, 1)],
        [Place(FILLER, True, 0, 1)],
    ]


def test_seeds_of_any_size_are_accepted():
    """numpy takes 32 bits of a seed; higher bits are dropped."""
    for seed in (3, 2**32 - 1):
        assert chunk_sizes(50, 4, seed) == chunk_sizes(50, 4, seed + 2**32)
        near, far = (fill_lanes(INDEX, 2, number) for number in (seed, seed + 2**32))
        assert all(np.array_equal(a, b) for a, b in zip(near, far))


def test_epochs_read_in_different_orders():
    orders = {tuple(map(tuple, fill_lanes(INDEX, 2, seed))) for seed in range(6)}
    assert len(orders) > 1
    assert all(
        np.array_equal(a, b) for a, b in zip(fill_lanes(INDEX, 2, 3), fill_lanes(INDEX, 2, 3))
    )


def test_a_seed_stands_for_an_order():
    """Runs can be repeated, and resumed, with later versions too."""
    assert [lane.tolist() for lane in fill_lanes(INDEX, 2, seed=3)] == [
        [7, 0, 8, 5],
        [2, 6, 3, 1, 4],
    ]
    assert chunk_sizes(20, 4, seed=3) == [3, 1, 2, 4, 1, 1, 1, 2, 2, 3]


def test_chunks():
    assert chunk_sizes(10, 4) == [4, 4, 2]
    assert chunk_sizes(8, 4) == [4, 4]
    for seed in range(20):
        assert sum(chunk_sizes(10, 2, seed)) == 10 and set(chunk_sizes(10, 2, seed)) <= {1, 2}
    assert chunk_sizes(0, 4) == chunk_sizes(0, 4, seed=1) == []
    drawn = chunk_sizes(1000, 4, seed=1)
    assert sum(drawn) == 1000
    assert set(drawn[:-1]) == {1, 2, 3, 4}
    assert chunk_sizes(1000, 4, seed=2) != drawn == chunk_sizes(1000, 4, seed=1)


def test_little_is_idle_on_real_documents(shared_data):
    """Checked on television episodes with 32 lanes."""
    lengths, length = [], 0
    with open(shared_data / "tvsub-zhen" / "train.zh", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                length += 1
            elif length > 0:
                lengths.append(length)
                length = 0
    lengths += [length] if length else []
    index = DocumentIndex.from_lengths(lengths)
    documents = fill_lanes(index, 32, seed=1)
    steps = max(sum(lengths[d] for d in lane) for lane in documents)
    assert 1 - sum(lengths) / (32 * steps) < 0.03


LOSS = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])


def positions(groups, lengths):
    return sum(len(rows) * max(lengths[row] for row in rows) for rows in groups)


@pytest.mark.parametrize("most, count", [(1, 5), (3, 9), (4, 9), (8, 3)])
def test_no_other_groups_have_less_padding(most, count):
    random.seed(most)
    lengths = np.array([random.choice([1, 2, 3, 5, 8, 13, 21]) for _ in range(count)])
    order = sorted(range(count), key=lambda row: lengths[row])
    best = min(
        positions([order[a:b] for a, b in zip((0, *cuts), (*cuts, count))], lengths)
        for parts in range(min(most, count))
        for cuts in itertools.combinations(range(1, count), parts)
    )
    groups = groups_with_least_padding(lengths, most)
    assert sorted(row for rows in groups for row in rows) == list(range(count))
    assert len(groups) <= most and positions(groups, lengths) == best


def test_groups_of_a_batch():
    sources = [5, 90, 1, 7, 30, 6, 2, 95, 31, 4, 3, 33, 5, 5, 5, 5, 40]
    targets = [6, 80, 1, 9, 35, 6, 2, 99, 30, 4, 3, 33, 5, 5, 5, 50, 41]
    found = group_rows(sources, targets, 4, True, LOSS)
    for name, lengths, left in (
        ("source", sources, True),
        ("target", targets, False),
        ("attended", sources, True),
    ):
        grouping = found[name]
        rows = torch.cat(grouping["rows"])
        assert sorted(rows.tolist()) == list(range(17))
        longest = [max(lengths[row] for row in rows.tolist()) for rows in grouping["rows"]]
        assert grouping["lengths"] == longest
        assert grouping["left_padded"] == left
    assert all(map(torch.equal, found["target"]["rows"], found["attended"]["rows"]))
    assert found["source"]["steps"] == found["attended"]["steps"] == [90, 95, 33, 5, 40]
    assert found["target"]["steps"] == [80, 99, 33, 50, 41]
    assert found["tokens"].tolist() == [0, 1, 6, 8]


def test_small_batches_stay_together():
    assert group_rows([2] * 15, [3] * 15, 1, False, LOSS) is None
    assert group_rows([2] * 16, [3] * 16, 1, False, LOSS) is not None
