"""Stopping of the generator, strategies that do not rank hypotheses, and repeated n-grams."""

import math

import pytest
import tiny
import torch
from fairseq import search
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from naive_search import beam_search

from fairseq_docmt.generation.sequence_generator import (
    DocumentGenerator,
    RowLimits,
    SentenceNgramBlock,
    _merge,
)

LIMIT = 9
STRATEGIES = {
    "greedy": (1, search.BeamSearch),
    "sampling": (3, lambda words: search.Sampling(words, 5)),
    "diverse": (4, lambda words: search.DiverseBeamSearch(words, 2, 0.5, candidate_multiple=2)),
    "siblings": (3, lambda words: search.DiverseSiblingsSearch(words, 0.5)),
}


@pytest.fixture(scope="module")
def model():
    """Return an untrained model that sometimes ends a sentence."""
    built = tiny.model(*tiny.MODEL)
    words = tiny.dictionary()
    with torch.no_grad():
        built.decoder.output_projection.weight.mul_(0.7)
        built.decoder.output_projection.weight[words.eos()].mul_(2)
    return built


def source(words, rows):
    tokens = torch.randint(words.nspecial, words.nspecial + 12, (rows, 5))
    return {"src_tokens": tokens, "src_lengths": torch.full((rows,), 5)}


def generator_of(model, words, beam, strategy, nbest=1, **options):
    return DocumentGenerator(
        [model],
        words,
        separator=words.index("<sep>"),
        nbest=nbest,
        beam_size=beam,
        max_len_b=LIMIT,
        search_strategy=strategy(words),
        **options,
    )


def found_by(generator, net_input, limits):
    """Return (tokens, score) of all hypotheses of each row."""
    rows = len(limits)
    one = torch.ones(rows, dtype=torch.long)
    generator.search.restrict(torch.tensor(limits), one.unsqueeze(1), one)
    found = generator.generate(list(generator.model.models), {"net_input": net_input})
    return [[(h["tokens"].tolist(), float(h["score"])) for h in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategies_that_do_not_rank_stop_as_in_fairseq(model, name):
    beam, strategy = STRATEGIES[name]
    words = tiny.dictionary()
    net_input = source(words, 6)
    stock = SequenceGenerator(
        [model], words, beam_size=beam, max_len_b=LIMIT, search_strategy=strategy(words)
    )
    torch.manual_seed(1)
    wanted = stock.generate([model], {"net_input": net_input})
    torch.manual_seed(1)
    found = found_by(generator_of(model, words, beam, strategy), net_input, [LIMIT] * 6)
    assert [[h["tokens"].tolist() for h in row] for row in wanted] == [
        [tokens for tokens, _ in row] for row in found
    ]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_diverse_hypotheses_end_once(model, groups):
    words = tiny.dictionary()
    generator = generator_of(model, words, 4, lambda w: search.DiverseBeamSearch(w, groups, 0.5))
    for row in found_by(generator, source(words, 6), [LIMIT] * 6):
        assert all(words.eos() not in tokens[:-1] for tokens, _ in row)
        assert len({tuple(tokens) for tokens, _ in row}) == 4


@pytest.mark.parametrize("name", ["diverse", "siblings"])
def test_a_row_that_ends_after_its_forced_word_has_one_hypothesis(model, name):
    """It does not wait for as many as there are beams."""
    beam, strategy = STRATEGIES[name]
    words = tiny.dictionary()
    net_input, forced = source(words, 2), words.nspecial + 3
    generator = generator_of(model, words, beam, strategy)
    limits = RowLimits(most=[1, LIMIT], marks=[1, 0])
    prefixes = torch.tensor([[forced], [words.pad()]])
    sample = {"net_input": net_input}
    found = generator.generate([model], sample, limits, prefix_tokens=prefixes)
    tokens = [[h["tokens"].tolist() for h in hypotheses] for hypotheses in found]
    assert {tuple(row) for row in tokens[0]} == {(forced, words.eos())}
    assert len(tokens[1]) == beam


@pytest.mark.parametrize("name", ["beam", "diverse", "groups", "sampling"])
def test_lists_have_equal_hypotheses_once(model, name):
    """After a beginning that ends the sentence, and in groups of beams that find the same."""
    words = tiny.dictionary()
    strategies = {
        "beam": search.BeamSearch,
        "groups": lambda words: search.DiverseBeamSearch(words, 4, 0.0),
        "sampling": lambda words: search.Sampling(words, 1),
    }
    strategy = strategies.get(name) or STRATEGIES[name][1]
    generator = generator_of(model, words, 4, strategy, nbest=3)
    forced = torch.tensor([[words.nspecial, words.eos()], [words.pad(), words.pad()]])
    prefixes = {} if name in ("groups", "sampling") else {"prefix_tokens": forced}
    found = generator.generate(
        [model], {"net_input": source(words, 2)}, RowLimits(most=[LIMIT] * 2), **prefixes
    )
    for row in found:
        tokens = [tuple(hypothesis["tokens"].tolist()) for hypothesis in row]
        assert len(tokens) == (4 if name == "sampling" else len(set(tokens)))
    if prefixes:
        assert [h["tokens"].tolist() for h in found[0]] == [[words.nspecial, words.eos()]]


@torch.no_grad()
@pytest.mark.parametrize(
    "beam, nbest, len_penalty", [(2, 1, 1.0), (3, 3, 0.5), (5, 2, 1.5), (4, 1, 0.0), (4, 4, 1.0)]
)
def test_beams_equal_those_of_a_plain_loop_in_any_batch(model, beam, nbest, len_penalty):
    words = tiny.dictionary()
    net_input = source(words, 7)
    limits = [LIMIT, 3, LIMIT, 1, 6, LIMIT, LIMIT]
    options = {"len_penalty": len_penalty, "normalize_scores": len_penalty > 0}
    generator = generator_of(model, words, beam, search.BeamSearch, nbest, **options)
    found = [row[:nbest] for row in found_by(generator, net_input, limits)]
    alone = [
        found_by(generator, {key: value[i : i + 1] for key, value in net_input.items()}, [limit])
        for i, limit in enumerate(limits)
    ]
    for row, limit in enumerate(limits):
        encoder_out = model.encoder(net_input["src_tokens"][row : row + 1], torch.tensor([5]))

        def next_words(rows, encoder_out=encoder_out):
            same = torch.zeros(len(rows), dtype=torch.long)
            tokens = torch.tensor([[words.eos(), *row] for row in rows])
            logits, _ = model.decoder(tokens, model.encoder.reorder_encoder_out(encoder_out, same))
            return logits[:, -1].log_softmax(-1)

        never = [words.pad(), words.index("<sep>")]
        wanted = beam_search(
            next_words,
            beam=beam,
            nbest=nbest,
            limit=limit,
            end=words.eos(),
            never=never,
            len_penalty=len_penalty,
        )
        assert [tokens[:-1] for tokens, _ in found[row]] == [w.tokens for w in wanted]
        assert [score for _, score in found[row]] == pytest.approx([w.score for w in wanted], 1e-5)
        assert found[row] == [
            (tokens, pytest.approx(score, abs=1e-6)) for tokens, score in alone[row][0][:nbest]
        ]


class SureOfSix(EnsembleModel):
    """Model that predicts one word six times, then the end, which is always second before."""

    def forward_decoder(self, tokens, encoder_outs, incremental_states, temperature=1.0):
        words, length = tiny.dictionary(), tokens.size(1) - 1
        probabilities = torch.full((len(tokens), len(words)), 0.001)
        probabilities[:, words.index("w1")] = 0.9 if length < 6 else 0.01
        probabilities[:, words.eos()] = 0.05 if length < 6 else 0.9
        return probabilities.log(), None


def test_bad_hypotheses_do_not_end_a_search(model):
    """fairseq stops after two words, when two hypotheses are finished."""
    words = tiny.dictionary()
    net_input, wanted = source(words, 2), [words.index("w1")] * 6
    stock = SequenceGenerator(SureOfSix([model]), words, beam_size=2, max_len_b=LIMIT)
    assert len(stock.generate([model], {"net_input": net_input})[0][0]["tokens"]) < 6
    generator = generator_of(model, words, 2, search.BeamSearch, ensemble=SureOfSix([model]))
    for row in found_by(generator, net_input, [LIMIT] * 2):
        assert row[0][0] == [*wanted, words.eos()]


def test_the_best_hypotheses_are_kept():
    def made(*scores):
        return [{"score": torch.tensor(score)} for score in scores]

    finalized = [made(-1.0, -3.0), made(-1.0), []]
    _merge(finalized, [made(-2.0), made(-5.0), made(-4.0)], 2)
    kept = [[float(h["score"]) for h in row] for row in finalized]
    assert kept == [[-1.0, -2.0], [-1.0, -5.0], [-4.0]]


SEP, END, WORDS = 9, 2, 10


def banned(size, *hypotheses, forced=None):
    """Return the words that may not follow each of two hypotheses of the same length."""
    step = len(hypotheses[0])
    tokens = torch.full((len(hypotheses), step + 5), 1)  # padding follows
    tokens[:, 0] = END
    tokens[:, 1 : step + 1] = torch.tensor(hypotheses, dtype=torch.long)
    lprobs = torch.zeros(len(hypotheses), WORDS)
    if forced is not None:
        lprobs[:, torch.arange(WORDS) != forced] = -math.inf
    found = SentenceNgramBlock(size, SEP, END)(tokens, lprobs, 1, len(hypotheses), step)
    return [row.eq(-math.inf).nonzero().view(-1).tolist() for row in found]


@pytest.mark.parametrize(
    "size, hypothesis, want",
    [
        (1, [], []),
        (1, [5, 6, 5], [5, 6]),
        (2, [5], []),
        (2, [5, 5], [5]),
        (2, [5, 6, 7, 5], [6]),
        (2, [5, 6, 5, 7, 5], [6, 7]),
        (3, [5, 6, 7, 5], []),
        (3, [5, 6, 7, 5, 6], [7]),
        (3, [5, 5, 5], [5]),
        # the sentence before does not count
        (1, [5, 6, SEP, 7], [7]),
        (1, [5, 6, SEP], []),
        # a sample that has ended goes on
        (1, [5, END, 6], [5, 6]),
        (2, [5, END, 6, 5], []),
        (2, [5, 6, SEP, 5], []),
        (2, [7, SEP, 5, 6, SEP, 7, SEP], []),
        (2, [6, 5, SEP, 5, 6, 5], [6]),
        (3, [5, 6, SEP, 5, 6], []),
    ],
)
def test_words_that_may_not_follow(size, hypothesis, want):
    assert banned(size, hypothesis) == [want]


def test_each_hypothesis_by_itself():
    assert banned(2, [5, 6, 5], [5, 6, 7], [6, 6, 6]) == [[6], [], [6]]


def test_a_word_that_is_forced_may_be_repeated():
    others = [word for word in range(WORDS) if word != 5]
    assert banned(2, [5, 5], forced=5) == [others]
