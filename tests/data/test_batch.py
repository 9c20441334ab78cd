"""Batches have exactly the documented keys."""

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset

from fairseq_docmt.data import (
    Cut,
    DecodingUnits,
    DocumentCorpus,
    DocumentView,
    Lines,
    add_document_symbols,
)
from fairseq_docmt.data.batch import Batch, NetInput
from fairseq_docmt.data.rows_view import RowsView
from fairseq_docmt.data.stream_view import StreamView

PAD, EOS = 1, 2


def batches():
    """Return a batch of every kind, from documents of one and two sentences."""
    words = add_document_symbols(Dictionary())
    lines = [torch.tensor(line) for line in ([4, EOS], [4, 4, EOS], [EOS], [4, EOS])]
    sizes = [len(line) for line in lines]
    corpus = DocumentCorpus(
        "tiny", LanguagePairDataset(lines, sizes, words, lines, sizes, words, shuffle=False)
    )
    spans = np.array([[0, 2], [2, 3]])
    stream = StreamView(corpus, np.ones(corpus.index.num_sentences, dtype=bool))
    constraints = torch.zeros(len(lines), 1, dtype=torch.long)
    given = Lines(lines, np.array(sizes), words, lines, constraints=constraints)
    units = DecodingUnits(given, Cut(corpus.index, spans))
    items = stream.batches(lanes=2, chunk=1, shards=1, seed=None, sample_chunk_sentences=False)[0]
    yield stream.collater([stream[place] for place in items])
    for view in (DocumentView(corpus, spans), RowsView(corpus, spans, drafts=lines), units):
        yield view.collater([view[0], view[1]])


def test_keys_of_batches_are_listed():
    found = list(batches())
    assert {key for batch in found for key in batch} == set(Batch.__annotations__)
    inputs = {key for batch in found for key in batch["net_input"]}
    assert inputs == set(NetInput.__annotations__) - {"doc_state"}  # which the task puts in


def documents(lengths):
    """Return a corpus of one document whose sentences have these lengths, and its lines."""
    words = add_document_symbols(Dictionary())
    lines = [torch.tensor([4] * (length - 1) + [EOS]) for length in (*lengths, 1)]
    sizes = [len(line) for line in lines]
    pairs = LanguagePairDataset(lines, sizes, words, lines, sizes, words, shuffle=False)
    return DocumentCorpus("tiny", pairs), lines


def check_groups(groups, tokens, targets):
    """Check that groups leave out padding alone, and that positions with loss are the tokens."""
    for side, rows in (("source", tokens), ("target", targets), ("attended", tokens)):
        grouping = groups[side]
        assert sorted(torch.cat(grouping["rows"]).tolist()) == list(range(len(rows)))
        for some, length in zip(grouping["rows"], grouping["lengths"]):
            assert rows[some].ne(PAD).sum(1).max() == length
    assert groups["tokens"].tolist() == targets.flatten().ne(PAD).nonzero().flatten().tolist()


def test_groups_of_rows_and_of_drafts():
    lengths = [2, 9, 4, 3, 7, 5, 2, 8, 6, 3, 2, 9, 4, 5, 3, 2, 6]
    corpus, lines = documents(lengths)
    drafts = [lines[-2 - n] for n in range(len(lengths))]  # of other lengths
    view = RowsView(corpus, np.array([[0, len(lengths)]]), drafts=drafts)
    batch = view.collater([view[0]])
    inputs = batch["net_input"]
    assert len(inputs["row_groups"]["target"]["rows"]) > 2
    check_groups(inputs["row_groups"], inputs["src_tokens"], batch["target"])
    check_groups(inputs["draft_groups"], inputs["src_tokens"], inputs["drafts"])
