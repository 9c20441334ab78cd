"""lst_transformer against plain loops of Herold and Ney (2023), section 3.2 (Zhang et al. 2020).

Where the paper is silent: both variants see the same queries, keys and values, or each its own; the
sentence comes first in the concatenation; a separator belongs to the source sentence that it ends,
and in the decoder, where it is read to predict the first word of the next sentence, to that one.

Covers modules/lst.py.
"""

from typing import List, Sequence

import pytest
import tiny
import torch
from equations import loops
from equations.loops import EOS, SEP, heads, weights_of
from equations.loops import linear as project
from torch import Tensor

NORM_FIRST = ["--encoder-normalize-before", "--decoder-normalize-before"]
#: whether norms come first, and options
VARIANTS = {
    "norm-last": (False, []),
    "norm-first": (True, [*NORM_FIRST, *loops.WIDER_ENCODER]),
    "separate": (False, ["--separate-projections", *loops.WIDER_ENCODER]),
}

# ---- the equations -------------------------------------------------------------------------------


def source_sentences(tokens: Sequence[int]) -> List[int]:
    """s(j): the separators before token j."""
    return [list(tokens[:j]).count(SEP) for j in range(len(tokens))]


def target_sentences(tokens: Sequence[int]) -> List[int]:
    """s(i): the separators before the token that decoder input i predicts."""
    return [list(tokens[: i + 1]).count(SEP) for i in range(len(tokens))]


def attention(w, x: Tensor, sentences: List[int], causal: bool) -> Tensor:
    """Restricted and non-restricted attention, concatenated and projected."""

    def everything(i):
        return range(i + 1) if causal else range(len(x))

    def sentence(i):
        return [j for j in everything(i) if sentences[j] == sentences[i]]

    parts = []
    for seen, name in ((sentence, "{}_proj"), (everything, "long.{}")):
        if "long.q.weight" not in w:
            name = "{}_proj"
        q, k, v = (heads(project(w, name.format(kind), x)) for kind in "qkv")
        parts += [loops.attend(*head, seen) for head in zip(q, k, v)]
    return project(w, "out_proj", torch.cat(parts, dim=-1))


def logits(w, source, target, norm_first: bool) -> Tensor:
    """(T, V) logits; cross attention remains unchanged."""
    encoded = loops.encoder(
        w,
        loops.embed(w, "encoder", source),
        lambda w, x: attention(w, x, source_sentences(source), causal=False),
        norm_first,
    )
    return loops.decoder(
        w,
        loops.embed(w, "decoder", target),
        encoded,
        lambda w, x: attention(w, x, target_sentences(target), causal=True),
        loops.cross_attention,
        norm_first,
    )


def by_loops(model, documents, norm_first=False):
    w, rows = weights_of(model), zip(documents.sources, documents.targets)
    return [logits(w, s, t, norm_first) for s, t in rows]


# ---- the model equals them -----------------------------------------------------------------------


def built(*arguments):
    return tiny.model(*tiny.lst("--encoder-layers", "2", "--decoder-layers", "2", *arguments))


@loops.each(VARIANTS, "norm-last")
def test_whole_sequences(options, arguments, documents):
    """Logits, and gradients of all parameters."""
    model = built(*arguments)
    got, want = loops.whole(model, documents), by_loops(model, documents, norm_first=options)
    loops.assert_close(got, want)
    loops.assert_same_gradients(model, got, want, ["out_proj", "long.q", "long.v"])
    own = [name for name in weights_of(model) if ".long." in name]
    assert len(own) == (24 if "--separate-projections" in arguments else 0)


@torch.no_grad()
@loops.each(VARIANTS)
def test_decoding(options, arguments, documents):
    """Token by token, and after a prefix read in one pass."""
    model = built(*arguments)
    want = by_loops(model, documents, norm_first=options)
    loops.assert_close(loops.by_steps(model, documents), want)
    loops.assert_close(loops.by_prefix(model, documents), want)


def test_sentences_by_hand():
    assert source_sentences([4, SEP, 5, SEP, SEP, EOS]) == [0, 0, 1, 1, 2, 3]
    assert target_sentences([EOS, 4, SEP, 5, SEP, SEP]) == [0, 0, 1, 1, 2, 3]


# ---- where a model starts ------------------------------------------------------------------------


@torch.no_grad()
def test_a_single_sentence_is_translated_by_a_transformer():
    """Without separators both attentions are equal, so the halves of the projection add up."""
    model = tiny.as_built(*tiny.lst())
    w = weights_of(model)
    for name, value in w.items():
        if "self_attn.out_proj.weight" in name:
            w[name] = value[:, : value.size(0)] + value[:, value.size(0) :]
    documents = loops.Batch([[4, 5, 9, EOS], [6, EOS]], [[EOS, 4, 7], [EOS, 8, 8, 5]], True)
    want = loops.transformers(w, documents)
    loops.assert_close(loops.whole(model, documents), want)
    loops.assert_close(loops.by_steps(model, documents), want)


@torch.no_grad()
@pytest.mark.parametrize("options", [[], ["--separate-projections"]])
def test_a_transformer_is_a_start(options):
    """A single sentence is translated as before, and both attentions begin as the same."""
    transformer, model = tiny.model(*tiny.MODEL), tiny.as_built(*tiny.lst(*options))
    model.load_state_dict(dict(transformer.state_dict()))
    documents = loops.Batch([[4, 5, 9, EOS], [6, EOS]], [[EOS, 4, 7], [EOS, 8, 8, 5]], True)
    loops.assert_close(
        loops.whole(model, documents), loops.transformers(weights_of(transformer), documents)
    )
    documents = loops.batch([9], [7], left_pad=True)
    loops.assert_close(loops.whole(model, documents), by_loops(model, documents))
    w = weights_of(model)
    for name, value in w.items():
        if ".long." in name:
            first = name.replace("long.", "").replace(".weight", "_proj.weight")
            assert torch.equal(value, w[first.replace(".bias", "_proj.bias")])
    own = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(dict(own))  # its own parameters stay as they are
    for name, value in model.state_dict().items():
        assert torch.equal(value, own[name])
