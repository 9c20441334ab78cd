"""Batches have exactly the documented keys."""

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset

from fairseq_docmt.data import DecodingUnits, DocumentCorpus, DocumentView, add_document_symbols
from fairseq_docmt.data.batch import Batch, NetInput
from fairseq_docmt.data.rows_view import RowsView
from fairseq_docmt.data.stream_view import StreamView

EOS = 2


def batches():
    """Return a batch of every kind, from documents of one and two sentences."""
    words = add_document_symbols(Dictionary())
    lines = [torch.tensor(line) for line in ([4, EOS], [4, 4, EOS], [EOS], [4, EOS])]
    sizes = [len(line) for line in lines]
    corpus = DocumentCorpus(
        "tiny", LanguagePairDataset(lines, sizes, words, lines, sizes, words, shuffle=False)
    )
    spans = np.array([[0, 2], [2, 3]])
    stream = StreamView(corpus, corpus.index)
    constraints = torch.zeros(len(lines), 1, dtype=torch.long)
    units = DecodingUnits(
        *(lines, lines, np.array(sizes), words, corpus.index, spans), constraints=constraints
    )
    items = stream.batches(lanes=2, chunk=1, shards=1, seed=None, random_chunk=False)[0]
    yield stream.collater([stream[place] for place in items])
    for view in (DocumentView(corpus, spans), RowsView(corpus, spans, drafts=lines), units):
        yield view.collater([view[0], view[1]])


def test_keys_of_batches_are_listed():
    found = list(batches())
    assert {key for batch in found for key in batch} == set(Batch.__annotations__)
    inputs = {key for batch in found for key in batch["net_input"]}
    assert inputs == set(NetInput.__annotations__) - {"doc_state"}  # which the task puts in
