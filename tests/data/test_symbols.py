"""Document symbols in dictionaries, and joining and splitting of sentences."""

import pytest
import torch
from fairseq.data import Dictionary

from fairseq_docmt.data.symbols import (
    add_document_symbols,
    begin_index,
    join_sentences,
    separator_index,
    split_sentences,
)

EOS, SEP = 2, 9


def test_symbols_are_added_once_and_in_order():
    words = add_document_symbols(Dictionary())
    size = len(words)
    assert (separator_index(words), begin_index(words)) == (size - 2, size - 1)
    assert len(add_document_symbols(words)) == size


def test_a_dictionary_of_a_sentence_level_model_has_none():
    assert separator_index(Dictionary()) == begin_index(Dictionary()) == -1


@pytest.mark.parametrize(
    "sentences, want",
    [
        ([[5, EOS]], [5, EOS]),
        ([[5, EOS], [6, 7, EOS]], [5, SEP, 6, 7, EOS]),
        ([[5, EOS], [EOS], [6, EOS]], [5, SEP, SEP, 6, EOS]),
    ],
)
def test_sentences_are_joined_at_separators_and_split_again(sentences, want):
    tensors = [torch.tensor(sentence) for sentence in sentences]
    joined = join_sentences(tensors, SEP)
    assert joined.tolist() == want
    assert [t.tolist() for t in tensors] == sentences  # unchanged
    parts = split_sentences(joined[:-1], SEP)
    assert [part.tolist() for part in parts] == [sentence[:-1] for sentence in sentences]
