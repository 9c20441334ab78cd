"""Document symbols of the dictionaries, and joining and splitting of sentences at them."""

from typing import List, Sequence

import torch
from fairseq.data import Dictionary
from torch import Tensor

SENTENCE_SEPARATOR = "<sep>"
BEGIN_OF_DOCUMENT = "<bod>"
DOCUMENT_SYMBOLS = (SENTENCE_SEPARATOR, BEGIN_OF_DOCUMENT)


def add_document_symbols(dictionary: Dictionary) -> Dictionary:
    """Append ``<sep>`` and ``<bod>``, in this order, unless they are there already.

    They are added to every dictionary, whatever the options, so that sentence-level and
    document-level models share a vocabulary and one can be finetuned from the other.
    """
    for symbol in DOCUMENT_SYMBOLS:
        dictionary.add_symbol(symbol)
    return dictionary


def separator_index(dictionary: Dictionary) -> int:
    """Return the index of ``<sep>``, or -1 (no token) for a sentence-level dictionary."""
    return _index(dictionary, SENTENCE_SEPARATOR)


def begin_index(dictionary: Dictionary) -> int:
    """Return the index of ``<bod>``, or -1 (no token) for a sentence-level dictionary."""
    return _index(dictionary, BEGIN_OF_DOCUMENT)


def _index(dictionary: Dictionary, symbol: str) -> int:
    index = dictionary.index(symbol)
    return -1 if index == dictionary.unk() else index


def join_sentences(sentences: Sequence[Tensor], separator: int) -> Tensor:
    """Join sentences into one sequence: ``s1 <sep> s2 <sep> s3 </s>``.

    Args:
        sentences: 1-D int64 tensors, each ending in ``</s>``.
        separator: index of ``<sep>``, which replaces every ``</s>`` but the last.

    Returns:
        1-D tensor, whose length is the sum of the lengths of the sentences.
    """
    if len(sentences) == 1:
        return sentences[0]
    joined = torch.cat(list(sentences))
    ends = torch.tensor([len(s) for s in sentences[:-1]]).cumsum(0) - 1
    joined[ends] = separator
    return joined


def split_sentences(tokens: Tensor, separator: int) -> List[Tensor]:
    """Split a sequence without ``</s>`` at each separator and drop the separators."""
    cuts = tokens.eq(separator).nonzero().view(-1).tolist()
    starts = [0] + [c + 1 for c in cuts]
    return [tokens[a:b] for a, b in zip(starts, cuts + [len(tokens)])]
