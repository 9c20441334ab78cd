"""Language tags around the sentences of training examples, and their symbols."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset

from fairseq_docmt.data import DocumentCorpus, DocumentView, add_document_symbols, window_spans
from fairseq_docmt.data.language_tags import NO_TAGS, LanguageTags, insert_symbols

EOS, PAD, SEP, BOD = 2, 1, 24, 25
AT_THE_END = LanguageTags(source_end=(20,), first=21)
AT_THE_START = LanguageTags(source_start=(20,), target_start=(21,))


@pytest.fixture
def corpus():
    """A document of two sentences, and one of one."""
    words = Dictionary()
    for i in range(20):
        words.add_symbol(f"w{i}")
    add_document_symbols(words)
    src, tgt = [[5, 6], [7], [], [8]], [[15], [16, 17], [], [18]]
    sides = [[torch.tensor(row + [EOS]) for row in side] for side in (src, tgt)]
    sizes = [[len(row) for row in side] for side in sides]
    return DocumentCorpus(
        "tiny", LanguagePairDataset(sides[0], sizes[0], words, sides[1], sizes[1], words)
    )


def example(corpus, tags, item=1, **options):
    """Source, decoder input and target of a window of two sentences."""
    spans = window_spans(corpus.index, 2, [(corpus.src_sizes, 100)])
    view = DocumentView(corpus, spans, tags=tags, **options)
    assert view.num_tokens(item) == max(len(view[item][k]) for k in ("source", "target"))
    assert view.src_sizes[item] == len(view[item]["source"])
    assert view.tgt_sizes[item] == len(view[item]["target"])
    batch = view.collater([view[item]])
    rows = [batch["net_input"][key] for key in ("src_tokens", "prev_output_tokens")]
    return [row[0].tolist() for row in (*rows, batch["target"])]


def test_tags_at_the_end_of_the_source(corpus):
    assert example(corpus, AT_THE_END) == [
        [5, 6, SEP, 7, EOS, 20],
        [21, 15, SEP, 16, 17],
        [15, SEP, 16, 17, EOS],
    ]


def test_tags_at_the_start(corpus):
    assert example(corpus, AT_THE_START) == [
        [20, 5, 6, SEP, 7, EOS],
        [EOS, 21, 15, SEP, 16, 17],
        [21, 15, SEP, 16, 17, EOS],
    ]


@pytest.mark.parametrize(
    "tags, want",
    [
        (AT_THE_END, [[BOD, 8, EOS, 20], [21, BOD, 18], [BOD, 18, EOS]]),
        (AT_THE_START, [[20, BOD, 8, EOS], [EOS, 21, BOD, 18], [21, BOD, 18, EOS]]),
    ],
)
def test_the_mark_of_documents_is_between_tag_and_sentences(corpus, tags, want):
    assert example(corpus, tags, item=2, mark_document_start=True) == want


@pytest.mark.parametrize(
    "tags, want",
    [
        (AT_THE_END, [[21, 15, SEP, 16, 17], [PAD, PAD, 16, 17, EOS]]),
        (AT_THE_START, [[EOS, 21, 15, SEP, 16, 17], [PAD, PAD, PAD, 16, 17, EOS]]),
    ],
)
def test_loss_on_the_last_sentence(corpus, tags, want):
    assert example(corpus, tags, loss_on_last=True)[1:] == want


@pytest.mark.parametrize("tags", [NO_TAGS, AT_THE_END, AT_THE_START])
def test_dropped_words_are_those_of_the_current_sentence(corpus, tags):
    plain = np.array(example(corpus, tags)[0])
    (dropped,) = np.flatnonzero(plain != example(corpus, tags, coword_dropout=0.999999)[0])
    assert plain[dropped] == 7


@pytest.mark.parametrize(
    "tags, want",
    [
        (AT_THE_END, [[3, 3, SEP, 3, EOS, 20], [21, 3, SEP, 3, 3], [15, SEP, 16, 17, EOS]]),
        (
            AT_THE_START,
            [[20, 3, 3, SEP, 3, EOS], [EOS, 21, 3, SEP, 3, 3], [21, 15, SEP, 16, 17, EOS]],
        ),
    ],
)
def test_tags_are_not_dropped(corpus, tags, want):
    assert example(corpus, tags, word_dropout=0.999999) == want


def test_symbols_go_before_the_document_symbols():
    words = add_document_symbols(Dictionary())
    size = len(words)
    insert_symbols(words, ["[a]", "[b]"])
    insert_symbols(words, ["[b]", "[a]"])
    want = ["[a]", "[b]", "<sep>", "<bod>"]
    assert words.symbols[size - 2 :] == want
    assert [words.index(symbol) for symbol in want] == [size - 2, size - 1, size, size + 1]
    assert len(words.count) == len(words) == size + 2


def test_symbols_that_are_there_keep_their_places():
    """As in a dictionary that was saved with all of them."""
    words = Dictionary()
    for symbol in ("[a]", "<sep>", "<bod>"):
        words.add_symbol(symbol)
    before = list(words.symbols)
    insert_symbols(words, ["[a]"])
    assert words.symbols == before
