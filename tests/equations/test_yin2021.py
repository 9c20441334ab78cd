"""Attention regularization of Yin et al. (2021, section 5) in loops: loss, gradients, statistics.

Up to single precision, in which fairseq takes the softmax of the attention of the layers before.

Covers criterions/attention_regularization.py.
"""

import math
from types import SimpleNamespace

import pytest
import tiny
import torch
from equations import loops
from equations.loops import BATCHES, heads, linear, softmax, weights_of
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

from fairseq_docmt.criterions.attention_regularization import AttentionRegularization
from fairseq_docmt.errors import UserError

TASK = SimpleNamespace(target_dictionary=loops.DICTIONARY)
MODEL = [*tiny.MODEL, "--encoder-layers", "2", "--decoder-layers", "2"]
PRE_NORM = ["--encoder-normalize-before", "--decoder-normalize-before"]

# Ambiguous words and their supporting words, by attention and row of a batch: query -> keys.  In
# the decoder a query sees itself and the words before it.
LINKS = {
    "left-padded": {
        "encoder": {0: {3: [0, 8], 8: [8]}, 1: {30: [1, 2, 3, 4], 0: [32]}, 2: {7: [19]}},
        "cross": {0: {33: [0, 5]}, 1: {6: [32]}, 2: {0: [3, 4], 11: [0]}},
        "decoder": {0: {34: [0, 1, 33]}, 2: {11: [11], 5: [0]}},
    },
    "right-padded": {
        "encoder": {0: {30: [1, 2]}, 1: {8: [0]}},
        "cross": {1: {32: [0, 4, 8]}, 2: {0: [0]}},
        "decoder": {1: {32: [0, 15]}},
    },
}


def batch_of(documents, links):
    """A batch for a criterion, with links at the positions of the batch."""
    source, previous = documents.source_batch(), documents.target_batch()
    width = source["src_tokens"].size(1)
    found = {}
    for name, of_rows in links.items():
        found[name] = []
        for row, of_queries in of_rows.items():
            shift = width - len(documents.sources[row]) if documents.left_pad else 0
            of_query, of_key = (shift * (name == "encoder"), shift * (name != "decoder"))
            found[name] += [
                [row, query + of_query, key + of_key]
                for query, keys in of_queries.items()
                for key in keys
            ]
    target = previous.roll(-1, dims=1).masked_fill(previous.eq(loops.PAD), loops.PAD)
    return {
        "net_input": {**source, "prev_output_tokens": previous},
        "target": target,
        "ntokens": int(target.ne(loops.PAD).sum()),
        "supporting_words": {name: torch.tensor(links) for name, links in found.items()},
    }


def inputs_of_layers(w, source, target, norm_first):
    """The parameters, queries and keys of each attention of each layer."""
    seen = {"encoder": [], "cross": [], "decoder": []}

    def recorded(name, function):
        def attention(own, x, *source):
            seen[name].append((own, x, *(source or (x,))))
            return function(own, x, *source)

        return attention

    encoded = loops.encoder(
        w,
        loops.embed(w, "encoder", source),
        recorded("encoder", loops.self_attention),
        norm_first,
    )
    loops.decoder(
        w,
        loops.embed(w, "decoder", target),
        encoded,
        recorded("decoder", loops.causal_attention),
        recorded("cross", loops.cross_attention),
        norm_first,
    )
    return seen


def attention_of_word(own, x, keys, query, head, causal):
    """The weights of a query for all keys: of a head, or the mean of all."""
    keys = keys[: query + 1] if causal else keys
    q, k = heads(linear(own, "q_proj", x)), heads(linear(own, "k_proj", keys))
    of_heads = [softmax(k @ q[query] / math.sqrt(q.size(1))) for q, k in zip(q, k)]
    return sum(of_heads) / len(of_heads) if head < 0 else of_heads[head]


def regularization(w, documents, links, layers_of, head, norm_first):
    """The sum of the divergences, that of the weights of supporting words, and their number."""
    total, mass, number = 0, 0, 0
    for row, (source, target) in enumerate(zip(documents.sources, documents.targets)):
        seen = inputs_of_layers(w, source, target, norm_first)
        for name, layer in layers_of.items():
            own, x, keys = seen[name][layer]
            for query, supporting in links[name].get(row, {}).items():
                a = attention_of_word(own, x, keys, query, head, name == "decoder")
                for key in supporting:
                    p = 1 / len(supporting)
                    total = total + p * (math.log(p) - a[key].log())
                    mass = mass + a[key].item()
                number += 1
    return total, mass, number


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize(
    "text, head, norms",
    [
        ("encoder:0,cross:0,decoder:-1", 0, []),
        ("encoder:1,cross:-1,decoder:0", 1, PRE_NORM),
        ("decoder:1,encoder:-1,cross:1", -1, []),
        ("cross:0", 1, PRE_NORM),
    ],
)
def test_loss_and_gradients(kind, text, head, norms):
    model = tiny.model(*MODEL, *norms).train()
    for module in model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    documents, w = BATCHES[kind], weights_of(model)
    criterion = AttentionRegularization(
        TASK, False, 0.1, attention_weight=3.0, regularized_attention=text, regularized_head=head
    )
    batch = batch_of(documents, LINKS[kind])
    layers_of = {part.split(":")[0]: int(part.split(":")[1]) for part in text.split(",")}
    total, mass, number = regularization(w, documents, LINKS[kind], layers_of, head, bool(norms))
    stock, size, _ = LabelSmoothedCrossEntropyCriterion(TASK, False, 0.1)(model, batch)
    got, got_size, logged = criterion(model, batch)
    assert got_size == size
    want = stock + 3 * total
    assert got.item() == pytest.approx(want.item(), rel=2e-6)
    assert logged["ambiguous_words"] == number
    assert logged["loss"] == stock
    assert logged["attention_loss"].item() == pytest.approx(total.item(), rel=2e-6)
    assert logged["attention_mass"].item() == pytest.approx(mass, rel=2e-6)
    names, parameters = zip(*model.named_parameters())
    ours, theirs = (torch.autograd.grad(x, parameters) for x in (got, want))
    for name, a, b in zip(names, ours, theirs):
        assert (a - b).abs().max() <= 2e-6 * max(1.0, b.abs().max().item()), name
    model.eval()
    assert (
        criterion(model, batch)[0]
        == LabelSmoothedCrossEntropyCriterion(TASK, False, 0.1)(model, batch)[0]
    )


def test_padding_and_neighbours_change_nothing():
    """The divergence of a row alone is that of the row in its batch."""
    model, documents = tiny.model(*MODEL), BATCHES["left-padded"]
    criterion = AttentionRegularization(TASK, False, 0.1)
    together = criterion(model, batch_of(documents, LINKS["left-padded"]))[2]
    alone = 0
    for row in range(3):
        one = loops.Batch([documents.sources[row]], [documents.targets[row]], True)
        links = {
            name: {0: of_rows[row]} if row in of_rows else {}
            for name, of_rows in LINKS["left-padded"].items()
        }
        batch = batch_of(one, links)
        for name, found in batch["supporting_words"].items():
            batch["supporting_words"][name] = found.view(-1, 3)
        alone = alone + criterion(model, batch)[2]["attention_loss"]
    torch.testing.assert_close(together["attention_loss"], alone, atol=2e-6, rtol=2e-6)


def test_a_layer_that_is_left_out_adds_nothing():
    """With LayerDrop, a layer may not be there in an update."""
    model = tiny.as_built(*MODEL, "--encoder-layerdrop", "0.9999", "--decoder-layerdrop", "0.9999")
    documents = BATCHES["left-padded"]
    batch = batch_of(documents, LINKS["left-padded"])
    loss, _, logged = AttentionRegularization(TASK, False, 0.1)(model.train(), batch)
    assert logged["ambiguous_words"] == 0
    assert logged["loss"] == loss


def refused(model, text="encoder:0,cross:0,decoder:-1", head=0):
    criterion = AttentionRegularization(
        TASK, False, 0.1, regularized_attention=text, regularized_head=head
    )
    with pytest.raises(UserError) as error:
        criterion(model, batch_of(BATCHES["left-padded"], LINKS["left-padded"]))
    return str(error.value)


def test_attention_that_a_model_does_not_have():
    model = tiny.as_built(*MODEL)
    assert refused(model, "cross:2") == (
        "--regularized-attention cross:2: the decoder has no such layer; give one from 0 to 1"
    )
    assert "encoder:-3" in refused(model, "encoder:-3")
    assert refused(model, head=2) == (
        "--regularized-head 2: the attention has 2 heads; give one from 0 to 1, or -1 for the "
        "mean of all"
    )
    assert "the encoder has no layers of attention" in refused(tiny.as_built(*tiny.rnnsearch()))
    assert "CrossRFA does not have" in refused(tiny.as_built(*tiny.rfa()), "cross:0")
    joined = tiny.as_built(*MODEL, "--cross-self-attention", "--no-cross-attention")
    assert "--cross-self-attention does not have" in refused(joined, "decoder:0")
    assert "the layer does not have" in refused(joined, "cross:0")
    lstm = ["--arch", "lstm", "--encoder-embed-dim", "16", "--decoder-embed-dim", "16"]
    assert "the layer does not have" in refused(tiny.as_built(*lstm), "cross:0")
    criterion = AttentionRegularization(
        TASK, False, 0.1, regularized_attention="decoder:1,cross:-2"
    )
    assert [criterion.attention_of(model, name) for name in ("decoder", "cross")] == [
        model.decoder.layers[1].self_attn,
        model.decoder.layers[0].encoder_attn,
    ]


def test_recomputed_activations_are_refused():
    model = tiny.as_built(*MODEL, "--checkpoint-activations").train()
    assert "does not work with --checkpoint-activations" in refused(model)


@pytest.mark.parametrize(
    "text",
    ["", "encoder", "encoder:x", "encoder:--1", "encoder:\u0663", "self:0", "cross:0,cross:1"],
)
def test_unclear_attention_is_refused(text):
    with pytest.raises(UserError, match="such as encoder:0,cross:0,decoder:-1"):
        AttentionRegularization(TASK, False, 0.1, regularized_attention=text)


def test_other_tasks_are_refused():
    batch = batch_of(BATCHES["left-padded"], LINKS["left-padded"])
    del batch["supporting_words"]
    model, criterion = tiny.as_built(*MODEL), AttentionRegularization(TASK, False, 0.1)
    criterion(model, batch)  # validation
    with pytest.raises(UserError, match="is for the document tasks"):
        criterion(model.train(), batch)


def test_a_head_below_the_mean_is_refused():
    with pytest.raises(UserError, match="or -1 for the mean of all, got -2"):
        AttentionRegularization(TASK, False, 0.1, regularized_head=-2)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_an_impossible_weight_is_refused(weight):
    with pytest.raises(UserError, match="--attention-weight must be a number of at least 0, got"):
        AttentionRegularization(TASK, False, 0.1, attention_weight=weight)


def test_logged_means_are_those_of_ambiguous_words():
    logs = [
        {"loss": 8.0, "nll_loss": 6.0, "ntokens": 4, "sample_size": 4},
        {"attention_loss": 3 * math.log(2), "attention_mass": 0.5, "ambiguous_words": 2},
        {
            "attention_loss": torch.tensor(3 * math.log(2)),
            "attention_mass": 1,
            "ambiguous_words": 4,
        },
    ]
    with metrics.aggregate() as found:
        AttentionRegularization.reduce_metrics(logs)
    assert found["attention_loss"].avg == pytest.approx(1)
    assert found["attention_mass"].avg == pytest.approx(0.25)
    assert found["loss"].avg == pytest.approx(2 / math.log(2))
    with metrics.aggregate() as found:
        AttentionRegularization.reduce_metrics(logs[:1])
    assert "attention_loss" not in found
