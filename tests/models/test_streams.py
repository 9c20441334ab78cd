"""Dependencies between sentences for models that read documents in lanes."""

import pytest
import tiny
import torch
from fairseq.data.data_utils import collate_tokens

import fairseq_docmt  # noqa: F401
from fairseq_docmt.errors import UserError

DICTIONARY = tiny.dictionary()
PAD, EOS = DICTIONARY.pad(), DICTIONARY.eos()
MEMORIES = {
    "both": [],
    "source": ["--memory-side", "source"],
    "target": ["--memory-side", "target"],
    "all layers": ["--memory-layers", "0,1", "--encoder-layers", "2", "--decoder-layers", "2"],
    "two sentences": ["--memory-gradient-sentences", "2"],
    "exact gradients": ["--exact-memory-gradient"],
}
ARCHITECTURES = {
    **{f"memory, {name}": tiny.memory(*options) for name, options in MEMORIES.items()},
    "cache": tiny.cache("--cache-size", "40"),
    "cache, layers": tiny.cache("--cache-size", "40", "--decoder-layers", "2", "--no-overwrite"),
    "cache, shallow": tiny.cache("--cache-size", "40", "--fusion", "shallow"),
    "cache, few slots": tiny.cache("--cache-size", "9"),
    "previous target": tiny.context(),
    "previous source": tiny.context("--context", "previous-source-attention"),
    "hierarchical": tiny.context("--context", "hierarchical", "--encoder-layers", "2"),
}


@pytest.fixture(params=ARCHITECTURES)
def model(request):
    return tiny.model(*ARCHITECTURES[request.param])


def document(sentences, seed):
    """Pairs of (source, target), each ending in ``</s>``."""
    generator = torch.Generator().manual_seed(seed)

    def sentence():
        length = int(torch.randint(1, 6, (), generator=generator))
        return torch.cat(
            [torch.randint(4, 16, (length,), generator=generator), torch.tensor([EOS])]
        )

    return [(sentence(), sentence()) for _ in range(sentences)]


def run(model, rows, starts, lanes, doc_state=None):
    """Return the log-probabilities of the target tokens of each row, and the document state."""
    source = collate_tokens([s for s, _ in rows], PAD, left_pad=True)
    target = collate_tokens([t for _, t in rows], PAD)
    previous = collate_tokens([t for _, t in rows], PAD, EOS, move_eos_to_beginning=True)
    output = model(
        source,
        source.ne(PAD).sum(1),
        previous,
        starts=torch.tensor(starts),
        lanes=lanes,
        doc_state=doc_state,
    )
    scores = output[0].log_softmax(dim=-1)
    scores = scores.gather(2, target.unsqueeze(2)).squeeze(2)
    return [s[: len(t)] for s, (_, t) in zip(scores, rows)], output[1]["doc_state"]


def alone(model, sentences):
    """Run the sentences one at a time."""
    found, doc_state = [], None
    for number, pair in enumerate(sentences):
        scores, doc_state = run(model, [pair], [number == 0], 1, doc_state)
        found += scores
    return found


def check(found, wanted):
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b)


@torch.no_grad()
def test_lanes_and_chunks_equal_documents_alone(model):
    """Two lanes; a document ends and another begins within a chunk."""
    first, second, third = document(5, 1), document(2, 2), document(3, 3)
    lanes = list(zip(first, second + third))
    starts = [[i == 0, i in (0, 2)] for i in range(5)]
    wanted = [alone(model, d) for d in (first, second, third)]
    for sizes in ([5], [2, 3], [1, 3, 1], [3, 2]):
        found, doc_state, done = [], None, 0
        for size in sizes:
            rows = [pair for step in lanes[done : done + size] for pair in step]
            begin = [s for step in starts[done : done + size] for s in step]
            scores, doc_state = run(model, rows, begin, 2, doc_state)
            found += scores
            done += size
        check(found[::2], wanted[0])
        check(found[1::2], wanted[1] + wanted[2])


#: sentences back from which something arrives; without limit for the others
REACH = {"previous source": 1, "hierarchical": 3}


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_past_is_used_and_nothing_else(name):
    model, sentences = tiny.model(*ARCHITECTURES[name]), document(6, 1)
    before = alone(model, sentences)
    for changed in range(6):
        other = document(1, 9)[0]
        after = alone(model, [*sentences[:changed], other, *sentences[changed + 1 :]])
        check(after[:changed], before[:changed])
        last = changed + REACH.get(name, 6)
        for number in range(changed + 1, min(last + 1, 6)):
            assert not torch.allclose(after[number], before[number], atol=1e-12, rtol=0)
        check(after[last + 1 :], before[last + 1 :])


@torch.no_grad()
@pytest.mark.parametrize(
    "arguments", [tiny.memory("--forget-memory"), tiny.cache("--cache-size", "0")]
)
def test_models_that_forget(arguments):
    sentences, forgetful = document(4, 1), tiny.model(*arguments)
    check(alone(forgetful, sentences)[3:], alone(forgetful, sentences[3:]))


@torch.no_grad()
@pytest.mark.parametrize("fusion", ["deep", "shallow"])
def test_an_empty_cache_leaves_its_base_alone(fusion):
    """The first sentence, and all of them without slots, are those of rnnsearch."""
    sentences, base = document(3, 1), tiny.model(*tiny.rnnsearch())
    source = collate_tokens([s for s, _ in sentences], PAD, left_pad=True)
    previous = collate_tokens([t for _, t in sentences], PAD, EOS, move_eos_to_beginning=True)
    output = base(source, source.ne(PAD).sum(1), previous)
    scores = output[0].log_softmax(dim=-1)
    wanted = [
        s[: len(t)].gather(1, t.unsqueeze(1)).squeeze(1) for s, (_, t) in zip(scores, sentences)
    ]
    for size, count in (("0", 3), ("6", 1)):
        model = tiny.model(*tiny.cache("--fusion", fusion, "--cache-size", size))
        model.load_state_dict(base.state_dict(), strict=True)
        check(alone(model, sentences)[:count], wanted[:count])
        if count == 1:
            assert not torch.allclose(alone(model, sentences)[1], wanted[1], atol=1e-5)


@torch.no_grad()
def test_rows_without_marks_are_documents_of_their_own(model):
    """As with tasks that have no streams."""
    pairs = document(3, 1)
    source = collate_tokens([s for s, _ in pairs], PAD, left_pad=True)
    previous = collate_tokens([t for _, t in pairs], PAD, EOS, move_eos_to_beginning=True)
    output = model(source, source.ne(PAD).sum(1), previous)
    scores = output[0].log_softmax(dim=-1)
    wanted = [alone(model, [pair])[0] for pair in pairs]
    found = [s[: len(t)].gather(1, t.unsqueeze(1)).squeeze(1) for s, (_, t) in zip(scores, pairs)]
    check(found, wanted)


SIX = ["--encoder-layers", "6", "--decoder-layers", "6"]
#: how many sentences back gradients flow into the source and the target, of at most eight: as in
#: the authors' code, and with --exact-memory-gradient
GRADIENTS = {
    ("--memory-side", "source"): [(1, 0), (1, 0)],
    ("--memory-side", "target"): [(0, 1), (0, 1)],
    (): [(1, 1), (1, 1)],
    tuple(SIX): [(2, 1), (1, 1)],
    ("--memory-layers", "4,5", *SIX): [(4, 2), (1, 1)],
    ("--memory-layers", "0,1,2,3,4,5", *SIX): [(8, 6), (1, 1)],
    ("--memory-gradient-sentences", "2"): [(2, 2), (2, 2)],
}


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("options", GRADIENTS, ids=" ".join)
def test_gradients_flow_into_previous_sentences(options, exact):
    model = tiny.model(*tiny.memory(*options, *["--exact-memory-gradient"][: int(exact)]))
    words = torch.arange(4, 13)  # of their own
    pairs = [(torch.tensor([word, EOS]), torch.tensor([word, EOS])) for word in words]
    scores, _ = run(model, pairs, [True, *[False] * 8], 1)
    scores[8].sum().backward()
    for side, reach in zip((model.encoder, model.decoder), GRADIENTS[options][exact]):
        reached = side.embed_tokens.weight.grad[words].abs().sum(1) > 0
        assert reached.tolist() == [8 - number <= reach for number in range(9)]


def test_exact_gradients_need_an_end():
    with pytest.raises(UserError, match="--exact-memory-gradient has no meaning with"):
        tiny.model(*tiny.memory("--exact-memory-gradient", "--memory-gradient-sentences", "0"))


def test_every_parameter_takes_part_in_every_batch(model):
    """As data parallel training of torch expects, even where no sentence came before."""
    model.train()
    scores, _ = run(model, document(2, 1), [True, True], 2)
    torch.cat(scores).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_layers_that_are_not_there_are_refused():
    for layers in ("1", "x", "-1"):
        with pytest.raises(UserError, match=f"--memory-layers {layers} must name layers from 0"):
            tiny.model(*tiny.memory("--memory-layers", layers))
