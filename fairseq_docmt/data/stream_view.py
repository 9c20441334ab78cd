"""Training and validation data that reads documents sentence by sentence."""

import logging
from functools import partial
from typing import List, Optional

import numpy as np
import torch

from fairseq_docmt.data.corpus import DocumentCorpus
from fairseq_docmt.data.document_view import DocumentView
from fairseq_docmt.data.lanes import FILLER, Place, chunk_sizes, fill_lanes, stream_batches
from fairseq_docmt.data.row_groups import group_rows
from fairseq_docmt.data.sequence_format import Formats
from fairseq_docmt.data.unsort import sample_in_order

logger = logging.getLogger(__name__)


class StreamView(DocumentView):
    """Sentences of a corpus, addressed by :class:`~fairseq_docmt.data.lanes.Place`.

    Args:
        corpus: corpus of the split.
        fits: (sentences,) bool, False for sentences that are too long, which are left out.
        formats: formats of both sides; by default without tags and ``<bod>``.

    Attributes:
        index: documents without the sentences that are too long.
    """

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
        """Return the example at a :class:`Place`, or a single sentence by its number."""
        if not isinstance(place, Place):
            return super().__getitem__(place)
        filler = place.sentence == FILLER
        example = {"id": FILLER, **self._filler} if filler else super().__getitem__(place.sentence)
        return {**example, "place": place}

    def line_ids_of(self, place: Place) -> list:
        """Return the line id of the sentence at a place, nothing for a filler."""
        return [] if place.sentence == FILLER else [int(self.ids[place.sentence])]

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
        lengths = ([len(sample[side]) for sample in samples] for side in ("source", "target"))
        net_input["row_groups"] = group_rows(
            *lengths, places[0].lanes, self.left_pad_source, batch["target"].ne(self.tgt_dict.pad())
        )
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
