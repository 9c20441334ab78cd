"""Training examples of joined sentences: tokens, sizes, loss, and batches that lose none."""

import numpy as np
import pytest
import tiny
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.data.language_pair_dataset import collate

from fairseq_docmt.data import (
    DocumentCorpus,
    DocumentView,
    Formats,
    add_document_symbols,
    window_spans,
)
from fairseq_docmt.data.document_view import even_batches, sample_in_order
from fairseq_docmt.data.rows_view import RowsView

PAD, EOS = 1, 2
SIDES = ("src_tokens", "prev_output_tokens")


@pytest.fixture
def dictionary():
    return tiny.dictionary(20)


@pytest.fixture
def corpus(dictionary):
    """Return documents of 3, 1 and 2 sentences, separated by one blank line each."""
    src = [[5, 6], [7], [8, 9, 10], [], [11], [], [12, 13], [14]]
    tgt = [[15], [16, 17], [18], [], [19], [], [5], [6, 7, 8]]
    sides = [[torch.tensor(row + [EOS]) for row in side] for side in (src, tgt)]
    sizes = [[len(row) for row in side] for side in sides]
    pairs = LanguagePairDataset(
        sides[0], sizes[0], dictionary, sides[1], sizes[1], dictionary, shuffle=False
    )
    return DocumentCorpus("tiny", pairs)


def marked(corpus):
    """Return the formats of a corpus with ``<bod>``."""
    pairs = corpus.pairs
    return Formats.of(pairs.src_dict, pairs.tgt_dict, mark_document_start=True)


def view_of(corpus, window_size, **options):
    limits = [(corpus.src_sizes, 100)]
    return DocumentView(corpus, window_spans(corpus.index, window_size, limits), **options)


def test_documents_as_rows_have_sizes_lines_and_draws_of_documents(corpus):
    """With one batch row per sentence, a document counts as a whole, ``<bod>`` included."""
    rows = RowsView(corpus, np.array([[0, 3], [3, 6]]), formats=marked(corpus))
    assert [rows.line_ids_of(item) for item in range(2)] == [[0, 1, 2], [4, 6, 7]]
    plain = RowsView(corpus, np.array([[0, 3], [3, 6]]))
    assert [rows.num_tokens(item) - plain.num_tokens(item) for item in range(2)] == [1, 1]

    def draw(random):
        return np.sort(random.choice(6, size=1)) + [[0, 1]]

    drawn = [RowsView(corpus, draw, seed=seed).spans.tolist() for seed in range(9)]
    assert len({str(spans) for spans in drawn}) > 2


def test_windows_join_both_sides_and_are_named_after_their_last_sentence(corpus, dictionary):
    sep = dictionary.index("<sep>")
    view = view_of(corpus, 2)
    assert len(view) == 6
    assert view[2]["source"].tolist() == [7, sep, 8, 9, 10, EOS]
    assert view[2]["target"].tolist() == [16, 17, sep, 18, EOS]
    assert [view[i]["id"] for i in range(6)] == [0, 1, 2, 4, 6, 7]
    assert view[3]["source"].tolist() == [11, EOS]  # nothing of the document before
    for i in range(6):
        assert len(view[i]["source"]) == view.src_sizes[i]
        assert len(view[i]["target"]) == view.tgt_sizes[i]


def test_document_starts_are_marked_on_request(corpus, dictionary):
    bod = dictionary.index("<bod>")
    view = view_of(corpus, 2, formats=marked(corpus))
    starts = [bool(view[i]["source"][0] == bod) for i in range(6)]
    assert starts == [True, True, False, True, True, True]
    assert [len(view[i]["source"]) for i in range(6)] == view.src_sizes.tolist()


def test_loss_on_last_hides_the_context_only_from_the_loss(corpus, dictionary):
    whole = view_of(corpus, 3)
    last = view_of(corpus, 3, loss_on_last=True)
    items = [2, 5]
    full_batch = whole.collater([whole[i] for i in items])
    batch = last.collater([last[i] for i in items])
    for key in ("src_tokens", "prev_output_tokens"):
        assert torch.equal(batch["net_input"][key], full_batch["net_input"][key])
    for row, line in enumerate(batch["id"].tolist()):
        target = batch["target"][row]
        kept = target[target.ne(dictionary.pad())].tolist()
        assert kept == {2: [18, EOS], 7: [6, 7, 8, EOS]}[line]
    assert batch["ntokens"] == 6


def test_words_of_the_last_source_sentence_are_dropped(corpus, dictionary):
    """Word by word with the draws of the example; the context, symbols and the target stay."""
    whole, unk = view_of(corpus, 3), dictionary.unk()
    for p in (0.3, 0.99999):
        view = view_of(corpus, 3, coword_dropout=p, seed=5)
        assert not view.can_reuse_epoch_itr_across_epochs
        changed = set()
        for epoch in range(1, 6):
            view.set_epoch(epoch)
            for item in range(len(view)):
                random = np.random.RandomState([5, epoch, item])
                wanted = whole[item]["source"].tolist()
                last = view.spans[item, 1] - 1
                for place in range(len(wanted) - corpus.src_sizes[last], len(wanted) - 1):
                    if random.rand() < p:
                        wanted[place] = unk
                assert view[item]["source"].tolist() == wanted
                assert view[item]["source"].tolist() == wanted  # read again
                assert torch.equal(view[item]["target"], whole[item]["target"])
                changed.add((item, tuple(wanted)))
        assert len(changed) > len(view) or p > 0.9
    assert unk not in torch.cat([whole[item]["source"] for item in range(6)]).tolist()


@pytest.mark.parametrize("p", [0.3, 0.99999])
@pytest.mark.parametrize("loss_on_last", [False, True])
def test_words_of_both_sides_are_dropped(corpus, dictionary, p, loss_on_last):
    """Word by word with the draws of the example; symbols and what is predicted stay."""
    options = {"loss_on_last": loss_on_last, "formats": marked(corpus)}
    whole, unk = view_of(corpus, 3, **options), dictionary.unk()
    view = view_of(corpus, 3, **options, word_dropout=p, seed=5)
    assert not view.can_reuse_epoch_itr_across_epochs
    symbols = {EOS, unk, *map(dictionary.index, ("<sep>", "<bod>"))}
    changed = set()
    for epoch in range(1, 6):
        view.set_epoch(epoch)
        batch = view.collater([view[item] for item in range(6)])
        plain = whole.collater([whole[item] for item in range(6)])
        assert torch.equal(batch["target"], plain["target"])
        for row, item in enumerate(batch["id"].argsort().argsort().tolist()):
            random = np.random.RandomState([5, epoch, item, 1])
            for key in SIDES:
                found, given = (b["net_input"][key][row].tolist() for b in (batch, plain))
                for place, word in enumerate(given):
                    if word == dictionary.pad():
                        continue
                    if random.rand() < p and word not in symbols:
                        given[place] = unk
                assert found == given
                changed.add((item, *given))
    assert len(changed) > 3 * len(view) or p > 0.9


def test_words_are_dropped_by_the_dictionary_of_their_side(dictionary):
    """In the source dictionary, which is larger, the target's indices of symbols are words."""
    larger = Dictionary()
    for word in range(30):
        larger.add_symbol(f"w{word}")
    add_document_symbols(larger)
    sides = [torch.tensor(row) for row in ([24, 25, EOS], [5, EOS])]
    pairs = LanguagePairDataset([sides[0]] * 2, [3, 3], larger, [sides[1]] * 2, [2, 2], dictionary)
    example = view_of(DocumentCorpus("tiny", pairs), 2, word_dropout=0.99999)[1]
    assert example["source"].tolist() == [3, 3, larger.index("<sep>"), 3, 3, EOS]
    assert example["prev_output_tokens"].tolist() == [EOS, 3, dictionary.index("<sep>"), 3]
    assert example["target"].tolist() == [5, dictionary.index("<sep>"), 5, EOS]


def test_words_of_both_sides_are_dropped_in_the_first_epochs(corpus, dictionary):
    view = view_of(corpus, 2, word_dropout=0.99999, word_dropout_epochs=2)
    found = {}
    for epoch in (2, 3, 1, 4):
        view.set_epoch(epoch)
        net_input = view.collater([view[1], view[4]])["net_input"]
        found[epoch] = [(net_input[key] == dictionary.unk()).sum().item() for key in SIDES]
    assert found == {1: [5, 4], 2: [5, 4], 3: [0, 0], 4: [0, 0]}


def test_a_seed_stands_for_its_draws(corpus):
    """Runs can be repeated, and resumed, with later versions too."""

    def draw(random):
        return np.sort(random.choice(6, size=2, replace=False))[:, None] + [[0, 1]]

    view = DocumentView(corpus, draw, seed=5, coword_dropout=0.5, word_dropout=0.5)
    found = []
    for epoch in (1, 2):
        view.set_epoch(epoch)
        found.append([view.spans[:, 0].tolist(), *(view[i]["source"].tolist() for i in (0, 1))])
    assert found == [[[0, 4], [3, 6, 2], [3, 3, 2]], [[1, 4], [3, 2], [3, 3, 2]]]


def test_only_the_source_has_the_next_sentences(corpus, dictionary):
    sep, unk = dictionary.index("<sep>"), dictionary.unk()

    def one_more(spans):
        ends = corpus.index.starts[corpus.index.document[spans[:, 0]] + 1]
        return np.stack([spans[:, 0], np.minimum(spans[:, 1] + 1, ends)], axis=1)

    options = {"source_spans": one_more, "formats": marked(corpus)}
    view, plain = view_of(corpus, 2, **options), view_of(corpus, 2, formats=marked(corpus))
    bod = dictionary.index("<bod>")
    assert view[0]["source"].tolist() == [bod, 5, 6, sep, 7, EOS]
    assert view[1]["source"].tolist() == [bod, 5, 6, sep, 7, sep, 8, 9, 10, EOS]
    assert view[2]["source"].tolist() == [7, sep, 8, 9, 10, EOS]
    assert view[3]["source"].tolist() == [bod, 11, EOS]
    for item in range(len(view)):
        assert torch.equal(view[item]["target"], plain[item]["target"])
        assert len(view[item]["source"]) == view.src_sizes[item]
    view = view_of(corpus, 2, coword_dropout=0.9999, **options)
    assert view[1]["source"].tolist() == [bod, 5, 6, sep, unk, sep, 8, 9, 10, EOS]


@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_batches_hold_every_example_once_and_divide_among_processes(corpus, multiple, shards):
    view = view_of(corpus, 2)
    view.num_shards = shards
    batches = view.batch_by_size(view.ordered_indices(), 14, None, multiple)
    assert sorted(np.concatenate(batches).tolist()) == list(range(6))
    assert len(batches) % shards == 0
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(view.num_tokens(i) for i in batch) <= 14
    batches = view.batch_by_size(view.ordered_indices(), None, 2, multiple)
    assert all(0 < len(batch) <= 2 for batch in batches)


def test_a_marked_window_keeps_the_limit_of_positions(corpus):
    """A window loses as many sentences as its mark needs room for."""
    limits = [(corpus.src_sizes, 8)]
    spans = window_spans(corpus.index, 3, limits)
    assert spans.tolist()[:3] == [[0, 1], [0, 2], [1, 3]]
    view = DocumentView(corpus, spans, formats=marked(corpus))
    begin = view.src_dict.index("<bod>")
    assert [int(view[item]["source"][0] == begin) for item in range(3)] == [1, 1, 0]


def test_even_batches_stops_at_single_examples():
    assert even_batches([[1], [2], [3]], 2) == [[1], [2], [3]]
    assert even_batches([[1, 2, 3], [4]], 4) == [[1], [2], [3], [4]]


def stock(examples):
    return collate(examples, PAD, EOS, left_pad_source=True)


def example(number, length, with_target):
    words = torch.arange(4, 4 + length)
    found = {"id": number, "source": torch.cat([words, torch.tensor([EOS])])}
    return {**found, "target": found["source"] + 10} if with_target else found


@pytest.mark.parametrize("with_target", [True, False])
def test_rows_are_in_the_order_of_the_examples(with_target):
    examples = [example(*row, with_target) for row in ((7, 2), (3, 5), (7, 1), (0, 3))]
    sample = sample_in_order(examples, stock)
    assert sample["id"].tolist() == [7, 3, 7, 0]
    net_input = sample["net_input"]
    assert net_input["src_lengths"].tolist() == [3, 6, 2, 4]
    for row, wanted in enumerate(examples):
        source = net_input["src_tokens"][row]
        assert source[source.ne(PAD)].tolist() == wanted["source"].tolist()
        if with_target:
            target = sample["target"][row]
            assert target[target.ne(PAD)].tolist() == wanted["target"].tolist()
            previous = net_input["prev_output_tokens"][row]
            assert previous[previous.ne(PAD)][1:].tolist() == wanted["target"][:-1].tolist()
    assert with_target or sample["target"] is None
