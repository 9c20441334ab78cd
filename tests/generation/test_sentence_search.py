"""Limits of each row of a search, and beam search over the best words, which changes nothing."""

import math

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.search import BeamSearch, Sampling
from torch.nn.utils.rnn import pad_sequence

from fairseq_docmt.data import add_document_symbols
from fairseq_docmt.generation import sentence_search
from fairseq_docmt.generation.sentence_search import FewWordsBeamSearch, SentenceSearch, most_likely


def search_of(limits, counts, least=None, marks=None):
    """Return a search; ``counts`` are numbers of sentences, or lists of their source tokens."""
    sizes = [torch.tensor([4] * c if isinstance(c, int) else c, dtype=torch.long) for c in counts]
    words = Dictionary()
    words.add_symbol("w")
    add_document_symbols(words)
    search = SentenceSearch(
        BeamSearch(words), words, words.index("<sep>"), 1, 1, 1.0, [words.index("<bod>")]
    )
    least = torch.ones_like(torch.tensor(limits)) if least is None else torch.tensor(least)
    marks = None if marks is None else torch.tensor(marks)
    sizes = pad_sequence(sizes, batch_first=True)
    search.restrict(torch.tensor(limits), sizes, least, marks=marks)
    return search, words


def allowed(limits, counts, tokens, rows=None, least=None, marks=None):
    """Return the symbols that may follow in each row, with beam size 1."""
    search, words = search_of(limits, counts, least, marks)
    tokens = torch.tensor([[words.index(t) for t in ["</s>", *row]] for row in tokens])
    rows = torch.arange(len(tokens)) if rows is None else rows
    step = tokens.size(1) - 1
    lprobs = torch.zeros(len(tokens), 1, len(words)).log_softmax(-1)
    scores = torch.zeros(len(tokens), 1, step)
    search.step(step, lprobs, scores, tokens, rows)
    names = ("</s>", "<sep>", "<bod>", "w")
    return [{n for n in names if row[0, words.index(n)] > -1e9} for row in lprobs]


def test_rows_without_a_count_are_free_until_their_own_limit():
    found = allowed([2, 5], [0, 0], [["w", "w"], ["w", "w"]])
    assert found == [{"</s>"}, {"</s>", "<sep>", "w"}]


def test_counts_hold_back_the_end_and_then_the_separator():
    found = allowed([20, 20], [2, 1], [["w"], ["w"]])
    assert found == [{"<sep>", "w"}, {"</s>", "w"}]
    assert allowed([20], [2], [["w", "<sep>", "w"]]) == [{"</s>", "w"}]


def test_each_sentence_has_its_share_of_the_limit():
    # 5 tokens for 2 sentences and a separator: 2 each
    assert allowed([5], [2], [["w"]]) == [{"<sep>", "w"}]
    assert allowed([5], [2], [["w", "w"]]) == [{"<sep>"}]
    # and for the last what is left
    assert allowed([5], [2], [["w", "<sep>", "w"]]) == [{"</s>", "w"}]
    assert allowed([5], [2], [["w", "<sep>", "w", "w"]]) == [{"</s>", "w"}]
    assert allowed([5], [2], [["w", "<sep>", "w", "w", "w"]]) == [{"</s>"}]


def test_shares_are_those_of_the_sources():
    # 10 tokens for 3 sentences and 2 separators: 4, 2, and 2
    sizes = [[8, 4, 4]]
    assert allowed([10], sizes, [["w"] * 3]) == [{"<sep>", "w"}]
    assert allowed([10], sizes, [["w"] * 4]) == [{"<sep>"}]
    assert allowed([10], sizes, [["w", "<sep>", *["w"] * 4]]) == [{"<sep>", "w"}]
    assert allowed([10], sizes, [["w", "<sep>", *["w"] * 5]]) == [{"<sep>"}]
    # a mark at the beginning belongs to no sentence
    assert allowed([11], sizes, [["<bod>", *["w"] * 3]], marks=[1]) == [{"<sep>", "w"}]
    assert allowed([11], sizes, [["<bod>", *["w"] * 4]], marks=[1]) == [{"<sep>"}]


@pytest.mark.parametrize("limit", range(4, 30))
@pytest.mark.parametrize("sizes", [[2, 2, 2, 2], [9, 2, 2, 30], [2, 40, 3, 2]])
def test_later_sentences_can_always_be_written(limit, sizes):
    """If each sentence is as long as it may be, all have their shares within the limit."""
    written = []
    while True:
        (following,) = allowed([limit], [sizes], [written])
        if "w" not in following and "<sep>" not in following:
            break
        written.append("w" if "w" in following else "<sep>")
    lengths = [len(s.split()) for s in " ".join(written).split("<sep>")]
    assert following == {"</s>"} and len(written) == limit
    shares = [(limit - 3) * size // sum(sizes) for size in sizes]
    assert len(lengths) == 4 and all(n >= share for n, share in zip(lengths, shares))


def test_a_limit_below_the_number_of_sentences_ends_the_row():
    assert allowed([2], [5], [["<sep>", "<sep>"]]) == [{"</s>"}]


def test_rows_are_found_after_others_have_finished():
    found = allowed([1, 9], [0, 0], [["w", "w"]], rows=torch.tensor([1]))
    assert found == [{"</s>", "<sep>", "w"}]


def test_no_end_before_the_minimum_length():
    found = allowed([9, 9, 2], [0, 0, 0], [["w", "w"]] * 3, least=[2, 3, 3])
    assert found == [{"</s>", "<sep>", "w"}, {"<sep>", "w"}, {"</s>"}]


def test_some_symbols_come_before_a_translation_only():
    found = allowed([9, 9], [0, 0], [["w"], ["w"]], marks=[2, 1])
    assert found == [{"</s>", "<sep>", "<bod>", "w"}, {"</s>", "<sep>", "w"}]


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("options", [{}, {"sampling_topk": 3}, {"sampling_topp": 0.3}], ids=str)
def test_samples_may_be_as_improbable_as_they_must(step, options):
    """Where only the end is allowed; its probability of e^-300 is 0 in single precision."""
    search, words = search_of([step], [0], least=[0])
    search.inner = Sampling(words, **options)
    lprobs = torch.full((1, 2, len(words)), -math.log(len(words) - 1))
    lprobs[..., words.eos()] = -300.0
    scores = torch.full((1, 2, step), -5.0)
    tokens = torch.full((2, step + 1), words.index("w"))
    found, chosen, beams = search.step(step, lprobs, scores, tokens, torch.tensor([0]))
    assert chosen.eq(words.eos()).all() and beams.tolist() == [[0, 1] if step else [0, 0]]
    assert found.tolist() == [[-305.0 if step else -300.0] * 2]


def test_shares_begin_after_the_symbols_in_front():
    """Also where there is room for nothing else."""
    assert allowed([1], [3], [[]], marks=[1]) == [{"<sep>", "<bod>", "w"}]
    assert allowed([1], [3], [["<bod>"]], marks=[1]) == [{"</s>"}]


BSZ, BEAMS = 3, 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(sentence_search, "BLOCK", 5)


def dictionary(words):
    made = Dictionary()
    for number in range(words - len(made)):
        made.add_symbol(f"w{number}")
    return made


@pytest.mark.parametrize("words", [8, 60, 199, 200, 203])
@pytest.mark.parametrize("step", [0, 1, 5])
def test_choices_equal_those_of_fairseq(words, step):
    known = dictionary(words)
    lprobs = torch.randn(BSZ, BEAMS, words).log_softmax(dim=-1)
    lprobs[0, :, 7:] = -float("inf")  # fewer words than are asked for
    lprobs[1, 2, known.eos()] = 0.0
    lprobs[2, :, -1] = torch.arange(BEAMS).neg()  # behind the last whole block
    scores = torch.randn(BSZ, BEAMS, step).cumsum(dim=-1) if step else None
    wanted = BeamSearch(known).step(step, lprobs, scores)
    found = FewWordsBeamSearch(known).step(step, lprobs, scores)
    torch.testing.assert_close(found[0], wanted[0])
    possible = wanted[0] > -float("inf")
    for got, want in zip(found[1:], wanted[1:]):
        torch.testing.assert_close(got[possible], want[possible])


@pytest.mark.parametrize("words", [100, 104])
def test_the_most_likely(words):
    x = torch.randn(2, 3, words)
    x[..., -3:] += 2
    for got, want in zip(most_likely(x, 7), x.topk(7)):
        torch.testing.assert_close(got, want)
