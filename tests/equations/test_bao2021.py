"""g_transformer against plain loops of Bao et al. (2021).

Choices of this implementation: a separator belongs to the source sentence that it ends, and in the
decoder, where it is read to predict the first word of the next sentence, to that one; target
sentences after the last source sentence attend to the last one.

Covers modules/group.py, modules/sentences.py.
"""

from typing import List, NamedTuple, Sequence

import pytest
import tiny
import torch
from equations import loops
from equations.loops import EOS, SEP, inside, linear, weights_of
from torch import Tensor

LAYERS = 3


class Context(NamedTuple):
    """Numbers of top layers with combined attention."""

    encoder: int = 2
    decoder: int = 2
    cross: int = 2
    norm_first: bool = False

    def options(self) -> List[str]:
        """Return them as options of a command line."""
        names = ("encoder", "decoder", "cross")
        return [x for n in names for x in (f"--{n}-context-layers", str(getattr(self, n)))]


NORM_FIRST = ["--encoder-normalize-before", "--decoder-normalize-before"]
VARIANTS = {
    "default": (Context(), []),
    "norm-first": (Context(1, 2, 3, norm_first=True), [*NORM_FIRST, *loops.WIDER_ENCODER]),
    "source": (Context(encoder=1, decoder=0, cross=0), []),
    "target": (Context(encoder=0, decoder=2, cross=0), loops.WIDER_ENCODER),
    "cross": (Context(encoder=0, decoder=0, cross=1), loops.WIDER_ENCODER),
    "sentences": (Context(0, 0, 0), []),
}

# ---- the equations -------------------------------------------------------------------------------


def source_groups(tokens: Sequence[int]) -> List[int]:
    """G_x: the number of the sentence of each source token."""
    return [list(tokens[:j]).count(SEP) for j in range(len(tokens))]


def target_groups(tokens: Sequence[int]) -> List[int]:
    """G_y: the number of the sentence that decoder input i continues."""
    return [list(tokens[: i + 1]).count(SEP) for i in range(len(tokens))]


def attention(w, x: Tensor, keys: Tensor, groups, groups_of_keys, visible) -> Tensor:
    """Group attention, or with a gate combined attention."""

    def group(i):
        return [j for j in visible(i) if groups_of_keys[j] == groups[i]]

    local = loops.multi_head(w, x, keys, group)
    if "gate.weight" not in w:
        return local
    document = loops.multi_head(inside(w, "document"), x, keys, visible)
    g = 1 / (1 + (-linear(w, "gate", torch.cat([local, document], dim=-1))).exp())
    return local * g + document * (1 - g)


def logits(w, source, target, norm_first: bool) -> Tensor:
    """(T, V) logits."""
    of_source, of_target = source_groups(source), target_groups(target)
    held = [min(number, of_source[-1]) for number in of_target]

    def self_attention(w, x):
        return attention(w, x, x, of_source, of_source, lambda i: range(len(x)))

    def causal(w, x):
        return attention(w, x, x, of_target, of_target, lambda i: range(i + 1))

    def cross(w, x, keys):
        return attention(w, x, keys, held, of_source, lambda i: range(len(keys)))

    encoded = loops.encoder(w, loops.embed(w, "encoder", source), self_attention, norm_first)
    return loops.decoder(w, loops.embed(w, "decoder", target), encoded, causal, cross, norm_first)


def by_loops(model, documents, norm_first=False):
    w, rows = weights_of(model), zip(documents.sources, documents.targets)
    return [logits(w, s, t, norm_first) for s, t in rows]


# ---- the model equals them -----------------------------------------------------------------------


def built(options: Context, *arguments):
    layers = ["--encoder-layers", str(LAYERS), "--decoder-layers", str(LAYERS)]
    return tiny.model(*tiny.group(*layers, *options.options(), *arguments))


@loops.each(VARIANTS, "norm-first")
def test_whole_sequences(options, arguments, documents):
    """Logits, and gradients of all parameters."""
    model = built(options, *arguments)
    got, want = loops.whole(model, documents), by_loops(model, documents, options.norm_first)
    loops.assert_close(got, want)
    loops.assert_same_gradients(model, got, want, ["out_proj", "gate", "document.v_proj"])


@torch.no_grad()
@loops.each(VARIANTS)
def test_decoding(options, arguments, documents):
    """Token by token, and after a prefix read in one pass."""
    model = built(options, *arguments)
    want = by_loops(model, documents, options.norm_first)
    loops.assert_close(loops.by_steps(model, documents), want)
    loops.assert_close(loops.by_prefix(model, documents), want)


@pytest.mark.parametrize("options", [variant[0] for variant in VARIANTS.values()])
def test_combined_attention_is_in_the_top_layers(options):
    names = list(weights_of(built(options)))
    for part, place in (
        ("encoder", "encoder.layers.{}.self_attn"),
        ("decoder", "decoder.layers.{}.self_attn"),
        ("cross", "decoder.layers.{}.encoder_attn"),
    ):
        combined = [
            layer
            for layer in range(LAYERS)
            if any(name.startswith(place.format(layer) + ".document.") for name in names)
        ]
        assert combined == list(range(LAYERS))[LAYERS - getattr(options, part) :]


def test_groups_by_hand():
    assert source_groups([4, SEP, 5, SEP, SEP, EOS]) == [0, 0, 1, 1, 2, 3]
    assert target_groups([EOS, 4, SEP, 5, SEP, SEP]) == [0, 0, 1, 1, 2, 3]


# ---- cross attention that is printed -------------------------------------------------------------


@torch.no_grad()
def test_attention_weights_are_combined_as_by_the_gate():
    """Weights of the sentence and of the document have the shares that the gate gives them."""
    model = built(Context(cross=1))
    batch = loops.Batch([[4, 5, SEP, 6, 7, EOS]], [[EOS, 8, SEP, 9]], left_pad=True)
    inputs = {**batch.source_batch(), "prev_output_tokens": batch.target_batch()}

    def weights(layer):
        return model(**inputs, alignment_layer=layer)[1]["attn"][0][0]

    def elsewhere(weights):
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones_like(weights[:, 0]))
        return torch.cat([weights[:2, 3:].sum(-1), weights[2:, :3].sum(-1)])

    def gated(*values):
        gate.weight.zero_()
        gate.bias.copy_(torch.tensor(values).repeat(len(gate.bias) // len(values)).logit())
        return weights(LAYERS - 1)

    gate = model.decoder.layers[-1].encoder_attn.gate
    for layer in range(LAYERS - 1):
        assert not elsewhere(weights(layer)).any()
    assert (elsewhere(weights(LAYERS - 1)) > 0).all()
    sentence, document = gated(1.0), gated(0.0)
    assert not elsewhere(sentence).any()
    torch.testing.assert_close(gated(0.9, 0.5), 0.7 * sentence + 0.3 * document)


# ---- where a model starts ------------------------------------------------------------------------


@torch.no_grad()
def test_a_document_of_one_sentence_is_translated_by_a_transformer():
    """Without combined attention; each of several sentences is translated by itself."""
    model = tiny.as_built(*tiny.group(*Context(0, 0, 0).options()))
    documents = loops.Batch([[4, 5, 9, EOS], [6, EOS]], [[EOS, 4, 7], [EOS, 8, 8, 5]], True)
    want = loops.transformers(weights_of(model), documents)
    loops.assert_close(loops.whole(model, documents), want)
    loops.assert_close(loops.by_steps(model, documents), want)


def test_a_transformer_is_a_start():
    """Its attention becomes group attention; the rest keeps its initial values."""
    transformer = tiny.model(*tiny.MODEL)
    model = tiny.as_built(*tiny.group())
    before = {name: x.clone() for name, x in model.state_dict().items()}
    model.load_state_dict(dict(transformer.state_dict()))
    for name, x in model.state_dict().items():
        new = ".document." in name or ".gate." in name
        torch.testing.assert_close(x, before[name] if new else transformer.state_dict()[name])
