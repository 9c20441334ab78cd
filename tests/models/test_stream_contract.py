"""Properties that every architecture with a document state must have, on whole documents.

What a system does with its context is in tests/equations; these tests say only that documents do
not see each other, and that a search goes on from the document state.
"""

import pytest
import tiny
import torch
from architectures import ARCHITECTURES, STREAMS
from batches import (
    LANES,
    check,
    in_lanes,
    run,
    run_in_chunks,
    run_lanes,
    translate_by_random_search,
    without_padding,
)


@pytest.fixture(params=STREAMS)
def model(request):
    return tiny.model(*ARCHITECTURES[request.param], "--dropout", "0")


def alone(model, lanes):
    """Return the (T, V) outputs of each row of a stream batch, reading each document by itself."""

    def read(document):
        starts = torch.arange(len(document)) == 0
        return without_padding(run(model, document, starts=starts, lanes=1)[0], document)

    return in_lanes([[read(document) for document in lane] for lane in lanes], filler=None)[0]


@torch.no_grad()
def test_documents_do_not_see_each_other(model):
    """However the sentences of all lanes are divided into batches."""
    wanted = alone(model, LANES)
    check(run_lanes(model, LANES)[0], wanted)
    for sizes in ((1,) * 6, (2, 4)):
        check(run_in_chunks(model, LANES, sizes), wanted)


@torch.no_grad()
def test_a_search_goes_on_from_the_document_state(model):
    """The outputs of a search are those for its translations as references."""
    lanes, found = translate_by_random_search(model, LANES[:2])
    check(found, alone(model, lanes))
