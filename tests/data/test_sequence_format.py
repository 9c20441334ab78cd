"""Formats of sequences: symbols, joining and splitting, and language tags of training examples."""

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, LanguagePairDataset

from fairseq_docmt.data import (
    DocumentCorpus,
    DocumentView,
    Formats,
    SequenceFormat,
    add_document_symbols,
    window_spans,
)
from fairseq_docmt.data.sequence_format import (
    NO_TAGS,
    LanguageTags,
    begin_index,
    insert_symbols,
    separator_index,
)

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


def example(corpus, tags, item=1, marked=False, **options):
    """Source, decoder input and target of a window of two sentences."""
    spans = window_spans(corpus.index, 2, [(corpus.src_sizes, 100)])
    formats = Formats.of(corpus.pairs.src_dict, corpus.pairs.tgt_dict, tags, marked)
    view = DocumentView(corpus, spans, formats=formats, **options)
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
    assert example(corpus, tags, item=2, marked=True) == want


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


# ---- joining and splitting -----------------------------------------------------------------------


def test_symbols_are_added_once_and_in_order():
    words = add_document_symbols(Dictionary())
    size = len(words)
    assert [words[i] for i in range(size - 2, size)] == ["<sep>", "<bod>"]
    assert (separator_index(words), begin_index(words)) == (size - 2, size - 1)
    assert len(add_document_symbols(words)) == size


def test_a_dictionary_of_a_sentence_level_model_has_none():
    assert separator_index(Dictionary()) == begin_index(Dictionary()) == -1


PLAIN = {}
TAGGED = {"before": (20,), "after": (21, 22), "marks_start": True}


@pytest.mark.parametrize(
    "options, at_start, sentences, want",
    [
        (PLAIN, True, [[5, EOS]], [5, EOS]),
        (PLAIN, False, [[5, EOS], [6, 7, EOS]], [5, SEP, 6, 7, EOS]),
        (PLAIN, False, [[5, EOS], [EOS], [6, EOS]], [5, SEP, SEP, 6, EOS]),
        (TAGGED, False, [[5, EOS], [6, EOS]], [20, 5, SEP, 6, EOS, 21, 22]),
        (TAGGED, True, [[5, EOS], [6, EOS]], [20, BOD, 5, SEP, 6, EOS, 21, 22]),
        (TAGGED, True, [[EOS]], [20, BOD, EOS, 21, 22]),
    ],
)
def test_sentences_are_joined_and_found_again(corpus, options, at_start, sentences, want):
    given = SequenceFormat(corpus.pairs.src_dict, **options)
    tensors = [torch.tensor(sentence) for sentence in sentences]
    joined = given.join(tensors, at_start)
    assert joined.tolist() == want
    assert [t.tolist() for t in tensors] == sentences  # the corpus itself is not written to
    parts, marked = given.split(joined)
    assert [part.tolist() for part in parts] == sentences
    assert marked is (at_start and given.marks_start)
    found = given.find(joined, at_start)
    assert found == given.places(map(len, sentences), at_start)
    assert [want[a : b - 1] for a, b in found] == [sentence[:-1] for sentence in sentences]
    assert len(want) - sum(map(len, sentences)) <= given.most_added


@pytest.mark.parametrize("options", [PLAIN, TAGGED])
def test_a_row_without_a_sentence_is_split(corpus, options):
    """In place of a sentence, a source has ``</s>`` alone and a target nothing."""
    given = SequenceFormat(corpus.pairs.src_dict, **options)
    alone, _ = given.split(torch.tensor([EOS]))
    assert [part.tolist() for part in alone] == ([] if options else [[EOS]])
    assert given.split(torch.tensor([], dtype=torch.long)) == ([], False)


@pytest.mark.parametrize("first, want", [(None, EOS), (21, 21)])
def test_input_of_the_decoder(corpus, first, want):
    given = SequenceFormat(corpus.pairs.tgt_dict, (20,), first=first, marks_start=True)
    texts = [torch.tensor([5, 6]), torch.tensor([7])]
    prefix = given.prefix(texts, at_start=True)
    assert prefix.tolist() == [want, 20, BOD, 5, 6, SEP, 7, SEP]
    assert len(prefix) == given.prefix_size(texts, at_start=True)
    whole = [given.join([torch.tensor([5, EOS])], False), torch.tensor([EOS])]
    assert given.decoder_input(whole).tolist() == [[want, 20, 5], [want, PAD, PAD]]
