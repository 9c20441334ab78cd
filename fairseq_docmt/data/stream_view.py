"""Training and validation data that reads documents sentence by sentence."""

import logging
from functools import partial
from typing import List, Optional, Sequence

import numpy as np
import torch
from fairseq.data import iterators

from fairseq_docmt.data.corpus import DocumentCorpus
from fairseq_docmt.data.document_view import DocumentView
from fairseq_docmt.data.lanes import FILLER, Place, chunk_sizes, fill_lanes, stream_batches
from fairseq_docmt.data.unsort import sample_in_order
from fairseq_docmt.errors import UserError

logger = logging.getLogger(__name__)


class StreamView(DocumentView):
    """Sentences of a corpus, addressed by :class:`~fairseq_docmt.data.lanes.Place`.

    Args:
        corpus: corpus of the split.
        index: documents to read: those of the corpus without sentences that are too long.
        mark_document_start: put ``<bod>`` before the first sentence of a document.
        too_long: lines of the sentences that are too long, for messages.
    """

    def __init__(
        self,
        corpus: DocumentCorpus,
        index,
        mark_document_start: bool = False,
        too_long: Sequence[int] = (),
    ):
        places = np.searchsorted(corpus.index.rows, index.rows)
        spans = np.stack([places, places + 1], axis=1)
        super().__init__(corpus, spans, mark_document_start=mark_document_start)
        self.name = corpus.name
        self.index = index
        self.too_long = list(too_long)
        self._filler = {
            "source": torch.tensor([self.src_dict.eos()]),
            "target": torch.tensor([self.tgt_dict.pad()]),
        }

    def __getitem__(self, place) -> dict:
        """Return the example at a :class:`Place`, or a single sentence by its number."""
        if not isinstance(place, Place):
            return super().__getitem__(place)
        filler = place.sentence == FILLER
        example = {"id": FILLER, **self._filler} if filler else super().__getitem__(place.sentence)
        return {**example, "place": place}

    def rows_of(self, place: Place) -> list:
        """Return the row of the sentence at a place, empty for a filler."""
        return [] if place.sentence == FILLER else [int(self.named_after[place.sentence])]

    def collater(self, samples, pad_to_length=None) -> dict:
        """Return a batch as in :mod:`fairseq_docmt.data.batch`, its rows in the given order."""
        if not samples or "place" not in samples[0]:
            return super().collater(samples, pad_to_length)
        stock = partial(super().collater, pad_to_length=pad_to_length)
        batch = sample_in_order(samples, stock)
        net_input = batch["net_input"]
        places: List[Place] = [sample["place"] for sample in samples]
        net_input["starts"] = torch.tensor([place.starts for place in places])
        net_input["lanes"] = places[0].lanes
        batch["step"] = places[0].step
        return batch

    def batches(
        self, lanes: int, chunk: int, shards: int, seed: Optional[int], random_chunk: bool
    ) -> List[List[Place]]:
        """Return the batches of an epoch; batch i belongs to process ``i % shards``.

        Args:
            lanes: number of documents read side by side in each process; fewer if the corpus has
                fewer documents.
            chunk: number of sentences per lane in a batch.
            shards: number of processes.
            seed: seed of the epoch; None reads documents in the order of the corpus.
            random_chunk: draw the number of sentences of each batch from 1 to ``chunk``.
        """
        lanes = min(lanes, -(-self.index.num_documents // shards))
        documents = fill_lanes(self.index, lanes * shards, seed)
        lengths = np.diff(self.index.starts)
        steps = max(int(lengths[lane].sum()) for lane in documents)
        sizes = chunk_sizes(steps, chunk, seed if random_chunk else None)
        logger.info(
            "%s: %d documents in %d lanes, %d sentences each; %.2f%% of the rows are fillers",
            self.name,
            self.index.num_documents,
            lanes * shards,
            steps,
            100 - 100 * self.index.num_sentences / (steps * lanes * shards),
        )
        return stream_batches(self.index, documents, sizes, shards)


class StreamIterator(iterators.EpochBatchIterator):
    """Batches in a fixed order; the state of the iterator includes the document states.

    Args:
        *args, **kwargs: arguments of the stock iterator.
        lane_states: object with ``for_checkpoint()`` and ``restore(state)``; None for validation.
        decided_by: values of the options that determine the batches, by option.
    """

    def __init__(self, *args, lane_states=None, decided_by: Optional[dict] = None, **kwargs):
        super().__init__(*args, disable_shuffling=True, **kwargs)
        self._lane_states = lane_states
        self._decided_by = decided_by or {}

    def state_dict(self):
        """Return the stock state; within an epoch also the document states of the lanes."""
        state = super().state_dict()
        if self._lane_states is not None and state["iterations_in_epoch"] > 0:
            state["carries"] = self._lane_states.for_checkpoint()
            state["decided_by"] = self._decided_by
        return state

    def load_state_dict(self, state_dict):
        """Continue from a state of :meth:`state_dict`.

        Raises:
            UserError: the options give other batches than those of the interrupted epoch.
        """
        for option, before in state_dict.get("decided_by", {}).items():
            if before != self._decided_by[option]:
                raise UserError(
                    f"the checkpoint was saved in the middle of an epoch with {option} {before}, "
                    f"not {self._decided_by[option]}, which would leave sentences out or read "
                    "them twice; give the same again, or begin a new epoch with --reset-dataloader"
                )
        super().load_state_dict(state_dict)
        if self._lane_states is not None:
            self._lane_states.restore(state_dict.get("carries"))
