"""Lanes: batch rows that read documents side by side, each lane one document after another."""

import heapq
from typing import List, NamedTuple, Optional

import numpy as np

from fairseq_docmt.data.document_index import DocumentIndex

#: sentence number of padding after the last sentence of a lane
FILLER = -1


class Place(NamedTuple):
    """One row of a batch of a stream.

    Attributes:
        sentence: number of the sentence, or FILLER.
        starts: whether the row begins a document and so gets no document state.
        step: number of the batch in its epoch.
        lanes: number of lanes of the batch; row r belongs to lane ``r % lanes``.
    """

    sentence: int
    starts: bool
    step: int
    lanes: int


def fill_lanes(index: DocumentIndex, lanes: int, seed: Optional[int] = None) -> List[np.ndarray]:
    """Distribute documents over lanes of about equal length.

    The longest remaining document goes to the shortest lane, which needs few fillers.  Then the
    documents of each lane are shuffled.

    Args:
        index: sentences and documents.
        lanes: number of lanes.
        seed: seed of the shuffling and of the choice among documents of equal length; None keeps
            the order of the corpus.

    Returns:
        For each lane the numbers of its documents, in reading order.
    """
    lengths = np.diff(index.starts)
    order = np.arange(len(lengths))
    random = None if seed is None else np.random.RandomState(seed % 2**32)
    if random is not None:
        random.shuffle(order)
    order = order[np.argsort(-lengths[order], kind="stable")]
    shortest = [(0, lane) for lane in range(lanes)]
    filled: List[list] = [[] for _ in range(lanes)]
    for document in order.tolist():
        length, lane = heapq.heappop(shortest)
        filled[lane].append(document)
        heapq.heappush(shortest, (length + int(lengths[document]), lane))
    for documents in filled:
        if random is None:
            documents.sort()
        else:
            random.shuffle(documents)
    return [np.array(documents, dtype=np.int64) for documents in filled]


def chunk_sizes(steps: int, chunk: int, seed: Optional[int] = None) -> List[int]:
    """Return the number of sentences per lane of each batch; the sum is ``steps``.

    Args:
        steps: number of sentences of the longest lane.
        chunk: number of sentences per lane in a batch; the last batch may have fewer.
        seed: seed to draw each size from 1 to ``chunk`` (Feng et al. 2022, section 5.3); None for
            a constant size.
    """
    if seed is None:
        sizes = [chunk] * -(-steps // chunk)
    else:
        random = np.random.RandomState(seed % 2**32)
        sizes, total = [], 0
        while total < steps:
            sizes.append(int(random.randint(1, chunk + 1)))
            total += sizes[-1]
    if sizes:
        sizes[-1] -= sum(sizes) - steps
    return sizes


def stream_batches(
    index: DocumentIndex, documents: List[np.ndarray], sizes: List[int], shards: int
) -> List[List[Place]]:
    """Return batches that read the documents of each lane in order.

    Args:
        index: sentences and documents.
        documents: documents of each lane (:func:`fill_lanes`); the number of lanes is a multiple
            of ``shards``.
        sizes: number of sentences per lane of each batch (:func:`chunk_sizes`).
        shards: number of processes; fairseq gives batch i to process ``i % shards``.

    Returns:
        Rows of each batch: the first sentence of every lane of a process, then the second ones.
    """
    sentences = [
        np.concatenate([np.arange(index.starts[d], index.starts[d + 1]) for d in lane])
        if len(lane) > 0
        else np.zeros(0, dtype=np.int64)
        for lane in documents
    ]
    is_start = index.position == 0
    lanes = len(documents) // shards
    batches, done = [], 0
    for step, size in enumerate(sizes):
        for shard in range(shards):
            mine = sentences[shard * lanes : (shard + 1) * lanes]
            batches.append(
                [
                    Place(int(lane[at]), bool(is_start[lane[at]]), step, lanes)
                    if at < len(lane)
                    else Place(FILLER, True, step, lanes)
                    for at in range(done, done + size)
                    for lane in mine
                ]
            )
        done += size
    return batches
