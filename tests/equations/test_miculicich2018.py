"""han_transformer against the equations of Miculicich et al. (2018), as loops.

As in the authors' code: layer norms of both queries and of the summaries
of sentences, and a residual connection with norm in the feed-forward network. Unlike
there, a sentence without previous sentences keeps its states, and no norm follows the gate.

Covers models/han_transformer.py, modules/hierarchical.py, modules/stream_encoder.py.
"""

import pytest
import tiny
import torch
from batches import (
    LANES,
    check,
    check_gradients,
    in_lanes,
    run_in_chunks,
    run_lanes,
    translate_by_random_search,
)
from equations import loops
from equations.loops import attend, heads, inside, layer_norm, linear, weights_of

from fairseq_docmt.modules.hierarchical import (
    AttendedSentences,
    HierarchicalAttention,
)
from fairseq_docmt.modules.search_state import split_order

LAYERS = ["--encoder-layers", "2", "--decoder-layers", "3"]
NORM_FIRST = ["--encoder-normalize-before", "--decoder-normalize-before"]
#: options, number of previous sentences, sides with context, whether norms come first
VARIANTS = {
    "both": ([], 3, ("encoder", "decoder"), False),
    "source": (["--context-side", "source", *loops.WIDER_ENCODER], 3, ("encoder",), False),
    "target": (["--context-side", "target"], 3, ("decoder",), False),
    "one-before": (["--context-sentences", "1", *LAYERS], 1, ("encoder", "decoder"), False),
    "norm-first": (
        [*NORM_FIRST, *LAYERS, *loops.WIDER_ENCODER, "--context-sentences", "2"],
        2,
        ("encoder", "decoder"),
        True,
    ),
}

# ---- the equations -------------------------------------------------------------------------------


def multi_head(w, query, source):
    """MultiHead(q, h), with the projections of f_w or f_s."""
    q = linear(w, "q_proj", query)
    k, v = (linear(w, f"{part}_proj", source) for part in "kv")
    parts = [attend(*head, lambda i: range(len(source))) for head in zip(*map(heads, (q, k, v)))]
    return linear(w, "out_proj", torch.cat(parts, dim=-1))


def with_context(w, states, previous):
    """Return h~_t for states h_t and states of the previous sentences."""
    if not previous:
        return states
    outputs = []
    for h in states:
        h = h.unsqueeze(0)
        query = layer_norm(w, "word_query_norm", h)  # s_t^j
        summaries = [multi_head(inside(w, "word_attention"), query, words) for words in previous]
        summaries = layer_norm(w, "word_norm", torch.cat(summaries))
        query = layer_norm(w, "sentence_query_norm", h)  # d_t
        d = multi_head(inside(w, "sentence_attention"), query, summaries)
        hidden = linear(w, "fc1", layer_norm(w, "ffn_norm", d)).clamp(min=0)
        d = d + linear(w, "fc2", hidden)
        gate = 1 / (1 + (-linear(w, "gate", torch.cat([h, d], dim=-1))).exp())
        outputs.append(gate * h + (1 - gate) * d)
    return torch.cat(outputs)


def translated(w, document, count, sides, norm_first):
    """Return the logits of each sentence of a document."""
    before, outputs = {"encoder": [], "decoder": []}, []
    for source, words in document:

        def read(side, states):
            # The states that later sentences attend to have no context themselves.
            previous = before[side][-count:] if side in sides else []
            before[side].append(states)
            return with_context(inside(w, f"{side}.hierarchical"), states, previous)

        encoded = loops.encoder(w, loops.embed(w, "encoder", source), norm_first=norm_first)
        encoded = read("encoder", encoded)
        x = loops.embed(w, "decoder", words)
        for layer in loops.layers(w, "decoder"):
            x = loops.sublayer(layer, "self_attn", x, loops.causal_attention, norm_first)
            x = loops.sublayer(
                layer,
                "encoder_attn",
                x,
                lambda w, y, encoded=encoded: loops.cross_attention(w, y, encoded),
                norm_first,
            )
            x = loops.network(layer, x, norm_first)
        x = layer_norm(w, "decoder.layer_norm", x) if norm_first else x
        outputs.append(linear(w, "decoder.output_projection", read("decoder", x)))
    return outputs


def by_loops(model, lanes, variant):
    _, *how = VARIANTS[variant]
    w = weights_of(model)
    return in_lanes([[translated(w, d, *how) for d in lane] for lane in lanes], None)[0]


# ---- the model equals them -----------------------------------------------------------------------


def built(variant, *more):
    return tiny.model(*tiny.han("--dropout", "0", *VARIANTS[variant][0], *more))


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_gradients(variant):
    """References of three lanes in one batch, in which documents end and begin.

    Gradients reach all previous sentences of the batch.
    """
    model = built(variant)
    found, _ = run_lanes(model, LANES)
    wanted = by_loops(model, LANES, variant)
    check(found, wanted)
    check_gradients(model, found, wanted)
    context = [name for name in weights_of(model) if ".hierarchical." in name]
    assert {name.split(".")[0] for name in context} == set(VARIANTS[variant][2])


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_in_chunks(variant):
    model = built(variant)
    wanted = by_loops(model, LANES, variant)
    for sizes in ((1, 1, 1, 1, 1, 1), (2, 4), (4, 1, 1)):
        for left_pad in (True, False):
            check(run_in_chunks(model, LANES, sizes, left_pad=left_pad), wanted)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_search_has_the_scores_and_states_of_forced_decoding(variant):
    """Beams are reordered; each sentence attends to the best hypotheses of previous ones."""
    model = built(variant)
    lanes, found = translate_by_random_search(model, LANES[:2])
    check(found, by_loops(model, lanes, variant))


@torch.no_grad()
def test_without_context_every_sentence_is_a_document():
    model = built("both", "--no-context")
    w, (_, *how) = weights_of(model), VARIANTS["both"]
    wanted = [[[translated(w, [pair], *how)[0] for pair in d] for d in lane] for lane in LANES]
    check(run_in_chunks(model, LANES, (2, 4)), in_lanes(wanted, None)[0])


@torch.no_grad()
def test_previous_sentences_follow_their_sentence_in_a_search():
    """The first and the last of three sentences with two beams go on, in the other order."""
    number = torch.arange(3.0)
    parts = (number.view(3, 1, 1, 1, 1), number.view(3, 1, 1, 1, 1), number.view(3, 1, 1))
    shared = AttendedSentences(*parts, number.view(3, 1))
    after = shared.reorder(split_order(torch.tensor([5, 4, 0, 1]), 3, 2))
    assert [x.flatten().tolist() for x in after] == 4 * [[2, 0]]
    alone = shared.reorder(split_order(torch.tensor([0, 2, 1, 3, 5, 4]), 3, 2))
    assert [x.flatten().tolist() for x in alone] == 4 * [[0, 1, 0, 1, 2, 2]]


# ---- where a model starts ------------------------------------------------------------------------


@torch.no_grad()
def test_it_starts_with_a_transformer_and_random_context():
    """The first sentence of a document is translated by the transformer."""
    transformer, model = tiny.model(*tiny.MODEL), tiny.as_built(*tiny.han())
    model.load_state_dict(dict(transformer.state_dict()))
    found, _ = run_lanes(model, LANES)
    w = weights_of(transformer)
    alone = [[[loops.transformer(w, *pair) for pair in d] for d in lane] for lane in LANES]
    firsts = [[[k == 0 for k in range(len(d))] for d in lane] for lane in LANES]
    for output, wanted, first in zip(found, in_lanes(alone, None)[0], in_lanes(firsts, None)[0]):
        if wanted is not None:
            assert ((output - wanted).abs().max() < 1e-9) == first


def test_initial_weights():
    """Xavier-uniform weights, and biases of 0."""
    torch.manual_seed(1)
    layer = HierarchicalAttention(10, 2, 22, 0.0, 0.0)
    for part in (layer.fc1, layer.fc2, layer.gate):
        bound = (6 / (part.in_features + part.out_features)) ** 0.5
        assert 0.95 * bound < part.weight.abs().max() <= bound
        assert not part.bias.any()


@torch.no_grad()
def test_stages():
    """A model of one side is the start of a model of both."""
    first, both = built("source"), tiny.as_built(*tiny.han(*loops.WIDER_ENCODER))
    both.load_state_dict(dict(first.state_dict()))
    for name, value in first.state_dict().items():
        torch.testing.assert_close(both.state_dict()[name], value)
