"""multi_encoder_transformer against loops of Li et al. (2020).

Choices of this implementation: several previous sentences are one sequence for the context encoder;
the context of each sentence ends or begins with its ``</s>``; with two contexts, the one of the
source comes first. A sentence without previous sentences is translated without context.

Covers models/multi_encoder_transformer.py, modules/multi_encoder.py.
"""

from typing import NamedTuple

import pytest
import tiny
import torch
from batches import (
    EOS,
    LANES,
    check,
    check_gradients,
    in_lanes,
    run_in_chunks,
    run_lanes,
    translate_by_random_search,
)
from equations import loops
from equations.loops import inside, layer_norm, linear, weights_of

from fairseq_docmt.modules.layers import AttendedSource, LayerState
from fairseq_docmt.modules.multi_encoder import AttendedContext
from fairseq_docmt.modules.search_state import split_order


class Variant(NamedTuple):
    """Options of a model."""

    sides: tuple = ("source",)
    count: int = 1
    inside: bool = False
    gated: bool = True
    shared: bool = False
    norm_first: bool = False


NORM_FIRST = ["--encoder-normalize-before", "--decoder-normalize-before"]
BOTH, INSIDE = ["--context-side", "both"], ["--context-integration", "inside"]
VARIANTS = {
    "outside": (Variant(), loops.WIDER_ENCODER),
    "shared": (Variant(shared=True), ["--share-context-encoder"]),
    "target": (Variant(("target",)), ["--context-side", "target", *loops.WIDER_ENCODER]),
    "both": (
        Variant(("source", "target"), 2, norm_first=True),
        [*BOTH, "--context-sentences", "2", *NORM_FIRST, *loops.WIDER_ENCODER],
    ),
    "sum": (Variant(gated=False), ["--context-fusion", "sum"]),
    "inside": (Variant(inside=True), [*INSIDE, *loops.WIDER_ENCODER, "--decoder-layers", "2"]),
    "inside-both": (
        Variant(("source", "target"), 3, inside=True, shared=True, norm_first=True),
        [*BOTH, *INSIDE, "--context-sentences", "3", "--share-context-encoder", *NORM_FIRST],
    ),
    "inside-sum": (
        Variant(("target",), inside=True, gated=False),
        ["--context-side", "target", *INSIDE, "--context-fusion", "sum", "--context-layers", "2"],
    ),
}

# ---- the equations -------------------------------------------------------------------------------


def context_states(w, side, words, options: Variant):
    """Return the states of the context encoder for the words of the previous sentences."""
    x = loops.embed(w, {"source": "encoder", "target": "decoder"}[side], words)
    if side == "source" and options.shared:
        return loops.encoder(w, x, norm_first=options.norm_first)
    owner = {"source": "encoder", "target": "decoder"}[side]
    own = {f"encoder.{k}": v for k, v in inside(w, f"{owner}.context_encoder").items()}
    return loops.encoder(own, x, norm_first=options.norm_first)


def fused(w, h, query, context, gated):
    """Return ``g * h + (1 - g) * MultiHead(query, context)`` with ``g = sigmoid(W [h; a] + b)``."""
    a = loops.cross_attention(inside(w, "attention"), query, context)
    if not gated:
        return h + a
    g = 1 / (1 + (-linear(w, "gate", torch.cat([h, a], dim=-1))).exp())
    return g * h + (1 - g) * a


def sentence(w, source, words, contexts, options: Variant):
    """Return the logits of a sentence; contexts: states of each side, none at a beginning."""
    first = options.norm_first
    encoded = loops.encoder(w, loops.embed(w, "encoder", source), norm_first=first)
    if not options.inside:
        for number, context in enumerate(contexts):
            own = inside(w, f"decoder.context_attn.{number}")
            encoded = fused(own, encoded, encoded, context, options.gated)
    x = loops.embed(w, "decoder", words)
    for layer in loops.layers(w, "decoder"):

        def cross(own, y, layer=layer):
            output = loops.cross_attention(own, y, encoded)
            if options.inside:
                for number, context in enumerate(contexts):
                    of_context = inside(layer, f"context_attn.{number}")
                    output = fused(of_context, output, y, context, options.gated)
            return output

        x = loops.sublayer(layer, "self_attn", x, loops.causal_attention, first)
        x = loops.sublayer(layer, "encoder_attn", x, cross, first)
        x = loops.network(layer, x, first)
    x = layer_norm(w, "decoder.layer_norm", x) if first else x
    return linear(w, "decoder.output_projection", x)


def translated(w, document, options: Variant):
    """Return the logits of each sentence of a document."""
    outputs = []
    for number, (source, words) in enumerate(document):
        before, contexts = document[max(number - options.count, 0) : number], []
        for side in options.sides if before else ():
            column = ("source", "target").index(side)
            joined = [word for pair in before for word in pair[column]]
            contexts.append(context_states(w, side, joined, options))
        outputs.append(sentence(w, source, words, contexts, options))
    return outputs


def by_loops(model, lanes, options):
    w = weights_of(model)
    return in_lanes([[translated(w, d, options) for d in lane] for lane in lanes], None)[0]


# ---- the model equals them -----------------------------------------------------------------------


def built(variant, *more):
    return tiny.model(*tiny.multi_encoder("--dropout", "0", *VARIANTS[variant][1], *more))


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_and_gradients(variant):
    """References of three lanes in one batch, in which documents end and begin."""
    model = built(variant)
    found, _ = run_lanes(model, LANES)
    wanted = by_loops(model, LANES, VARIANTS[variant][0])
    check(found, wanted)
    check_gradients(model, found, wanted)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_in_chunks(variant):
    model = built(variant)
    wanted = by_loops(model, LANES, VARIANTS[variant][0])
    for sizes in ((1, 1, 1, 1, 1, 1), (4, 1, 1)):
        for left_pad in (True, False):
            check(run_in_chunks(model, LANES, sizes, left_pad=left_pad), wanted)


@torch.no_grad()
def test_every_symbol_can_be_in_the_document_state():
    """The first symbol of the dictionary, too, although states are padded with 0."""
    model, begin = built("both"), tiny.dictionary().bos()
    assert begin == 0
    lanes = [[[([5, begin, EOS], [EOS, begin]), ([6, EOS], [EOS, begin, 5]), ([7, EOS], [EOS, 8])]]]
    wanted = by_loops(model, lanes, VARIANTS["both"][0])
    check(run_in_chunks(model, lanes, (1, 1, 1)), wanted)


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_search_has_the_scores_and_states_of_forced_decoding(variant):
    """Beams are reordered; each sentence reads the best hypotheses of previous ones."""
    model = built(variant)
    lanes, found = translate_by_random_search(model, LANES[:2])
    check(found, by_loops(model, lanes, VARIANTS[variant][0]))


@torch.no_grad()
def test_without_context_every_sentence_is_a_document():
    model = built("both", "--no-context")
    w, options = weights_of(model), VARIANTS["both"][0]
    wanted = [[[translated(w, [pair], options)[0] for pair in d] for d in lane] for lane in LANES]
    check(run_in_chunks(model, LANES, (2, 4)), in_lanes(wanted, None)[0])


@torch.no_grad()
def test_contexts_follow_their_sentence_in_a_search():
    """Contexts are selected with the source of their sentence."""
    number = torch.arange(3.0)
    source = AttendedSource(*2 * [number.view(3, 1, 1, 1)], None)
    context = AttendedContext(source, number)
    state = LayerState(None, source, (context, context))
    after = state.reorder(split_order(torch.tensor([5, 4, 0, 1]), 3, 2))
    for one in after.memory:
        assert one.known.tolist() == one.source.keys.flatten().tolist() == [2, 0]
    alone = state.reorder(split_order(torch.tensor([0, 2, 1, 3, 5, 4]), 3, 2))
    for one in alone.memory:
        assert one.known.tolist() == one.source.values.flatten().tolist() == [0, 1, 0, 1, 2, 2]


# ---- where a model starts ------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("norms", [[], NORM_FIRST], ids=["norm-last", "norm-first"])
@pytest.mark.parametrize("options", [BOTH, [*BOTH, *INSIDE, "--share-context-encoder"]])
def test_it_starts_with_a_transformer_and_random_context(options, norms):
    """The first sentence of a document is translated by the transformer; embeddings are shared."""
    transformer = tiny.model(*tiny.MODEL, *norms)
    model = tiny.as_built(*tiny.multi_encoder(*options, *norms))
    model.load_state_dict(dict(transformer.state_dict()))
    assert sum(name.endswith("embed_tokens.weight") for name in model.state_dict()) == 2
    found, _ = run_lanes(model, LANES)
    shared = "--share-context-encoder" in options
    variant = Variant(("source", "target"), 1, bool(shared), True, shared, bool(norms))
    check(found, by_loops(model, LANES, variant))
    w = weights_of(transformer)
    firsts = [[[k == 0 for k in range(len(d))] for d in lane] for lane in LANES]
    alone = [[[sentence(w, *pair, [], variant) for pair in d] for d in lane] for lane in LANES]
    for output, wanted, first in zip(found, in_lanes(alone, None)[0], in_lanes(firsts, None)[0]):
        if wanted is not None:
            assert ((output - wanted).abs().max() < 1e-9) == first
