"""Which document is read when: documents side by side in lanes, one behind the other in each."""

import heapq
from typing import List, NamedTuple, Optional

import numpy as np

from fairseq_docmt.data.document_index import DocumentIndex

#: in place of a sentence where a lane has come to its end
FILLER = -1


class Place(NamedTuple):
    """One row of a batch of a stream.

    Attributes:
        sentence: number of the sentence, FILLER for none.
        starts: the row begins a document, so that nothing is carried into it.
        step: number of the batch in its epoch.
        lanes: lanes of the batch; row r belongs to lane r modulo lanes.
    """

    sentence: int
    starts: bool
    step: int
    lanes: int


def fill_lanes(index: DocumentIndex, lanes: int, seed: Optional[int] = None) -> List[np.ndarray]:
    """Share out documents so that all lanes are about equally long.

    The longest remaining document goes to the lane that is shortest so far, which leaves little
    idle; then the documents of each lane are shuffled, which changes no length.

    Args:
        index: documents.
        lanes: number of lanes.
        seed: for shuffling documents, and for which of equally long ones goes where; None keeps
            their order.

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
    """Sentences that each lane moves on by in each batch; they add up to ``steps``.

    Args:
        steps: sentences of the longest lane.
        chunk: sentences of a batch, the last batch may have fewer.
        seed: draw each size from 1 to ``chunk`` (Feng et al. 2022, section 5.3) with this seed;
            None takes ``chunk`` always.
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
    """Batches that read the documents of each lane in their order.

    Args:
        index: documents.
        documents: of each lane, see :func:`fill_lanes`; their number is a multiple of ``shards``.
        sizes: sentences of each batch, see :func:`chunk_sizes`.
        shards: processes; batch i goes to process i modulo shards, as fairseq deals them out.

    Returns:
        Rows of each batch: the first sentence of every lane of a process, then their second ones.
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
