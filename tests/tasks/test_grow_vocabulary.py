"""Weights without rows for <sep> and <bod> are loaded into models that have them."""

import logging

import pytest
import torch
from fairseq.data import Dictionary
from torch import nn

from fairseq_docmt.data import add_document_symbols
from fairseq_docmt.modules.cpu import OneDNNLinear, swap_modules
from fairseq_docmt.tasks.starts.weights import let_vocabulary_grow

WORDS = 6


@pytest.fixture
def dictionary():
    words = Dictionary()
    for number in range(WORDS - len(words)):
        words.add_symbol(f"word{number}")
    return words


def tiny_model(words: int) -> nn.Module:
    model = nn.ModuleDict({"embed": nn.Embedding(words, 3), "output": nn.Linear(3, words)})
    model["again"] = model["embed"]  # shared between encoder and decoder
    return model


def replace_projection(model):
    swap_modules(model, lambda x: OneDNNLinear(x) if type(x) is nn.Linear else None)


@pytest.mark.parametrize("swapped", ["never", "before", "after"])
def test_missing_rows_keep_their_initialisation(dictionary, swapped):
    old = tiny_model(len(dictionary)).state_dict()
    new = tiny_model(len(add_document_symbols(dictionary)))
    initial = {name: value.clone() for name, value in new.state_dict().items()}
    if swapped == "before":
        replace_projection(new)
    let_vocabulary_grow(new, dictionary)
    if swapped == "after":
        replace_projection(new)
    new.load_state_dict(dict(old))
    assert initial.keys() == new.state_dict().keys()
    for name, value in new.state_dict().items():
        torch.testing.assert_close(value, torch.cat([old[name], initial[name][WORDS:]]))


def test_a_part_of_the_model_within_another_is_found_by_its_prefix(dictionary):
    old = nn.ModuleDict({"inner": tiny_model(len(dictionary))}).state_dict()
    new = tiny_model(len(add_document_symbols(dictionary)))
    let_vocabulary_grow(new, dictionary)
    nn.ModuleDict({"inner": new}).load_state_dict(old)
    torch.testing.assert_close(new["embed"].weight[:WORDS], old["inner.embed.weight"])


def test_other_differences_in_size_are_refused(dictionary):
    add_document_symbols(dictionary)
    new = tiny_model(len(dictionary))
    let_vocabulary_grow(new, dictionary)
    with pytest.raises(RuntimeError, match="size mismatch"):
        new.load_state_dict(tiny_model(len(dictionary) - 1).state_dict())


def test_frozen_rows_are_reported(dictionary, caplog):
    old = tiny_model(len(dictionary)).state_dict()
    new = tiny_model(len(add_document_symbols(dictionary))).requires_grad_(False)
    let_vocabulary_grow(new, dictionary)
    with caplog.at_level(logging.WARNING):
        new.load_state_dict(old)
    assert "embed.weight: the parameters of <sep>, <bod> are new" in caplog.text


def test_new_rows_begin_as_the_mean_of_the_others(dictionary):
    old = tiny_model(len(dictionary)).state_dict()
    for symbol in ("[xx]", "<sep>", "<bod>"):
        dictionary.add_symbol(symbol)
    new = tiny_model(len(dictionary))
    let_vocabulary_grow(new, dictionary, new=("[xx]", "<sep>", "<bod>"), as_mean=True)
    new.load_state_dict(dict(old))
    for name, value in new.state_dict().items():
        mean = old[name].mean(dim=0)
        torch.testing.assert_close(value, torch.cat([old[name], *[mean[None]] * 3]))
