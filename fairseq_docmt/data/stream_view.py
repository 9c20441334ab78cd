"""Training and validation data in which documents are read sentence by sentence.

Several documents are read side by side, each in a lane; when a document ends, the lane goes on with
another one.  The rows of a batch are grouped by length, so that models spend little on padding.
"""

import heapq
import logging
from functools import partial
from typing import List, NamedTuple, Optional, Sequence

import numpy as np
import torch
from torch import Tensor

from fairseq_docmt.data.corpus import DocumentCorpus
from fairseq_docmt.data.document_view import DocumentView, sample_in_order
from fairseq_docmt.data.sequence_format import Formats
from fairseq_docmt.document_index import DocumentIndex

logger = logging.getLogger(__name__)


# ---- lanes ---------------------------------------------------------------------------------------


#: sentence number of padding after the last sentence of a lane
FILLER = -1


class Place(NamedTuple):
    """What a batch row contains: a sentence, and where the row belongs in the epoch.

    A batch of a :class:`StreamView` is first a list of places, with which the dataset is indexed to
    get the examples.

    Attributes:
        sentence: number of the sentence; FILLER for padding after the end of a lane.
        starts: whether the row gets no document state, because it begins a document or is padding.
        step: number of the batch in its epoch.
        lanes: number of lanes of the batch; row r belongs to lane ``r % lanes``.
    """

    sentence: int
    starts: bool
    step: int
    lanes: int


def fill_lanes(index: DocumentIndex, lanes: int, seed: Optional[int] = None) -> List[np.ndarray]:
    """Distribute documents over lanes, so that all lanes have about the same number of sentences.

    The longest remaining document always goes to the shortest lane, so that few rows are padding at
    the end.  Then the documents of each lane are shuffled.

    Args:
        index: index of the sentences and documents.
        lanes: number of lanes, which are read side by side.
        seed: seed of the shuffling and of the choice among documents of equal length; None to read
            the documents of each lane in the order of the corpus.

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
    """Return, for each batch of an epoch, how many sentences it takes from each lane.

    The sum is ``steps``.

    Args:
        steps: number of sentences of the longest lane.
        chunk: number of sentences of each lane in a batch; the last batch may have fewer.
        seed: seed with which each number is drawn from 1 to ``chunk`` (Feng et al. 2022, section
            5.3); None to always use ``chunk``.
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
    """Build the batches of an epoch, in which each lane reads its documents in order.

    Args:
        index: index of sentences and documents.
        documents: documents of each lane (:func:`fill_lanes`).  The number of lanes is a multiple
            of ``shards``, so that the lanes can be divided among the processes.
        sizes: number of sentences of each lane in the successive batches (:func:`chunk_sizes`).
        shards: number of processes; fairseq gives batch i to process ``i % shards``.

    Returns:
        The rows of each batch.  First comes the next sentence of each lane of a process, then the
        sentence after it, again for each lane, and so on.  Lanes that have ended are padded.
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


# ---- groups of rows of similar length ------------------------------------------------------------


#: maximum number of groups of a batch
MOST_GROUPS = 8
#: minimum number of rows for which grouping pays off
LEAST_ROWS = 16


def group_rows(
    src_lengths: Sequence[int],
    tgt_lengths: Sequence[int],
    lanes: int,
    left_pad_source: bool,
    loss: Tensor,
) -> Optional[dict]:
    """Group the rows of a batch by the lengths of their sources and of their targets.

    A model can compute each group separately and so save padding.

    Args:
        src_lengths, tgt_lengths: number of source and of target tokens of each row.
        lanes: number of lanes; row r + lanes is the next sentence in the lane of row r.  If rows do
            not continue one another, this is the number of rows.
        left_pad_source: whether sources are padded on the left.
        loss: (rows, T) True at target positions with loss.

    Returns:
        :class:`~fairseq_docmt.data.batch.RowGroupings`; None for fewer than 16 rows, where grouping
        does not pay off.
    """
    if len(src_lengths) < LEAST_ROWS:
        return None
    source, target = np.asarray(src_lengths), np.asarray(tgt_lengths)
    by_source, by_target = groups_with_least_padding(source), groups_with_least_padding(target)
    return {
        "source": _grouping(by_source, source, lanes, left_pad_source),
        "target": _grouping(by_target, target, lanes, False),
        "attended": _grouping(by_target, source, lanes, left_pad_source),
        "tokens": loss.flatten().nonzero().squeeze(1),
    }


def groups_with_least_padding(lengths: np.ndarray, most: int = MOST_GROUPS) -> List[np.ndarray]:
    """Divide rows into at most ``most`` groups with the least total padding.

    The rows are sorted by length, and each group is a range of the sorted rows.  The best ranges
    are found by dynamic programming over the number of groups.

    Args:
        lengths: (rows,) number of tokens of each row.
        most: maximum number of groups.

    Returns:
        Row numbers of each group.
    """
    order = np.argsort(lengths, kind="stable")
    count, longest = len(lengths), lengths[order]
    first, end = np.arange(count + 1)[:, None], np.arange(count + 1)
    positions = (end - first) * np.concatenate([[0], longest])  # of a group, with its padding
    positions = np.where(first < end, positions, positions.max() * count + 1)
    best, ends = positions[0], []
    for _ in range(min(most, count) - 1):
        total = best[:, None] + positions
        ends.append(total.argmin(axis=0))
        best = total.min(axis=0)
    cuts = [count]
    for beginnings in reversed(ends):
        cuts.append(int(beginnings[cuts[-1]]))
    return np.split(order, sorted(cuts[1:]))


def _grouping(groups: List[np.ndarray], lengths: np.ndarray, lanes: int, left_padded: bool) -> dict:
    steps = [lengths[first : first + lanes] for first in range(0, len(lengths), lanes)]
    return {
        "rows": [torch.from_numpy(rows) for rows in groups],
        "lengths": [int(lengths[rows].max()) for rows in groups],
        "steps": [int(step.max()) for step in steps],
        "left_padded": left_padded,
    }


# ---- data ----------------------------------------------------------------------------------------


class StreamView(DocumentView):
    """Dataset of single sentences, batched so that documents are read side by side in lanes.

    Args:
        corpus: corpus of the split.
        fits: (sentences,) bool, False for sentences that are too long, which are left out.
        formats: formats of source and target; by default without language tags and ``<bod>``.

    Attributes:
        index: index of sentences and documents, without sentences that are too long.
    """

    has_context = False

    def __init__(self, corpus: DocumentCorpus, fits: np.ndarray, formats: Optional[Formats] = None):
        places = np.flatnonzero(fits)
        spans = np.stack([places, places + 1], axis=1)
        super().__init__(corpus, spans, fits=fits, formats=formats)
        self.index = corpus.index.without(~fits)
        self.too_long = corpus.index.line_ids[~fits].tolist()
        self._filler = {
            "source": torch.tensor([self.src_dict.eos()]),
            "target": torch.tensor([self.tgt_dict.pad()]),
        }

    def __getitem__(self, place) -> dict:
        """Return the example of a sentence, given its number or a :class:`Place` with its number.

        For a place, the example also has the key ``place``, and padding gets a filler example.
        """
        if not isinstance(place, Place):
            return super().__getitem__(place)
        filler = place.sentence == FILLER
        example = {"id": FILLER, **self._filler} if filler else super().__getitem__(place.sentence)
        return {**example, "place": place}

    def line_ids_of(self, place: Place) -> list:
        """Return a list with the line id of the sentence at a place; empty for a padding row."""
        return [] if place.sentence == FILLER else [int(self.ids[place.sentence])]

    def collater(self, samples, pad_to_length=None) -> dict:
        """Return a batch whose rows are in the order of ``samples``.

        Its keys are described in :mod:`fairseq_docmt.data.batch`.  Samples that were fetched by
        number, without a :class:`Place`, are collated as by :class:`DocumentView`.
        """
        if not samples or "place" not in samples[0]:
            return super().collater(samples, pad_to_length)
        stock = partial(super().collater, pad_to_length=pad_to_length)
        batch = sample_in_order(samples, stock)
        net_input = batch["net_input"]
        places: List[Place] = [sample["place"] for sample in samples]
        net_input["starts"] = torch.tensor([place.starts for place in places])
        net_input["lanes"] = places[0].lanes
        lengths = ([len(sample[side]) for sample in samples] for side in ("source", "target"))
        net_input["row_groups"] = group_rows(
            *lengths, places[0].lanes, self.left_pad_source, batch["target"].ne(self.tgt_dict.pad())
        )
        batch["step"] = places[0].step
        return batch

    def batches(
        self, lanes: int, chunk: int, shards: int, seed: Optional[int], sample_chunk_sentences: bool
    ) -> List[List[Place]]:
        """Return the batches of an epoch; batch i belongs to process ``i % shards``.

        Args:
            lanes: number of documents that each process reads side by side; reduced if the corpus
                has fewer documents.
            chunk: number of consecutive sentences of each lane in a batch.
            shards: number of processes.
            seed: seed of the epoch; None to read the documents in the order of the corpus.
            sample_chunk_sentences: whether the number of sentences of each lane is drawn for each
                batch, from 1 to ``chunk``.  Without a seed this has no effect.
        """
        lanes = min(lanes, -(-self.index.num_documents // shards))
        documents = fill_lanes(self.index, lanes * shards, seed)
        lengths = np.diff(self.index.starts)
        steps = max(int(lengths[lane].sum()) for lane in documents)
        sizes = chunk_sizes(steps, chunk, seed if sample_chunk_sentences else None)
        logger.info(
            "%s: %d documents in %d lanes, %d sentences each; %.2f%% of the rows are fillers",
            self.name,
            self.index.num_documents,
            lanes * shards,
            steps,
            100 - 100 * self.index.num_sentences / (steps * lanes * shards),
        )
        return stream_batches(self.index, documents, sizes, shards)
