"""rfa_transformer against plain loops of the equations of Wu et al. (2022).

Sections 3.1 and 3.2 define the recurrences of S and z and the sentential gate.  What they leave to
Peng et al. (2021) and to the code of the paper is marked: features of unit vectors, the least
denominator, the rescaling of keys in cross attention, gates of their own for each head, pools of
random matrices, and gates in cross attention, which appendix A.2 mentions.

Covers modules/rfa/rfa_decoder.py.
"""

import itertools
import math
from typing import Iterator, NamedTuple, Optional, Tuple
from unittest import mock

import pytest
import tiny
import torch
from equations import loops
from equations.loops import BATCHES, HEADS, SEP, linear, weights_of
from torch import Tensor

from fairseq_docmt.modules.rfa.feature_map import SharedMatrices
from fairseq_docmt.ops import step_kernels


class RFA(NamedTuple):
    """Options of a model; the defaults are as in the paper."""

    gate: str = "none"
    gate_cross: bool = False
    shared_gate: bool = False
    pool: str = "own"  # of each layer; or "shared" by all layers; or "same" matrices in all too
    feature_map: str = "sincos"
    rescale: bool = True
    encoder: bool = False
    floor: Optional[float] = None
    norm_first: bool = False
    cross_vectors: int = 8  # as in tiny.rfa
    causal_vectors: int = 4


VARIANTS = {
    "plain": (RFA(), []),
    "decay": (RFA("decay"), ["--sentence-gate", "decay"]),
    "average": (RFA("average"), ["--sentence-gate", "average"]),
    "cross-decay": (
        RFA("decay", gate_cross=True),
        ["--sentence-gate", "decay", "--gate-cross-attention"],
    ),
    "cross-average": (
        RFA("average", gate_cross=True),
        ["--sentence-gate", "average", "--gate-cross-attention", *loops.WIDER_ENCODER],
    ),
    "one-gate": (RFA("decay", shared_gate=True), ["--sentence-gate", "decay", "--shared-gate"]),
    "one-gate-everywhere": (
        RFA("average", gate_cross=True, shared_gate=True),
        ["--sentence-gate", "average", "--gate-cross-attention", "--shared-gate"],
    ),
    "shared-pool": (RFA(pool="shared"), ["--share-random-matrices", "--random-matrices", "5"]),
    "same-matrices": (
        RFA("decay", pool="same"),
        ["--sentence-gate", "decay", "--share-random-matrices", "--same-matrices-in-decoding"],
    ),
    "encoder": (RFA("decay", encoder=True), ["--sentence-gate", "decay", "--rfa-encoder"]),
    "no-rescale": (RFA(rescale=False, encoder=True), ["--no-key-rescale", "--rfa-encoder"]),
    "positive": (
        RFA("decay", feature_map="positive", encoder=True),
        ["--sentence-gate", "decay", "--feature-map", "positive", "--rfa-encoder"],
    ),
    "positive-floor": (
        RFA(feature_map="positive", floor=0.5),
        ["--feature-map", "positive", "--denominator-floor", "0.5"],
    ),
    "norm-first": (
        RFA("average", norm_first=True),
        [
            *["--sentence-gate", "average"],
            *["--encoder-normalize-before", "--decoder-normalize-before"],
        ],
    ),
}
NEW = ("feature_map.temperature", "gate.linear")

# ---- the equations -------------------------------------------------------------------------------


def unit_length(x: Tensor, temperature: Tensor) -> Tensor:
    """Vectors of length 1 / tau; a thousandth keeps zero from dividing (code of the paper)."""
    return x / ((x.square().sum(-1, keepdim=True).sqrt() + 1e-3) * temperature)


def features(x: Tensor, matrix: Tensor, temperature: Tensor, kind: str) -> Tensor:
    """phi of section 3.1 with phi(x) . phi(y) ~ exp(x . y) for vectors of one length.

    Sines and cosines (Rahimi and Recht 2008) with the factor D^-1/2 of Peng et al. (2021); or
    exp(w . x) and exp(-w . x) times exp(-|x|^2), with (2 D)^-1/2 (Choromanski et al. 2021).  Both
    estimate exp(-|x - y|^2 / 2).
    """
    x = unit_length(x, temperature)
    projected, number = x @ matrix, matrix.size(1)
    if kind == "sincos":
        return torch.cat([projected.sin(), projected.cos()], -1) / math.sqrt(number)
    both = torch.cat([projected.exp(), (-projected).exp()], -1)
    return both * (-x.square().sum(-1, keepdim=True)).exp() / math.sqrt(2 * number)


def least_denominator(options: RFA, number: int) -> float:
    """0.1 for features of size 0.1 in the code of the paper, so 10 / D for size D^-1/2."""
    if options.floor is not None:
        return options.floor
    return 10 / number if options.feature_map == "sincos" else 1e-6


def read(phi_q: Tensor, total: Tensor, norm: Tensor, floor: float) -> Tensor:
    """phi(q) . S / phi(q) . z (section 3.1)."""
    denominator = phi_q @ norm
    return (phi_q @ total) / (denominator if denominator > floor else floor)


def summaries(
    phi_k: Tensor, v: Tensor, x: Tensor, separators, gate, options: RFA
) -> Iterator[Tuple[Tensor, Tensor]]:
    """S_t and z_t of one head after each token (section 3.2).

    Args:
        phi_k, v: (T, F) features of keys and (T, d) values.
        x: (T, C) representations e_t that enter the attention.
        separators: which tokens are separators; each ends its sentence.
        gate: w_f and b_f of the head, None without a gate.
        options: ``average`` weights the tokens of a sentence by one minus its gate (RFA-sgate-avg).
    """
    total, norm, weight = phi_k.new_zeros(phi_k.size(1), v.size(1)), torch.zeros_like(phi_k[0]), 1.0
    for t in range(len(v)):
        if gate is not None and t > 0 and separators[t - 1]:  # x_t starts a sentence
            forget = 1 / (1 + (-(gate[0] @ x[t - 1] + gate[1])).exp())
            total, norm = forget * total, forget * norm
            if options.gate == "average":
                weight = 1 - forget
        total = total + weight * torch.outer(phi_k[t], v[t])
        norm = norm + weight * phi_k[t]
        yield total, norm


def per_head(w, x, source, options: RFA, gated: bool, matrices):
    """Parts of each head: features of queries and keys, keys, values, temperature, gate."""
    inputs = {"q_proj": x, "k_proj": source, "v_proj": source}
    projected = (loops.heads(linear(w, name, y)) for name, y in inputs.items())
    for h, (q, k, v) in enumerate(zip(*projected)):
        temperature = w["feature_map.temperature"][h].squeeze()
        matrix = w["feature_map.pool"][h if matrices is None else matrices[h]]
        gate = None
        if gated:  # one gate for each head, as in the code of the paper, or w_f and b_f for all
            number = 0 if options.shared_gate else h
            assert len(w["gate.linear.weight"]) == (1 if options.shared_gate else HEADS)
            gate = w["gate.linear.weight"][number], w["gate.linear.bias"][number]
        phi_q, phi_k = (features(y, matrix, temperature, options.feature_map) for y in (q, k))
        yield phi_q, phi_k, k, v, temperature, gate


def causal(w, x, separators, options: RFA, matrices=None) -> Tensor:
    """Causal attention: S_t and z_t of the prefix up to t (section 3.1)."""
    floor, outputs = least_denominator(options, options.causal_vectors), []
    gated = options.gate != "none"
    for phi_q, phi_k, _, v, _, gate in per_head(w, x, x, options, gated, matrices):
        assert phi_q.size(1) == 2 * options.causal_vectors
        states = summaries(phi_k, v, x, separators, gate, options)
        outputs.append(torch.stack([read(q, *state, floor) for q, state in zip(phi_q, states)]))
    return linear(w, "out_proj", torch.cat(outputs, dim=-1))


def cross(
    w, x, source, separators, options: RFA, gated: bool, matrices=None, padding=None
) -> Tensor:
    """Cross attention: S and z of the whole source for every query (section 3.1).

    The features of a key forget its length.  The code of the paper weights each by
    exp(|k / (d^1/2 tau)|^2 / 2), divided by the largest such weight, which is a constant; there the
    weights of ``padding`` (P, C), encoder output beside the source, take part in that.
    """
    floor, outputs = least_denominator(options, options.cross_vectors), []
    for phi_q, phi_k, k, v, tau, gate in per_head(w, x, source, options, gated, matrices):
        assert phi_q.size(1) == 2 * options.cross_vectors
        if options.rescale:
            lengths = (k / (math.sqrt(k.size(1)) * tau)).square().sum(-1) / 2
            most = lengths.max().detach()
            if padding is not None and len(padding) > 0:
                others = loops.heads(linear(w, "k_proj", padding))[len(outputs)]
                others = (others / (math.sqrt(k.size(1)) * tau)).square().sum(-1) / 2
                most = torch.maximum(most, others.max().detach())
            phi_k = phi_k * (lengths - most).exp().unsqueeze(-1)
        *_, last = summaries(phi_k, v, source, separators, gate, options)
        outputs.append(torch.stack([read(q, *last, floor) for q in phi_q]))
    return linear(w, "out_proj", torch.cat(outputs, dim=-1))


def logits(w, source, target, options: RFA, matrices=(None, None)) -> Tensor:
    """(T, V) logits of the whole model; matrices: of causal and cross attention."""
    of_source, of_target = ([token == SEP for token in tokens] for tokens in (source, target))

    def over_source(w, x):
        if options.encoder:  # as cross attention of all source tokens, never gated
            return cross(w, x, x, of_source, options, gated=False)
        return loops.self_attention(w, x)

    embedded = loops.embed(w, "encoder", source)
    encoded = loops.encoder(w, embedded, over_source, options.norm_first)
    return loops.decoder(
        w,
        loops.embed(w, "decoder", target),
        encoded,
        lambda w, x: causal(w, x, of_target, options, matrices[0]),
        lambda w, x, memory: cross(
            w, x, memory, of_source, options, options.gate_cross, matrices[1]
        ),
        options.norm_first,
    )


def matrices_of_layers(w, options: RFA, drawn=None):
    """Parameters with a pool for each layer, from the pools that all layers share.

    Args:
        drawn: matrices of each layer that training has drawn for causal and for cross attention;
            None for evaluation, where the code of the paper takes the first for all layers.
    """
    if options.pool == "own":
        return w
    w = dict(w)
    for kind, name in (("causal", "self_attn"), ("cross", "encoder_attn")):
        pool = w[f"decoder.{kind}_matrices.pool"]
        for number in range(len(loops.layers(w, "decoder"))):
            first = 0 if options.pool == "same" else number * HEADS
            own = pool[first : first + HEADS] if drawn is None else drawn[kind][number]
            w[f"decoder.layers.{number}.{name}.feature_map.pool"] = own
    return w


def by_loops(w, documents, options: RFA, drawn=None, **given):
    """Logits of each row from the parameters of a model."""
    w = matrices_of_layers(w, options, drawn)
    rows = zip(documents.sources, documents.targets)
    return [logits(w, s, t, options, **given) for s, t in rows]


# ---- the model equals them -----------------------------------------------------------------------


def built(*arguments, layers=2, seed=0):
    """Return a random model, temperatures and gates included."""
    sizes = ["--encoder-layers", str(layers), "--decoder-layers", str(layers)]
    model = tiny.model(*tiny.rfa(*sizes, *arguments), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "temperature" in name:
            torch.nn.init.uniform_(parameter, 0.7, 1.5, generator=generator)
    return model


@loops.each(VARIANTS, "plain", "cross-average")
def test_whole_sequences(options, arguments, documents):
    """Logits, and gradients of all parameters."""
    model = built(*arguments)
    got, want = loops.whole(model, documents), by_loops(weights_of(model), documents, options)
    loops.assert_close(got, want)
    loops.assert_same_gradients(model, got, want, NEW, 1e-8)


@torch.no_grad()
@loops.each(VARIANTS, "cross-average")
def test_decoding(options, arguments, documents):
    """Token by token, and after a prefix read in one pass."""
    model = built(*arguments)
    want = by_loops(weights_of(model), documents, options)
    loops.assert_close(loops.by_steps(model, documents), want)
    loops.assert_close(loops.by_prefix(model, documents), want)


def with_padding(model, documents, options: RFA):
    """Logits of each row when the longest key may be one of padding; from the encoder's output."""
    w, inputs = weights_of(model), documents.source_batch()
    encoded = model.encoder(**inputs)["encoder_out"][0].transpose(0, 1)
    for row, is_padding, source, target in zip(
        encoded, inputs["src_tokens"].eq(loops.PAD), documents.sources, documents.targets
    ):
        separators = [token == SEP for token in source]
        of_target = [token == SEP for token in target]
        yield loops.decoder(
            w,
            loops.embed(w, "decoder", target),
            row[~is_padding],
            lambda w, x, of_target=of_target: causal(w, x, of_target, options),
            lambda w, x, memory, row=row[is_padding], separators=separators: cross(
                w, x, memory, separators, options, options.gate_cross, padding=row
            ),
        )


@pytest.mark.parametrize("gate", ["none", "average"])
def test_longest_key_among_padding(gate):
    """As in the code of the paper, a row depends on the other rows of the batch."""
    arguments = ["--sentence-gate", gate] + (["--gate-cross-attention"] if gate != "none" else [])
    # A seed with which keys of padding are the longest of some heads.
    model = built("--key-rescale-with-padding", *arguments, seed=1)
    documents = BATCHES["left-padded"]
    for name, parameter in model.named_parameters():
        if "encoder_attn.k_proj" in name:
            parameter.data.mul_(3)  # keys of very different lengths
    options = RFA(gate, gate_cross=gate != "none")
    got, want = loops.whole(model, documents), list(with_padding(model, documents, options))
    loops.assert_close(got, want)
    loops.assert_same_gradients(model, got, want, NEW, 1e-8)
    with torch.no_grad():
        loops.assert_close(loops.by_steps(model, documents), want)
        loops.assert_close(loops.by_prefix(model, documents), want)
    alone = by_loops(weights_of(model), documents, options)
    differences = [(ours - theirs).abs().max() for ours, theirs in zip(got, alone)]
    assert differences[1] < 1e-5 < max(differences[0], differences[2])


@torch.no_grad()
def test_compiled_kernels(compiled_kernels):
    """In single precision, with sizes that the kernels take."""
    sizes = ["--encoder-embed-dim", "32", "--decoder-embed-dim", "32", "--causal-feature-dim", "8"]
    model = built("--sentence-gate", "average", *sizes).float()
    options, documents = RFA("average", causal_vectors=8), BATCHES["left-padded"]
    w = {name: x.double() for name, x in weights_of(model).items()}
    with mock.patch.object(step_kernels, "recall", wraps=step_kernels.recall) as recall:
        got = [row.double() for row in loops.by_steps(model, documents)]
    assert recall.called
    loops.assert_close(got, by_loops(w, documents, options), 1e-4)


# ---- random matrices -----------------------------------------------------------------------------


def test_random_matrices_of_training():
    """In each forward pass, for causal and cross attention and for each head separately."""
    model, options = built("--dropout", "0", "--random-matrices", "3", layers=1).train(), RFA()
    documents = loops.batch([5, 3], [4, 6], left_pad=True)
    drawn = list(itertools.permutations(range(3), HEADS))
    with torch.no_grad():
        pairs = list(itertools.product(drawn, drawn))
        known = [by_loops(weights_of(model), documents, options, matrices=pair) for pair in pairs]
    found = []
    for _ in range(40):
        got = loops.whole(model, documents)
        distances = [(got[0] - want[0]).abs().max().item() for want in known]
        found.append(distances.index(min(distances)))
        loops.assert_close(got, known[found[-1]])
    for side in (0, 1):
        assert {pairs[number][side] for number in found} == set(drawn)
    assert len({pairs[number] for number in found}) > len(drawn)
    want = by_loops(weights_of(model), documents, options, matrices=pairs[found[-1]])
    loops.assert_same_gradients(model, got, want, NEW)


def test_shared_matrices_of_training():
    """In each forward pass, every head of every layer has a different matrix of the pool."""
    pool = ["--share-random-matrices", "--same-matrices-in-decoding", "--random-matrices", "5"]
    model, options = built("--dropout", "0", *pool).train(), RFA(pool="same")
    documents, draws = loops.batch([5, 3], [4, 6], left_pad=True), []
    draw = SharedMatrices.draw

    def noting(shared):
        draws.append(draw(shared))
        return draws[-1]

    seen = set()
    for _ in range(12):
        with mock.patch.object(SharedMatrices, "draw", noting):
            got = loops.whole(model, documents)
        drawn = dict(zip(("causal", "cross"), draws[-2:]))
        for kind, layers in drawn.items():
            known = getattr(model.decoder, f"{kind}_matrices").pool
            heads = [matrix for layer in layers for matrix in layer]
            numbers = [n for m in heads for n in range(5) if torch.equal(m, known[n])]
            assert len(numbers) == len(set(numbers)) == 2 * HEADS
            seen.add((kind, *numbers))
        want = by_loops(weights_of(model), documents, options, drawn)
        loops.assert_close(got, want)
    assert len(draws) == 24 and len(seen) > 15
    loops.assert_same_gradients(model, got, want, NEW)


@torch.no_grad()
def test_matrices_of_decoding():
    """Different matrices in each layer, or the same in all layers; nothing else differs."""
    documents, shared = BATCHES["short"], ["--share-random-matrices"]
    other, same = built(*shared), built(*shared, "--same-matrices-in-decoding")
    same.load_state_dict(other.state_dict(), strict=True)
    names = [name for name in other.state_dict() if name.endswith("pool")]
    assert names == ["decoder.causal_matrices.pool", "decoder.cross_matrices.pool"]
    found = [loops.whole(model, documents)[0] for model in (other, same)]
    assert (found[0] - found[1]).abs().max() > 1e-3


def test_random_matrices_are_standard_normal():
    """A pool of its own for each attention of each layer."""
    model = tiny.as_built(*tiny.rfa("--encoder-layers", "2", "--rfa-encoder"))
    pools = [x for name, x in weights_of(model).items() if name.endswith("feature_map.pool")]
    assert [tuple(pool.shape) for pool in pools] == [(64, 8, 8), (64, 8, 8), (64, 8, 4), (64, 8, 8)]
    numbers = torch.cat([pool.flatten() for pool in pools])
    assert len(set(numbers.tolist())) == len(numbers)
    assert numbers.mean() == pytest.approx(0, abs=0.03)
    assert numbers.std() == pytest.approx(1, abs=0.03)
    assert numbers.pow(4).mean() == pytest.approx(3, abs=0.3)


# ---- where a model starts ------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize(
    "kind, arguments, bias",
    [("decay", [], 2.0), ("average", [], 0.0), ("decay", ["--gate-bias-init", "1"], 1.0)],
)
def test_gates_start_at_b_f(kind, arguments, bias):
    """Appendix A.2: b_f is 2 for IWSLT and 1 for OpenSubtitles; 0 for averages, as in the code."""
    model = tiny.as_built(*tiny.rfa("--sentence-gate", kind, "--gate-cross-attention", *arguments))
    w = weights_of(model)
    for name, value in w.items():
        if name.endswith("gate.linear.bias"):
            w[name] = torch.full_like(value, bias)
        if name.endswith("temperature"):
            w[name] = torch.ones_like(value)
    documents, options = BATCHES["left-padded"], RFA(kind, gate_cross=True)
    loops.assert_close(loops.whole(model, documents), by_loops(w, documents, options))
    _, extra = model(**documents.source_batch(), prev_output_tokens=documents.target_batch())
    gates = extra["log_decay"].exp()[0]  # of the first layer, whose input is known, (H, B, T)
    own = loops.inside(w, "decoder.layers.0.self_attn.gate")
    for row, target in enumerate(documents.targets):
        e = loops.embed(w, "decoder", target)[:-1]
        decay = 1 / (1 + (-linear(own, "linear", e)).exp()).t()
        starts = torch.tensor(target[:-1]) == SEP
        want = decay.masked_fill(~starts, 1.0)
        torch.testing.assert_close(gates[:, row, 1 : len(target)], want)


def test_without_options():
    """No gate, 256 random vectors in cross attention and 32 in causal attention (appendix A.2)."""
    model = tiny.as_built("--arch", "rfa_transformer", *tiny.MODEL[2:])
    options, documents = RFA(cross_vectors=256, causal_vectors=32), BATCHES["short"]
    want = by_loops(weights_of(model), documents, options)
    loops.assert_close(loops.whole(model, documents), want)
    loops.assert_close(loops.by_steps(model, documents), want)


@torch.no_grad()
def test_shared_matrices_are_added_to_a_transformer():
    """Pools are saved in the checkpoint; finetuning from a transformer keeps the new ones."""
    options, documents = RFA(pool="shared"), BATCHES["short"]
    model = tiny.as_built(*tiny.rfa("--share-random-matrices", "--random-matrices", "500"))
    pools = [model.decoder.causal_matrices.pool, model.decoder.cross_matrices.pool]
    assert [tuple(pool.shape) for pool in pools] == [(500, 8, 4), (500, 8, 8)]
    before = [pool.clone() for pool in pools]
    model.load_state_dict(tiny.model(*tiny.MODEL).state_dict(), strict=True)
    assert all(map(torch.equal, before, pools))
    want = by_loops(weights_of(model), documents, options)
    loops.assert_close(loops.whole(model, documents), want)
    other = tiny.as_built(*tiny.rfa("--share-random-matrices", "--random-matrices", "500"))
    other.load_state_dict(model.state_dict(), strict=True)
    loops.assert_close(loops.whole(other, documents), want)


@torch.no_grad()
def test_a_gate_is_added_to_a_trained_model():
    """Finetuning of a model without gates keeps its weights, features and temperatures."""
    trained, documents = built(), BATCHES["left-padded"]
    sizes = ["--encoder-layers", "2", "--decoder-layers", "2"]
    model = tiny.as_built(*tiny.rfa("--sentence-gate", "decay", *sizes))
    model.load_state_dict(trained.state_dict(), strict=True)
    w = {**weights_of(model), **weights_of(trained)}
    biases = [x for name, x in w.items() if name.endswith("gate.linear.bias")]
    assert len(biases) == 2 and all((x == 2).all() for x in biases)
    options = RFA("decay")
    loops.assert_close(loops.whole(model, documents), by_loops(w, documents, options))


def attention_of_unit_vectors(w, x, source, seen, rescale: bool) -> Tensor:
    """Attention that random features estimate: softmax with queries and keys of length 1.

    With rescaling, keys count exp(|k|^2 / (2 d)) times as much.
    """
    parts = []
    q, k, v = linear(w, "q_proj", x), linear(w, "k_proj", source), linear(w, "v_proj", source)
    for queries, keys, values in zip(loops.heads(q), loops.heads(k), loops.heads(v)):
        unit_q, unit_k = (y / y.norm(dim=-1, keepdim=True) for y in (queries, keys))
        longer = keys.square().sum(-1) / (2 * keys.size(1)) if rescale else 0 * keys[:, 0]
        rows = []
        for i, query in enumerate(unit_q):
            columns = list(seen(i))
            weights = loops.softmax(unit_k[columns] @ query + longer[columns])
            rows.append(weights @ values[columns])
        parts.append(torch.stack(rows))
    return linear(w, "out_proj", torch.cat(parts, dim=-1))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["sincos", "positive"])
@pytest.mark.parametrize("rescale", [True, False])
def test_finetuning_starts_near_softmax_attention_over_unit_vectors(kind, rescale):
    """The model before finetuning is near the transformer's softmax attention over unit vectors.

    phi(x) . phi(y) estimates exp(x . y), the better the more random vectors (section 3.1); the
    causal and the cross attention change, the encoder does not.
    """
    transformer = tiny.model(*tiny.MODEL)
    w, documents = weights_of(transformer), BATCHES["left-padded"]
    want = [
        loops.decoder(
            w,
            loops.embed(w, "decoder", target),
            loops.encoder(w, loops.embed(w, "encoder", source)),
            lambda w, x: attention_of_unit_vectors(w, x, x, lambda i: range(i + 1), False),
            lambda w, x, memory: attention_of_unit_vectors(
                w, x, memory, lambda i: range(len(memory)), rescale
            ),
        )
        for source, target in zip(documents.sources, documents.targets)
    ]
    errors = []
    for number in ("16", "5000"):
        sizes = ["--cross-feature-dim", number, "--causal-feature-dim", number]
        options = [*sizes, "--feature-map", kind, "--random-matrices", "2"]
        options += [] if rescale else ["--no-key-rescale"]
        model = tiny.as_built(*tiny.rfa(*options))
        model.load_state_dict(transformer.state_dict(), strict=True)
        got = loops.whole(model, documents)
        errors.append(max((ours - theirs).abs().max() for ours, theirs in zip(got, want)))
    assert errors[1] < 0.05 < errors[0]
