"""Models of fairseq get the defaults of the interface; models of this package what they declare."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_docmt.models import interface


@pytest.fixture
def stock():
    """Return a model without any of the optional attributes."""
    return SimpleNamespace(encoder=SimpleNamespace(), decoder=SimpleNamespace())


def test_defaults(stock):
    assert not interface.is_document_recurrent(stock)
    assert not interface.reads_documents(stock)
    assert not interface.remembers_translations(stock)
    assert not interface.aligns_whole_outputs(stock)
    assert not interface.can_grow(stock)
    assert interface.has_attention_weights(stock)
    assert interface.prefill_of(stock.decoder) is None
    assert interface.needed_task(stock) is None and interface.sentences_back(stock) is None
    interface.load_pretrained_parts(stock, iter([]))  # there are none


def test_declared_attributes():
    model = SimpleNamespace(
        is_document_recurrent=True,
        needed_task="a task",
        reads_documents=True,
        remembers_translations=True,
        full_context_alignment=True,
        encoder=SimpleNamespace(reach=0),
        decoder=SimpleNamespace(has_attention_weights=False, prefill="prefill"),
    )
    assert interface.is_document_recurrent(model) and interface.reads_documents(model)
    assert interface.remembers_translations(model) and interface.aligns_whole_outputs(model)
    assert interface.needed_task(model) == "a task"
    assert interface.can_grow(model)  # a reach of 0 tokens is a reach
    assert not interface.has_attention_weights(model)
    assert interface.prefill_of(model.decoder) == "prefill"


def test_beams_of_bart_are_separated():
    """After ``set_beam_size`` its decoder takes rows of any number, and its encoder reorders."""
    calls = []

    class Encoder:
        def reorder_encoder_out(self, output, order):
            return "reordered"

    model = SimpleNamespace(encoder=Encoder())

    def set_beam_size(size):
        calls.append(size)
        model.encoder.reorder_encoder_out = lambda output, order: "as it was"

    interface.separate_beams(model)  # has no such method
    model.set_beam_size = set_beam_size
    model.set_beam_size(3)
    interface.separate_beams(model)
    assert calls == [3, 1]
    assert model.encoder.reorder_encoder_out(None, None) == "reordered"


def test_an_encoder_that_sees_everything_cannot_grow(stock):
    stock.encoder.reach = None
    assert not interface.can_grow(stock)


def test_pretrained_parts_get_the_sentences(stock):
    seen = []
    stock.load_pretrained_parts = lambda sentences, read: seen.extend(sentences)
    interface.load_pretrained_parts(stock, iter([1, 2]))
    assert seen == [1, 2]


def test_the_state_after_a_sentence_is_computed_in_the_shortest_way():
    tokens, state = torch.zeros(1, 2), {"memory": torch.ones(1)}

    def decoder(previous, encoder_out, features_only):
        assert features_only and previous is tokens
        return None, {"doc_state": state}

    model = SimpleNamespace(decoder=decoder)
    assert interface.state_after(model, tokens, {}) is state
    decoder.next_doc_state = lambda previous, encoder_out: "without outputs"
    assert interface.state_after(model, tokens, {}) == "without outputs"
