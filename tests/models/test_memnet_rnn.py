"""memnet_rnn: which memories depend on the order of sentences."""

import pytest
import tiny
import torch
from batches import random_document, run_documents, with_drafts

VARIANTS = {
    f"{memory}, {place}": tiny.memnet("--memory", memory, "--memory-to", place)
    for memory in ("source", "target", "both")
    for place in ("context", "output")
}


@pytest.fixture(params=VARIANTS)
def model(request):
    return tiny.model(*VARIANTS[request.param])


def differ(found, wanted):
    return [not torch.allclose(a, b, atol=1e-9, rtol=0) for a, b in zip(found, wanted)]


@torch.no_grad()
def test_only_the_source_memory_knows_the_order_of_sentences(model):
    """Shuffling a document has no effect on a target memory, whose cells have no positions."""
    drafts = random_document([2, 5, 1, 4, 3], 11)
    sentences, order = with_drafts(random_document([3, 1, 5, 2, 4], 1), drafts), [3, 0, 4, 1, 2]
    before = run_documents(model, [sentences])
    after = run_documents(model, [[sentences[number] for number in order]])
    knows_order = model.encoder.source_memory is not None
    assert differ(after, [before[number] for number in order]) == [knows_order] * 5
