"""``cache_rnn`` against the equations of Tu et al. (2018), written out as loops over words.

Covers models/cache_rnn.py.
"""

import functools

import pytest
import tiny
import torch
from batches import (
    BOD,
    EOS,
    PAD,
    UNK,
    check,
    check_gradients,
    dropout_that_doubles,
    in_lanes,
    random_document,
    run_in_chunks,
    run_lanes,
    tensor_of,
    translate_by_random_search,
)
from equations import recurrent_loops as loops
from fairseq import checkpoint_utils

from fairseq_docmt.modules.rnn.cache import CacheDecoder
from fairseq_docmt.optim.grouped_adam import freeze_pretrained

#: options of the model, and of the loop: slots, fusion, whether known words keep their slot
SYSTEMS = {
    "few slots": ([], 4, "deep", True),
    "one slot": ([], 1, "deep", True),
    "many slots": ([], 40, "deep", True),
    "a new slot for every word": ([], 7, "deep", False),
    "layers": (["--encoder-layers", "2", "--decoder-layers", "3"], 6, "deep", True),
    "shallow": ([], 4, "shallow", True),
    "shallow, a new slot for every word": ([], 9, "shallow", False),
    "shallow, many slots and layers": (["--decoder-layers", "2"], 40, "shallow", False),
    "no slots": ([], 0, "deep", True),
}
#: Three lanes: documents of 4, of 2 and 2, and of 1 and 2 sentences.  They have more words than
#: most caches have slots, and words that come again.
LANES = [
    [random_document([3, 5, 2, 4], seed=1)],
    [random_document([4, 3], seed=2), random_document([2, 6], seed=3)],
    [random_document([6], seed=4), random_document([1, 3], seed=5)],
]


def arguments(name):
    options, size, fusion, overwrite = SYSTEMS[name]
    options = [*options, "--cache-size", str(size), "--context-integration", fusion]
    return tiny.cache(*options, *([] if overwrite else ["--no-overwrite"]))


class System:
    """A model with random parameters, and the loop that it should equal."""

    def __init__(self, name):
        _, self.size, self.fusion, self.overwrite = SYSTEMS[name]
        self.model = tiny.model(*arguments(name))
        self.parameters = loops.Parameters(self.model)

    def loop(self, document):
        """Outputs of each sentence, and the slots after it."""
        options = (self.size, self.fusion, self.overwrite)
        return loops.cache_rnn(self.parameters, document, *options)

    @functools.cached_property
    def of_references(self):
        """Return outputs and slots of the loop for the documents above, by lane and sentence."""
        with torch.no_grad():
            return [[self.loop(document) for document in lane] for lane in LANES]

    def outputs(self, lanes):
        """Return the outputs of rows in lanes, None for fillers."""
        return in_lanes([[self.loop(d)[0] for d in lane] for lane in lanes], filler=None)[0]


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request):
    return System(request.param)


def slots_of(doc_state, lane):
    """Return the slots of one lane in the document state, the least recently written first."""
    keys, values, words, ages = (
        doc_state[f"cache.{name}"][lane] for name in ("keys", "values", "words", "ages")
    )
    filled = [slot for slot in ages.argsort().tolist() if words[slot] >= 0]
    return [loops.Slot(keys[slot], values[slot], int(words[slot])) for slot in filled]


def check_slots(found, wanted):
    assert [slot.word for slot in found] == [slot.word for slot in wanted]
    check([slot.key for slot in found], [slot.key for slot in wanted])
    check([slot.value for slot in found], [slot.value for slot in wanted])


def test_outputs_and_gradients(system):
    """References of three lanes in one batch, in which documents end and begin."""
    found, _ = run_lanes(system.model, LANES)
    wanted = system.outputs(LANES)
    check(found, wanted)
    check_gradients(system.model, found, wanted)


@torch.no_grad()
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 2), (3, 1)], ids=str)
def test_outputs_in_chunks(system, sizes):
    wanted = [[outputs for outputs, _ in lane] for lane in system.of_references]
    wanted, _ = in_lanes(wanted, filler=None)
    check(run_in_chunks(system.model, LANES, sizes), wanted)


@torch.no_grad()
def test_slots_after_each_sentence(system):
    """Keys c_t, values s_t of the top layer and words y_t, and which were written last."""
    for number in range(4):
        shorter = [[document[: number + 1] for document in lane[:1]] for lane in LANES]
        _, extra = run_lanes(system.model, shorter)
        for lane, ((_, history), *_) in enumerate(system.of_references):
            # A lane without further sentences writes nothing.
            check_slots(slots_of(extra["doc_state"], lane), history[: number + 1][-1])


@torch.no_grad()
def test_matching_for_analysis(system):
    """``P_m(c_i | c_t)`` of every word of a document (equation 5), slot by slot."""
    pairs = LANES[0][0]
    source, words = (tensor_of(side) for side in zip(*pairs))
    stream = {"starts": torch.tensor([True, False, False, False]), "lanes": 1}
    encoder_out = system.model.encoder(source, source.ne(PAD).sum(1), **stream)
    cache, found = system.model.decoder.matching(words, encoder_out)
    history = [[], *system.of_references[0][0][1]]
    for row, (source, words) in enumerate(pairs):
        order = [i for i in cache.ages[row].argsort().tolist() if cache.words[row, i] >= 0]
        assert [int(cache.words[row, i]) for i in order] == [s.word for s in history[row]]
        steps = loops.decode(system.parameters, loops.encode(system.parameters, source), words)
        for t, step in enumerate(steps):
            if history[row]:
                wanted = torch.stack(loops.match(history[row], step.context))
                check([found[row, t, order]], [wanted])


def test_a_search_has_the_scores_and_states_of_forced_decoding(system):
    """Beams are reordered; each sentence uses the best hypotheses of the previous ones."""
    lanes, found = translate_by_random_search(system.model, LANES[:2])
    check(found, system.outputs(lanes))


# The rules of section 3.3 by hand: target sentences, slots, words in the cache from old to new.
WRITTEN = [
    # Every word but </s>, in the order of writing.
    (["5 6 7"], 9, True, "5 6 7"),
    # A word in the cache keeps its slot, which becomes the latest.
    (["5 6 5 7"], 9, True, "6 5 7"),
    (["5 6 5 7"], 9, False, "5 6 5 7"),
    # Later sentences continue with the same cache.
    (["5 6 7", "6 8"], 9, True, "5 7 6 8"),
    (["5 6 7", "6 8"], 9, False, "5 6 7 6 8"),
    # The least recently written word is replaced.
    (["5 6 7 8"], 3, True, "6 7 8"),
    (["5 6 7", "8"], 3, True, "6 7 8"),
    (["5 6 7", "5 8"], 3, True, "7 5 8"),
    (["5 6 7", "5 8"], 3, False, "7 5 8"),
    (["5 6", "7 8 9 10 11"], 2, True, "10 11"),
    (["5 6 7"], 1, True, "7"),
    # An empty sentence writes nothing; unknown words are written.
    (["5 6", ""], 9, True, "5 6"),
    ([f"5 {UNK} 6"], 9, True, f"5 {UNK} 6"),
    (["5 6"], 0, True, ""),
    # The document symbol of the first sentence is not written.
    ([f"{BOD} 5 6", "7"], 9, True, "5 6 7"),
    ([f"{BOD} 5 6", f"{BOD} 7"], 9, False, "5 6 7"),
]


@torch.no_grad()
@pytest.mark.parametrize("sentences, size, overwrite, wanted", WRITTEN)
def test_words_in_the_cache(sentences, size, overwrite, wanted):
    options = ["--cache-size", str(size), *([] if overwrite else ["--no-overwrite"])]
    pairs = [([4, EOS], [EOS, *map(int, line.split())]) for line in sentences]
    _, extra = run_lanes(tiny.model(*tiny.cache(*options)), [[pairs]])
    assert [slot.word for slot in slots_of(extra["doc_state"], 0)] == [
        int(w) for w in wanted.split()
    ]


@torch.no_grad()
def test_a_word_that_comes_again_is_halved():
    """Rule 2: after three times ``((k_1 + k_2) / 2 + k_3) / 2``."""
    pairs = [([4, 9, EOS], [EOS, 5, 5]), ([8, EOS], [EOS, 5])]
    once = tiny.model(*tiny.cache("--no-overwrite"))
    first, second, third = slots_of(run_lanes(once, [[pairs]])[1]["doc_state"], 0)
    (slot,) = slots_of(run_lanes(tiny.model(*tiny.cache()), [[pairs]])[1]["doc_state"], 0)
    for part in ("key", "value"):
        one, two, three = (getattr(s, part) for s in (first, second, third))
        check([getattr(slot, part)], [(one + two) / 4 + three / 2])


@torch.no_grad()
@pytest.mark.parametrize("fusion", ["deep", "shallow"])
def test_an_empty_cache_changes_nothing(fusion):
    """The first sentence of each document is that of RNNSearch; the next is not."""
    model = tiny.model(*tiny.cache("--context-integration", fusion))
    found, _ = run_lanes(model, LANES)
    base = [[loops.rnnsearch(loops.Parameters(model), d) for d in lane] for lane in LANES]
    wanted, starts = in_lanes(base, filler=None)
    for row, first in enumerate(starts):
        if wanted[row] is not None:
            scores = (found[row].log_softmax(-1), wanted[row].log_softmax(-1))
            assert torch.allclose(*scores, atol=1e-6, rtol=0) == first


@pytest.mark.parametrize("fusion", ["deep", "shallow"])
def test_only_the_gate_is_new(fusion):
    """U, V and W without bias: 4.0 million in table 5; lambda is a vector, or one number (4.4)."""
    known = tiny.model(*tiny.rnnsearch()).state_dict()
    model = tiny.model(*tiny.cache("--context-integration", fusion))
    new = {name: tuple(x.shape) for name, x in model.state_dict().items() if name not in known}
    state, context = 10, 16
    gate = state if fusion == "deep" else 1
    wanted = {"of_state": (gate, state), "of_context": (gate, context), "of_cache": (gate, state)}
    assert new == {f"decoder.cache_gate.{part}.weight": shape for part, shape in wanted.items()}


@torch.no_grad()
def test_shallow_fusion_is_a_distribution():
    """For repeated words and words that are not in the cache."""
    model = tiny.model(
        *tiny.cache("--context-integration", "shallow", "--no-overwrite", "--cache-size", "40")
    )
    for output in run_lanes(model, LANES)[0]:
        check([output.exp().sum(-1)], [output.new_ones(len(output))])


@torch.no_grad()
def test_marked_documents():
    """Their first sentences begin with ``<bod>``, which is not stored in the cache."""
    model = tiny.model(*tiny.cache("--cache-size", "9"))
    lanes = [
        [[(s, [EOS, BOD, *w[1:]] if n == 0 else w) for n, (s, w) in enumerate(d)] for d in lane]
        for lane in LANES
    ]
    parameters = loops.Parameters(model)
    wanted = [[loops.cache_rnn(parameters, d, 9, marks=[BOD]) for d in lane] for lane in lanes]
    found, extra = run_lanes(model, lanes)
    check(found, in_lanes([[outputs for outputs, _ in lane] for lane in wanted], None)[0])
    for lane, documents in enumerate(wanted):
        check_slots(slots_of(extra["doc_state"], lane), documents[-1][1][-1])


def test_commands_with_marked_documents(binarised, tmp_path, monkeypatch):
    """``--mark-document-start``: decoders read ``<bod>``, and caches do not get it."""
    read, written, follow = set(), set(), CacheDecoder._follow

    def watched(self, stream, tokens, *states):
        found, cache = follow(self, stream, tokens, *states)
        read.update(tokens.flatten().tolist())
        written.update(cache.words.flatten().tolist())
        return found, cache

    monkeypatch.setattr(CacheDecoder, "_follow", watched)
    options = ["--task", "sentence_stream_translation", "--batch-size", "2"]
    marked = [*options, "--mark-document-start", "--disable-validation"]
    path = tiny.train(
        binarised, tmp_path, *marked, model=tiny.cache("--cache-size", "40"), updates=2
    )
    assert BOD in read and BOD not in written and max(written) > EOS
    read.clear()
    tiny.generate(binarised, path, *options)
    assert BOD in read and BOD not in written


# Training.


def dropping(name, frozen):
    """Return a model with dropout, with or without frozen base."""
    model = tiny.model(*arguments(name), "--dropout", "0.3")
    if frozen:
        freeze_pretrained(model)
    return model


@torch.no_grad()
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("name", ["few slots", "shallow"])
def test_where_dropout_acts(name, frozen):
    """In the second pass c_t and s_t "remain the same" (section 3.4): only the output layer drops.

    Where the base is trained too, embeddings and encoder states drop as in RNNSearch.
    """

    def doubled(x):
        return 2 * x

    model, (_, size, fusion, overwrite) = dropping(name, frozen), SYSTEMS[name]
    with dropout_that_doubles(model):
        found, extra = run_lanes(model, LANES)
    drop = (lambda x: x) if frozen else doubled
    parameters = loops.Parameters(model, drop, drop_output=doubled)
    wanted = [
        [loops.cache_rnn(parameters, d, size, fusion, overwrite) for d in lane] for lane in LANES
    ]
    check(found, in_lanes([[outputs for outputs, _ in lane] for lane in wanted], None)[0])
    for lane, documents in enumerate(wanted):
        check_slots(slots_of(extra["doc_state"], lane), documents[-1][1][-1])


@torch.no_grad()
@pytest.mark.parametrize("name", ["few slots", "layers"])
def test_slots_of_a_frozen_base_equal_those_of_evaluation(name):
    """In training mode with any dropout, also between layers."""
    model = dropping(name, frozen=True)
    wanted = run_lanes(model, LANES)[1]["doc_state"]
    found, extra = run_lanes(model.train(), LANES)
    for key, value in wanted.items():
        torch.testing.assert_close(extra["doc_state"][key], value, atol=0, rtol=0)
    # Dropout of the output layer remains; a model that is not frozen has dropout everywhere.
    assert not torch.equal(found[0], run_lanes(model, LANES)[0][0])
    free = run_lanes(dropping(name, frozen=False).train(), LANES)[1]["doc_state"]
    assert not torch.allclose(free["cache.keys"], wanted["cache.keys"])


# Initialisation.


def pretrained(*options):
    """``cache_rnn`` as ``--finetune-from-model`` makes it of a checkpoint of ``rnnsearch``."""
    base, model = tiny.as_built(*tiny.rnnsearch(), seed=1), tiny.as_built(*tiny.cache(*options))
    model.load_state_dict(base.state_dict(), strict=True)
    return base, model


@torch.no_grad()
def check_beginning(base, model, fusion):
    """The first sentence equals RNNSearch; in the second the gate is half open."""
    pairs, parameters = LANES[0][0], loops.Parameters(model)
    alone = loops.rnnsearch(loops.Parameters(base), pairs)
    wanted, history = loops.cache_rnn(parameters, pairs, model.decoder.cache_size, fusion)
    found, _ = run_lanes(model, [[pairs]])
    check(found, wanted)
    check([found[0].log_softmax(-1)], [alone[0].log_softmax(-1)])
    (source, words), slots = pairs[1], history[0]
    for t, step in enumerate(loops.decode(parameters, loops.encode(parameters, source), words)):
        opened = loops.gate(parameters, step, loops.recall(slots, step.context))
        assert 0.25 < opened.min() and opened.max() < 0.75
        if fusion == "shallow":  # words that are not in the cache lose what the gate takes
            absent = [word for word in range(9, 16)]
            lost = found[1][t].exp()[absent] / alone[1][t].softmax(-1)[absent]
            check([lost], [(1 - opened).expand(len(absent))])


@torch.no_grad()
@pytest.mark.parametrize("fusion", ["deep", "shallow"])
def test_it_begins_with_rnnsearch_and_a_gate_half_open(fusion):
    check_beginning(*pretrained("--context-integration", fusion), fusion)


def test_the_second_stage_starts_from_the_first(binarised, tmp_path):
    """With the commands of both stages; the second has a tiny learning rate."""
    sentence = ["--task", "sliding_window_translation", "--window-size", "1"]
    stream = ["--task", "sentence_stream_translation", "--batch-size", "2"]
    base = tiny.train(binarised, tmp_path / "a", *sentence, model=tiny.rnnsearch(), updates=3)
    stream += ["--finetune-from-model", base, "--freeze-pretrained", "--lr", "1e-12"]
    path = tiny.train(binarised, tmp_path / "b", *stream, model=tiny.cache(), updates=1)
    models = [checkpoint_utils.load_model_ensemble([str(p)])[0][0] for p in (base, path)]
    check_beginning(*(model.double().eval() for model in models), "deep")
