"""``rnnsearch`` against its equations, written out as loops over words.

Covers modules/rnn/gru_decoder.py.
"""

import math

import pytest
import tiny
import torch
from batches import (
    EOS,
    PAD,
    check,
    check_gradients,
    dropout_that_doubles,
    random_document,
    random_search,
    run,
    step_by_step,
    tensor_of,
    without_padding,
)
from equations import recurrent_loops as loops

from fairseq_docmt.modules.cpu import pack_weights

SYSTEMS = {
    "one layer": tiny.rnnsearch(),
    "all sizes differ": [
        *["--arch", "rnnsearch", "--encoder-embed-dim", "5", "--decoder-embed-dim", "7"],
        *["--encoder-hidden-size", "3", "--decoder-hidden-size", "9"],
    ],
    "two layers of the encoder": tiny.rnnsearch("--encoder-layers", "2"),
    "two layers of the decoder": tiny.rnnsearch("--decoder-layers", "2"),
    "three and three": tiny.rnnsearch("--encoder-layers", "3", "--decoder-layers", "3"),
    "shared target embeddings": tiny.rnnsearch("--share-decoder-input-output-embed"),
    "shared embeddings": tiny.rnnsearch("--share-all-embeddings", "--decoder-layers", "2"),
}
#: sentences of odd and unequal lengths; the first source is ``</s>`` alone
PAIRS = [
    ([EOS], [EOS, 5]),
    *random_document([7, 1, 4, 3], seed=1, target_words=12),
    ([9, EOS], [EOS]),
]


@pytest.fixture(scope="module", params=SYSTEMS)
def model(request):
    return tiny.model(*SYSTEMS[request.param])


@pytest.fixture(scope="module")
def parameters(model):
    return loops.Parameters(model)


def encode(model, pairs, left_pad=True):
    source = tensor_of([source for source, _ in pairs], left_pad)
    return model.encoder(source, source.ne(PAD).sum(1))


@pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
def test_encoder_states_have_both_directions(model, parameters, left_pad):
    """``h_j = [forward_j; backward_j]`` of the top layer; padding is not read."""
    encoder_out = encode(model, PAIRS, left_pad)
    states, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
    for row, (source, _) in enumerate(PAIRS):
        wanted = loops.encode(parameters, source).states
        check([states[~padding[row], row]], [torch.stack(wanted)])


def test_attention_is_additive_and_begins_with_the_first_state(model, parameters):
    """Weights over source words step by step: query of s_{t-1} and y_{t-1}, nothing at padding."""
    attention = run(model, PAIRS, left_pad=False)[1]["attn"][0]
    for row, (source, words) in enumerate(PAIRS):
        steps = loops.decode(parameters, loops.encode(parameters, source), words)
        wanted = torch.stack([step.attention for step in steps])
        check([attention[row, : len(words), : len(source)]], [wanted])
        assert not attention[row, : len(words), len(source) :].any()


@pytest.mark.parametrize("left_pad", [True, False], ids=["left", "right"])
def test_logits_and_gradients(model, parameters, left_pad):
    found = without_padding(run(model, PAIRS, left_pad)[0], PAIRS)
    wanted = loops.rnnsearch(parameters, PAIRS)
    check(found, wanted)
    check_gradients(model, found, wanted)


@torch.no_grad()
def test_logits_without_gradients(model, parameters):
    """Evaluation uses a different implementation of the recurrence."""
    found = without_padding(run(model, PAIRS)[0], PAIRS)
    check(found, loops.rnnsearch(parameters, PAIRS))


@torch.no_grad()
def test_word_by_word(model, parameters):
    words = tensor_of([words for _, words in PAIRS])
    found = without_padding(step_by_step(model, encode(model, PAIRS), words), PAIRS)
    check(found, loops.rnnsearch(parameters, PAIRS))


@torch.no_grad()
def test_beams_are_reordered(model, parameters):
    sources = [source for source, _ in PAIRS]
    words, found = random_search(model, encode(model, PAIRS), len(PAIRS), beams=3, steps=6)
    for source, hypotheses, outputs in zip(sources, words.tolist(), found):
        wanted = loops.rnnsearch(parameters, [(source, words) for words in hypotheses])
        check(outputs, wanted)


@torch.no_grad()
def test_words_after_a_prefix(model, parameters):
    """Prefixes of different lengths are read in one pass, then words one by one."""
    prefixes = [words for _, words in PAIRS]
    state, found = {}, []
    features, _ = model.decoder.prefill(tensor_of(prefixes), encode(model, PAIRS), state)
    found.append(model.decoder.output_layer(features))
    for word in (6, 11, 4):
        new = torch.full((len(PAIRS), 1), word)
        output, _ = model.decoder(new, encoder_out=None, incremental_state=state)
        found.append(output)
    whole = [(source, [*words, 6, 11, 4]) for source, words in PAIRS]
    for row, wanted in enumerate(loops.rnnsearch(parameters, whole)):
        length = len(prefixes[row])
        rows = [found[0][row, :length], *(later[row] for later in found[1:])]
        check([torch.cat(rows)], [wanted])


@torch.no_grad()
def test_packed_weights_of_a_search(small_products):
    """Packed weights are in single precision: 1e-6 is about eight roundings of 1."""
    model = tiny.model(*SYSTEMS["three and three"])
    wanted = loops.rnnsearch(loops.Parameters(model), PAIRS)
    pack_weights(model.float())
    words = tensor_of([words for _, words in PAIRS])
    found = step_by_step(model, encode(model, PAIRS), words)
    check([x.double() for x in without_padding(found, PAIRS)], wanted, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("layers", ["1", "2"])
def test_where_dropout_acts(layers):
    """On embeddings, encoder states, between layers of the decoder and in the output layer."""
    model = tiny.model(*tiny.rnnsearch("--decoder-layers", layers, "--dropout", "0.3"))
    with dropout_that_doubles(model):
        found = without_padding(run(model, PAIRS)[0], PAIRS)
    check(found, loops.rnnsearch(loops.Parameters(model, lambda x: 2 * x), PAIRS))


def test_dropout_between_other_layers():
    """Torch applies that itself."""
    deep = ["--encoder-layers", "3", "--decoder-layers", "3", "--dropout", "0.3"]
    model = tiny.model(*tiny.rnnsearch(*deep))
    assert model.encoder.gru.dropout == model.decoder.upper.dropout == 0.3


def test_shared_embeddings_are_one_table():
    """Input and output embeddings of the decoder, and of the source if all are shared."""
    names = [f"decoder.{part}.weight" for part in ("embed_tokens", "output_projection")]
    names.append("encoder.embed_tokens.weight")
    for system, tables in (("one layer", 3), ("shared target embeddings", 2)):
        parameters = loops.Parameters(tiny.model(*SYSTEMS[system]))
        assert len({id(parameters[name]) for name in names}) == tables
        assert (parameters[names[0]] is parameters[names[1]]) == (tables == 2)
    parameters = loops.Parameters(tiny.model(*SYSTEMS["shared embeddings"]))
    assert len({id(parameters[name]) for name in names}) == 1


# Differences from related systems, without the loops.


def test_attention_depends_on_the_last_word():
    """Tu et al., section 4.1: with the same state and source, the alignment depends on y_0."""
    model = tiny.model(*SYSTEMS["one layer"])
    source = [4, 5, 6, EOS]
    one, other = run(model, [(source, [EOS]), (source, [7])])[1]["attn"][0]
    assert (one - other).abs().max() > 1e-6


def test_the_initial_state_comes_from_the_first_backward_state():
    """Bahdanau et al., A.2.2: ``s_0`` follows the backward direction at the first word.

    Attention and readout are cut off from the source, so that ``s_0`` alone makes a difference.
    """
    model = tiny.model(*SYSTEMS["two layers of the decoder"])
    torch.nn.init.zeros_(model.decoder.attending.key_proj.weight)
    torch.nn.init.zeros_(model.decoder.attending.source_gates.weight)
    model.decoder.readout.weight.data[:, -model.encoder.output_units :] = 0.0
    pairs = [([4, 5, 6, EOS], [EOS, 7]), ([4, 5, 9, EOS], [EOS, 7]), ([4, EOS], [EOS, 7])]
    before = run(model, pairs)[0]
    assert (before[0] - before[1]).abs().max() > 1e-6
    for name, weight in model.encoder.gru.named_parameters():
        if not name.endswith("_reverse"):
            torch.nn.init.normal_(weight)
    check(run(model, pairs)[0], before)
    torch.nn.init.zeros_(model.decoder.initial.weight)
    one, other, short = run(model, pairs)[0]
    check([other, short], [one, one])


def test_the_readout_depends_on_context_and_last_word():
    """Tu et al., equation 2: c_t and y_{t-1} reach y_t directly, not only by way of the state.

    The state stays what it was at first: an update gate of 1.
    """
    model = tiny.model(*SYSTEMS["one layer"])
    size = model.decoder.attending.hidden_dim
    model.decoder.attending.state_proj.bias.data[-2 * size : -size] = 1e4
    torch.nn.init.zeros_(model.decoder.initial.weight)
    for pairs in (
        [([4, 5, EOS], [EOS]), ([9, 5, EOS], [EOS])],  # another context
        [([4, 5, EOS], [7]), ([4, 5, EOS], [8])],  # another last word
    ):
        one, other = run(model, pairs)[0]
        assert (one - other).abs().max() > 1e-3


# Initialisation.


@torch.no_grad()
@pytest.mark.parametrize("system", SYSTEMS)
def test_initial_outputs_are_nearly_uniform(system):
    """Every word of the vocabulary has about the same probability, whatever the source."""
    model = tiny.as_built(*SYSTEMS[system])
    check(
        without_padding(run(model, PAIRS)[0], PAIRS),
        loops.rnnsearch(loops.Parameters(model), PAIRS),
    )
    for logits in without_padding(run(model, PAIRS)[0], PAIRS):
        scores = logits.log_softmax(dim=-1)
        assert (scores + math.log(scores.size(-1))).abs().max() < 1.0
