"""Sentence pairs among documents: chosen pair by pair, and read as documents of one sentence."""

from functools import partial

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset

from fairseq_docmt.data import (
    DocumentCorpus,
    DocumentView,
    Formats,
    add_document_symbols,
    window_spans,
)
from fairseq_docmt.data.corpus import with_sentence_pairs
from fairseq_docmt.spans import mixed_spans

EOS = 2


def corpus_of(lines, name="tiny"):
    words = Dictionary()
    for i in range(30):
        words.add_symbol(f"w{i}")
    words = add_document_symbols(words)
    sides = [[torch.tensor([*line, EOS]) for line in lines] for _ in range(2)]
    sizes = [[len(line) for line in side] for side in sides]
    return DocumentCorpus(
        name, LanguagePairDataset(sides[0], sizes[0], words, sides[1], sizes[1], words)
    )


def pairs_by_loop(spans, tgt_sizes, first_pair, ratio, loss_on_last, random):
    wanted = 0
    for first, end in spans:
        wanted += sum(tgt_sizes[end - 1 : end] if loss_on_last else tgt_sizes[first:end])
    order = random.permutation(len(tgt_sizes) - first_pair)
    chosen, tokens = [], 0
    while tokens < ratio * wanted:
        chosen.append(order[len(chosen) % len(order)] + first_pair)
        tokens += tgt_sizes[chosen[-1]]
    return sorted(chosen)


@pytest.mark.parametrize("loss_on_last", [False, True])
@pytest.mark.parametrize("ratio", [0.01, 0.4, 1.0, 2.5])
def test_pairs_are_chosen_until_they_have_enough_tokens(ratio, loss_on_last):
    sizes = np.random.RandomState(4).randint(2, 9, size=40)
    spans = np.array([[0, 3], [1, 4], [4, 9], [9, 10]])
    drawn = set()
    for seed in range(5):
        given = (spans, sizes, 10, ratio, loss_on_last)
        found = mixed_spans(*given, random=np.random.RandomState(seed))
        wanted = pairs_by_loop(*given, np.random.RandomState(seed))
        assert found[:4].tolist() == spans.tolist()
        assert found[4:, 0].tolist() == wanted
        assert (found[4:, 1] - found[4:, 0] == 1).all()
        drawn.add(tuple(wanted))
    assert len(drawn) > 1


def test_pairs_are_documents_of_one_sentence():
    """Blank lines among the pairs are no sentences."""
    documents = corpus_of([[5, 6], [7], [], [8]])
    joined = with_sentence_pairs(documents, corpus_of([[9], [10, 11], [], [12]], "pairs"))
    assert [joined.place(line) for line in (0, 3, 4, 7)] == [
        *["tiny: line 1", "tiny: line 4", "pairs: line 1", "pairs: line 4"],
    ]
    assert documents.index.num_sentences == 3
    spans = window_spans(joined.index, 3, [(joined.tgt_sizes, 100)])
    assert spans.tolist() == [[0, 1], [0, 2], [2, 3], [3, 4], [4, 5], [5, 6]]
    pairs = joined.pairs
    formats = Formats.of(pairs.src_dict, pairs.tgt_dict, mark_document_start=True)
    view = DocumentView(joined, spans, formats=formats)
    begin = view.src_dict.index("<bod>")
    assert [view[item]["source"].tolist() for item in range(3, 6)] == [
        [begin, 9, EOS],
        [begin, 10, 11, EOS],
        [begin, 12, EOS],
    ]
    assert view.ids.tolist() == [0, 1, 3, 4, 5, 7]
    cut = partial(window_spans, documents.index, 2, [(documents.tgt_sizes, 100)], stride=2)
    draw = partial(mixed_spans, cut, joined.tgt_sizes, 3, 0.5)
    view = DocumentView(joined, draw, seed=3)
    for epoch in (1, 2):
        view.set_epoch(epoch)
        wanted = draw(random=np.random.RandomState([3, epoch]))
        assert view.spans.tolist() == wanted.tolist()
    assert not view.can_reuse_epoch_itr_across_epochs
