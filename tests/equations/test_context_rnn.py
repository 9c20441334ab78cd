"""``context_rnn`` against the equations of its three systems, written out as loops over words.

Covers models/context_rnn.py, modules/rnn/context.py, modules/previous_sentences.py.
"""

import functools

import pytest
import tiny
import torch
from batches import (
    EOS,
    LANES,
    check,
    check_gradients,
    dropout_that_doubles,
    in_lanes,
    run_in_chunks,
    run_lanes,
    translate_by_random_search,
)
from equations import recurrent_loops as loops
from fairseq import checkpoint_utils

#: --context, and the loop that it should equal
LOOPS = {
    "previous-target": lambda p, document: loops.previous_target(p, document)[0],
    "previous-source-attention": loops.jean,
    "hierarchical": loops.wang,
}
ONE = ["--encoder-layers", "1", "--decoder-layers", "1"]
LAYERS = ["--encoder-layers", "2", "--decoder-layers", "3"]
SYSTEMS = {
    f"{context}, {layers}": (context, options)
    for context in LOOPS
    for layers, options in (("one layer", ONE), ("layers", LAYERS))
}


class System:
    """A model with random parameters, and the loop that it should equal."""

    def __init__(self, name):
        self.context, options = SYSTEMS[name]
        self.model = tiny.model(*tiny.context("--context", self.context, *options))
        self.parameters = loops.Parameters(self.model)

    @functools.cached_property
    def of_references(self):
        """Return the outputs of the loop for the documents above."""
        with torch.no_grad():
            return self.outputs(LANES)

    def outputs(self, lanes):
        """Return the outputs of rows in lanes, None for fillers."""
        loop = LOOPS[self.context]
        return in_lanes([[loop(self.parameters, d) for d in lane] for lane in lanes], None)[0]


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request):
    return System(request.param)


def test_outputs_and_gradients(system):
    """References of three lanes in one batch, in which documents end and begin.

    Gradients flow through all sentences of the batch.
    """
    found, _ = run_lanes(system.model, LANES)
    wanted = system.outputs(LANES)
    check(found, wanted)
    check_gradients(system.model, found, wanted)


@torch.no_grad()
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (2, 4), (4, 1, 1)], ids=str)
def test_outputs_in_chunks(system, sizes):
    check(run_in_chunks(system.model, LANES, sizes), system.of_references)


def test_a_search_has_the_scores_and_states_of_forced_decoding(system):
    """Beams are reordered; each sentence uses the best hypotheses of the previous ones."""
    lanes, found = translate_by_random_search(system.model, LANES[:2])
    check(found, system.outputs(lanes))


@torch.no_grad()
@pytest.mark.parametrize("context", LOOPS)
def test_where_dropout_acts(context):
    """As in RNNSearch; of the context, on embeddings and on the states that Jean attends to."""
    model = tiny.model(*tiny.context("--context", context, *ONE, "--dropout", "0.3"))
    with dropout_that_doubles(model):
        found, _ = run_lanes(model, LANES)
    parameters = loops.Parameters(model, lambda x: 2 * x)
    wanted = [[LOOPS[context](parameters, d) for d in lane] for lane in LANES]
    check(found, in_lanes(wanted, None)[0])


@torch.no_grad()
@pytest.mark.parametrize("layers", ["one layer", "layers"])
def test_the_last_state_of_the_top_layer_is_left(layers):
    """PrevTrg: the state that has read all words of a sentence, for each of its lanes."""
    system = System(f"previous-target, {layers}")
    for number in range(1, 7):
        pairs = LANES[0][0][:number]
        _, extra = run_lanes(system.model, [[pairs]])
        wanted = loops.previous_target(system.parameters, pairs)[1][-1]
        check(extra["doc_state"]["context.state"], [wanted])


@torch.no_grad()
def test_a_document_begins_as_rnnsearch(system):
    """The first sentence has no context; later sentences differ from RNNSearch."""
    found, _ = run_lanes(system.model, LANES)
    base = [[loops.rnnsearch(system.parameters, d) for d in lane] for lane in LANES]
    for output, wanted, first in zip(found, *in_lanes(base, None)):
        if wanted is not None:
            assert ((output - wanted).abs().max() < 1e-9) == first


@torch.no_grad()
@pytest.mark.parametrize("context", LOOPS)
def test_without_context_every_sentence_is_a_document(context):
    """``--no-context``, for references and in a search."""
    model = tiny.model(*tiny.context("--context", context, *LAYERS, "--no-context"))
    parameters = loops.Parameters(model)

    def alone(lanes):
        wanted = [[[LOOPS[context](parameters, [x])[0] for x in d] for d in lane] for lane in lanes]
        return in_lanes(wanted, None)[0]

    check(run_in_chunks(model, LANES, (2, 4)), alone(LANES))
    lanes, found = translate_by_random_search(model, LANES[:2])
    check(found, alone(lanes))


#: context, which side of an earlier sentence, and from how many sentences back it arrives
REACH = [
    ("previous-target", "source", 6),
    ("previous-target", "target", 6),
    ("previous-source-attention", "source", 1),
    ("previous-source-attention", "target", 0),
    ("hierarchical", "source", 3),
    ("hierarchical", "target", 0),
]


@torch.no_grad()
@pytest.mark.parametrize("context, side, reach", REACH)
def test_how_far_back_it_looks(context, side, reach):
    """Outputs of the last of six sentences when the first word of an earlier sentence changes."""
    model, pairs = System(f"{context}, one layer").model, LANES[0][0]
    before = run_lanes(model, [[pairs]])[0][-1]
    for back in range(1, 6):
        source, words = pairs[-1 - back]
        other = (source, [EOS, 9, *words[2:]]) if side == "target" else ([9, *source[1:]], words)
        assert other != pairs[-1 - back]
        changed = [*pairs[: -1 - back], other, *pairs[len(pairs) - back :]]
        after = run_lanes(model, [[changed]])[0][-1]
        assert torch.equal(after, before) == (back > reach)


@torch.no_grad()
def test_the_order_of_earlier_sentences_matters_to_wang():
    model, (first, second, third, *_) = System("hierarchical, one layer").model, LANES[0][0]
    one = run_lanes(model, [[[first, second, third]]])[0][-1]
    other = run_lanes(model, [[[second, first, third]]])[0][-1]
    assert (one - other).abs().max() > 1e-6


@torch.no_grad()
def test_checkpoints_from_before_load(caplog):
    """They have an encoder layer of an older version, which is dropped with a warning."""
    system = System("hierarchical, layers")
    other, size = tiny.model(*tiny.context("--context", system.context, *LAYERS), seed=5), 8
    of_today = system.model.state_dict()
    extra = {"weight": torch.ones(4 * size, size), "bias": torch.ones(4 * size)}
    earlier = {f"encoder.context_initial.{part}": value for part, value in extra.items()}
    other.load_state_dict({**of_today, **earlier}, strict=True)
    check(run_lanes(other, LANES)[0], system.of_references)
    assert "train it again" in caplog.text
    caplog.clear()
    other.load_state_dict(of_today, strict=True)
    assert caplog.text == ""


# Initialisation.


@torch.no_grad()
def check_beginning(base, model, context):
    """The first sentence equals RNNSearch; later ones depend on previous ones from the start."""
    pairs = LANES[0][0]
    alone = loops.rnnsearch(loops.Parameters(base), pairs)
    found, _ = run_lanes(model, [[pairs]])
    check(found[:1], alone[:1])
    check(found, LOOPS[context](loops.Parameters(model), pairs))
    for output, unlike in zip(found[1:], alone[1:]):
        assert 1e-6 < (output - unlike).abs().max() < 1.0


@pytest.mark.parametrize("name", SYSTEMS)
def test_it_begins_with_rnnsearch_and_a_random_context(name):
    """The model is loaded from a checkpoint of ``rnnsearch`` by ``--finetune-from-model``."""
    context, layers = SYSTEMS[name]
    base = tiny.as_built(*tiny.rnnsearch(*layers), seed=1)
    model = tiny.as_built(*tiny.context("--context", context, *layers))
    model.load_state_dict(base.state_dict(), strict=True)
    check_beginning(base, model, context)


@pytest.fixture(scope="module")
def base_checkpoint(binarised, tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    options = ["--task", "sliding_window_translation", "--window-size", "1"]
    return tiny.train(binarised, folder, *options, model=tiny.rnnsearch(*LAYERS), updates=3)


@pytest.mark.parametrize("context", LOOPS)
def test_the_second_stage_starts_from_the_first(binarised, base_checkpoint, tmp_path, context):
    """With the commands of both stages; the second has a tiny learning rate."""
    stream = ["--task", "sentence_stream_translation", "--batch-size", "2", "--lr", "1e-12"]
    stream += ["--finetune-from-model", base_checkpoint, "--freeze-pretrained"]
    model = tiny.context("--context", context, *LAYERS)
    path = tiny.train(binarised, tmp_path, *stream, model=model, updates=1)
    paths = (base_checkpoint, path)
    models = [checkpoint_utils.load_model_ensemble([str(p)])[0][0].double() for p in paths]
    check_beginning(*(model.eval() for model in models), context)
