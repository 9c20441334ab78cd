"""Properties that every architecture with a document state must have, on whole documents.

What a system does with its context is in tests/equations; these tests say only that documents do
not see each other, that a search goes on from the document state, and which options determine its
size.
"""

from argparse import Namespace

import pytest
import tiny
import torch
from architectures import ARCHITECTURES, STREAMS, model_class, with_dropout
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
from fairseq.models.transformer import TransformerModel, base_architecture

from fairseq_docmt.errors import flag
from fairseq_docmt.models.interface import sentences_back
from fairseq_docmt.models.rnnsearch import rnnsearch
from fairseq_docmt.tasks._lane_states import LaneStates


@pytest.fixture(params=STREAMS)
def model(request):
    """A model with all kinds of dropout, which evaluation must not apply."""
    return tiny.model(*with_dropout(request.param))


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


def sizes_of(arguments):
    """Return the shapes of the parameters of a model, and of its document state after lanes."""
    model = tiny.model(*arguments, "--dropout", "0")
    doc_state = run_lanes(model, LANES)[1]["doc_state"]
    parameters = {name: value.shape for name, value in model.named_parameters()}
    return parameters, {name: value.shape for name, value in doc_state.items()}


@torch.no_grad()
@pytest.mark.parametrize("name", STREAMS)
def test_options_that_determine_the_size_of_the_document_state(name):
    """Those that do not change the parameters must be known: they have to stay within an epoch."""
    arguments, model = ARCHITECTURES[name], model_class(name)
    parameters, doc_state = sizes_of(arguments)
    of_base, of_model = Namespace(), Namespace()
    (base_architecture if issubclass(model, TransformerModel) else rnnsearch)(of_base)
    model.architecture(of_model)
    for name in {*vars(of_model)} - {*vars(of_base)}:
        default = getattr(of_model, name)
        if type(default) is int and not name.endswith("_layers"):
            of_parameters, of_state = sizes_of([*arguments, flag(name), str(default + 3)])
            if of_parameters == parameters and of_state != doc_state:
                assert name in model.doc_state_options


@pytest.mark.parametrize(
    "arguments, number",
    [
        (tiny.han("--context-sentences", "5"), 10),
        (tiny.han("--context-side", "source"), 3),
        (tiny.han("--context-side", "target"), 3),
        (tiny.multi_encoder(), 1),
        (tiny.context("--context", "hierarchical"), 3),
        (tiny.context("--context", "previous-source-attention"), 1),
        (tiny.context(), None),
        (tiny.memory(), None),
    ],
)
def test_previous_sentences_that_a_model_reads(arguments, number):
    assert sentences_back(tiny.model(*arguments)) == number


def test_a_batch_without_a_document_state_is_refused():
    sample = {"step": 0, "net_input": {"src_tokens": torch.ones(2, 3), "lanes": 2}}
    model = torch.nn.Identity()
    states = LaneStates()
    with pytest.raises(ValueError, match="the doc_state of Identity has no tensors"):
        with states.of_batch(sample, model, update=1):
            model((None, {"doc_state": {}}))
