"""window_attn_transformer against plain loops of Herold and Ney (2023), section 3.3.

Where the paper is silent: sums that end in one half are rounded up, alignments beyond the source
are held to its last token, and alignments of more target sentences than there are source sentences
to the last sentence.

Covers modules/window/window_layers.py, modules/window/window_decoder.py.
"""

from fractions import Fraction
from math import floor
from typing import List, NamedTuple, Optional, Sequence

import pytest
import tiny
import torch
from equations import loops
from equations.loops import BATCHES, EOS, LONG, SEP, weights_of
from torch import Tensor


class Window(NamedTuple):
    """Options of a model."""

    size: int = 4
    relative: bool = True
    alignment: str = "sentence"
    training: str = "linear"
    full_encoder: bool = False
    full_decoder: bool = False
    full_cross: bool = False


ABSOLUTE = ["--position", "absolute"]
VARIANTS = {
    "default": (Window(), []),
    "absolute": (Window(relative=False), ABSOLUTE),
    "linear": (Window(alignment="linear"), ["--alignment", "linear"]),
    "one-to-one": (Window(alignment="one-to-one"), ["--alignment", "one-to-one"]),
    "by-sentence": (Window(training="sentence"), ["--train-alignment", "sentence"]),
    "absolute-linear": (
        Window(relative=False, alignment="linear", training="sentence"),
        [*ABSOLUTE, "--alignment", "linear", "--train-alignment", "sentence", *loops.WIDER_ENCODER],
    ),
    "full-encoder": (
        Window(relative=False, full_encoder=True),
        [*ABSOLUTE, "--full-encoder-attention"],
    ),
    "full-decoder": (
        Window(relative=False, full_decoder=True),
        [*ABSOLUTE, "--full-decoder-attention"],
    ),
    "concat-adj-relative": (
        Window(full_encoder=True, full_decoder=True, full_cross=True),
        ["--full-encoder-attention", "--full-decoder-attention", "--full-cross-attention"],
    ),
    "full-cross": (Window(full_cross=True), ["--full-cross-attention"]),
    "nothing-around": (Window(size=0), ["--attention-window", "0"]),
    "other-window": (Window(size=7), ["--attention-window", "7"]),
}
#: pairs of documents; the ratio of source to target tokens is 3 / 2 in each
PAIRS = loops.batch([9, 3, 12], [6, 2, 8], left_pad=True, seed=5)
RATIO = Fraction(3, 2)

# ---- the equations; tokens are counted from 1 as in the paper ------------------------------------


def rounded(x: Fraction) -> int:
    return floor(x + Fraction(1, 2))


def linear_in_training(source: Sequence[int], target: Sequence[int]) -> List[int]:
    """b_i = round(J / I * i)."""
    return [rounded(Fraction(len(source), len(target)) * i) for i in range(1, len(target) + 1)]


def linear(target: Sequence[int], train_ratio: Fraction) -> List[int]:
    """b_i = round(train_ratio * i), item 2 of the alignments in decoding."""
    return [rounded(train_ratio * i) for i in range(1, len(target) + 1)]


def one_to_one(target: Sequence[int]) -> List[int]:
    """b_i = i, item 1."""
    return list(range(1, len(target) + 1))


def sentence_lengths(source: Sequence[int]) -> List[int]:
    """J_n; a separator is the last token of its sentence."""
    ends = [j for j, token in enumerate(source, 1) if token == SEP]
    bounds = [0, *ends, len(source)] if ends[-1:] != [len(source)] else [0, *ends]
    return [end - start for start, end in zip(bounds, bounds[1:])]


def sentence(source: Sequence[int], target: Sequence[int]) -> List[int]:
    """sent-align, item 3: after N' separators sentence N' + 1 begins where its source does.

    The decoder input at position i is e_{i-1}, the token before the one to predict.
    """
    lengths, produced, centers = sentence_lengths(source), 0, []
    for token in target:
        if token == SEP:
            produced += 1
            whole = min(produced, len(lengths) - 1)
            centers.append(sum(lengths[:whole]) + 1)
        else:
            centers.append(centers[-1] + 1 if centers else 1)
    return centers


def alignment(kind: str, source, target, train_ratio: Optional[Fraction] = None) -> List[int]:
    """Aligned columns of the source from 0, held to the source; ratio: None in training."""
    if kind == "linear":
        linear_part = linear_in_training(source, target)
        centers = linear_part if train_ratio is None else linear(target, train_ratio)
    else:
        centers = one_to_one(target) if kind == "one-to-one" else sentence(source, target)
    return [min(max(b, 1), len(source)) - 1 for b in centers]


def around(center: int, size: int, length: int, causal: bool = False) -> range:
    """Equation 1: b_i - w <= j <= b_i + w; in the decoder no j after i (footnote 1)."""
    last = center if causal else center + size
    return range(max(center - size, 0), min(last, length - 1) + 1)


def self_attention(w, x: Tensor, options: Window, full: bool, causal: bool) -> Tensor:
    """b_i = i; with relative positions r_{i-j}, which a query meets as it meets the keys.

    M_ij = r_{i-j} of the paper is a vector: its product with the query counts, scaled like that of
    the key (Shaw et al. 2018), one vector for all heads.  Without a window i - j is held to w.
    """

    def seen(i):
        size = len(x) if full else options.size
        return around(i, size, len(x), causal)

    def position(i, columns):
        held = [min(max(j - i, -options.size), options.size) for j in columns]
        return w["relative"][[distance + options.size for distance in held]]

    return loops.multi_head(w, x, x, seen, position if options.relative else None)


def cross_attention(w, x: Tensor, source: Tensor, centers, options: Window) -> Tensor:
    """A window around the alignment, without relative positions (end of section 3.3)."""

    def seen(i):
        size = len(source) if options.full_cross else options.size
        return around(centers[i], size, len(source))

    return loops.multi_head(w, x, source, seen)


def logits(w, source, target, centers, options: Window) -> Tensor:
    """(T, V) logits of the whole model; no absolute positions besides relative ones."""
    positions = not options.relative
    encoded = loops.encoder(
        w,
        loops.embed(w, "encoder", source, positions),
        lambda w, x: self_attention(w, x, options, options.full_encoder, causal=False),
    )
    return loops.decoder(
        w,
        loops.embed(w, "decoder", target, positions),
        encoded,
        lambda w, x: self_attention(w, x, options, options.full_decoder, causal=True),
        lambda w, x, memory: cross_attention(w, x, memory, centers, options),
    )


def by_loops(model, documents, options: Window, train_ratio: Optional[Fraction] = None):
    """Logits of each row; train_ratio: as decoding has it, None for training."""
    w, rows = weights_of(model), zip(documents.sources, documents.targets)
    kind = options.training if train_ratio is None else options.alignment
    return [logits(w, s, t, alignment(kind, s, t, train_ratio), options) for s, t in rows]


# ---- the model equals them -----------------------------------------------------------------------


def built(*arguments, layers=2):
    sizes = ["--encoder-layers", str(layers), "--decoder-layers", str(layers), "--dropout", "0"]
    return tiny.model(*tiny.window(*sizes, *arguments))


def count(model, documents):
    """Run a forward pass in training mode, which counts tokens."""
    model.train()
    loops.whole(model, documents)
    return model.eval()


@loops.each(
    {name: variant for name, variant in VARIANTS.items() if name not in ("linear", "one-to-one")},
    *["default", "full-cross", "concat-adj-relative"],
)
def test_references(options, arguments, documents):
    """Logits with the alignment of training, and gradients of all parameters."""
    model = built(*arguments)
    got, want = loops.whole(model, documents), by_loops(model, documents, options)
    loops.assert_close(got, want)
    # With a single key the weight is constant, so its position gets no gradient.
    loops.assert_same_gradients(model, got, want, ["relative"] if options.size > 0 else [])


@torch.no_grad()
@loops.each(VARIANTS, "default")
def test_decoding(options, arguments, documents):
    """With the alignment of decoding: token by token, and after a prefix read in one pass."""
    model = count(built(*arguments), PAIRS)
    want = by_loops(model, documents, options, RATIO)
    loops.assert_close(loops.by_steps(model, documents), want)
    loops.assert_close(loops.by_prefix(model, documents), want)


def test_alignments_by_hand():
    """Two source sentences and three target sentences, the third without a source."""
    source, target = [4, 5, 6, SEP, 7, 8, EOS], [EOS, 4, SEP, 5, 6, SEP, 7, 8]
    assert sentence_lengths(source) == [4, 3]
    assert sentence(source, target) == [1, 2, 5, 6, 7, 5, 6, 7]
    assert linear_in_training(source, target) == [1, 2, 3, 4, 4, 5, 6, 7]
    assert linear(target, RATIO) == [2, 3, 5, 6, 8, 9, 11, 12]


# ---- train_ratio ---------------------------------------------------------------------------------


def test_train_ratio_is_of_source_to_target_tokens():
    """Neither padding nor evaluation counts; before training the ratio is 1."""
    model = built()
    assert model.decoder.train_ratio == 1
    loops.whole(model, PAIRS)
    assert model.decoder.train_ratio == 1
    assert count(model, PAIRS).decoder.train_ratio == RATIO
    assert count(model, PAIRS).decoder.train_ratio == RATIO


def test_train_ratio_is_an_average_over_documents():
    """Ratios 3 and 1 / 2 average to 7 / 4, however long the documents are."""
    model = count(built(), loops.batch([9, 10], [3, 20], left_pad=True))
    assert model.decoder.train_ratio == pytest.approx(1.75)
    assert count(model, PAIRS).decoder.train_ratio == pytest.approx((3 + 0.5 + 3 * 1.5) / 5)


@torch.no_grad()
def test_token_counts_of_older_checkpoints_are_converted():
    """The ratio of all their tokens counts as one document, and their alignments do not change."""
    model, documents = built("--alignment", "linear"), BATCHES["left-padded"]
    state = model.state_dict()
    assert state.pop("decoder.length_ratio.documents") == 0
    assert state.pop("decoder.length_ratio.total") == 0
    totals = {"decoder.source_tokens": torch.tensor(46), "decoder.target_tokens": torch.tensor(44)}
    model.load_state_dict({**state, **totals}, strict=True)
    assert model.decoder.train_ratio == pytest.approx(46 / 44, rel=1e-9)
    want = by_loops(model, documents, Window(alignment="linear"), Fraction(46, 44))
    loops.assert_close(loops.by_steps(model, documents), want)
    assert count(model.half(), PAIRS).decoder.train_ratio == pytest.approx((46 / 44 + 4.5) / 4)


# ---- where a model starts ------------------------------------------------------------------------


def stock(seed=3):
    sizes = ["--encoder-layers", "2", "--decoder-layers", "2"]
    return tiny.model(*tiny.MODEL, *sizes, seed=seed)


def started_from(transformer, *arguments):
    """Return a new model initialised with a sentence-level transformer."""
    sizes = ["--encoder-layers", "2", "--decoder-layers", "2"]
    model = tiny.as_built(*tiny.window(*sizes, *arguments))
    model.load_state_dict(transformer.state_dict(), strict=True)
    return model


@torch.no_grad()
@pytest.mark.parametrize("kind", ["sentence", "linear", "one-to-one"])
def test_a_window_over_all_is_the_transformer(kind):
    """With absolute positions and a window as long as the documents, for any alignment."""
    transformer, documents = stock(), BATCHES["left-padded"]
    model = started_from(transformer, *ABSOLUTE, "--attention-window", "35", "--alignment", kind)
    # fairseq's cross attention takes its softmax in single precision, that of the loops does not.
    for want, tolerance in (
        (loops.whole(transformer, documents), 2e-6),
        (loops.transformers(weights_of(transformer), documents), 1e-9),
    ):
        loops.assert_close(loops.whole(model, documents), want, tolerance)
        loops.assert_close(loops.by_steps(model, documents), want, tolerance)


@torch.no_grad()
def test_relative_positions_are_initialised_in_finetuning():
    """Weights of a transformer are loaded; relative positions are new and small at first."""
    transformer, documents = stock(), BATCHES["left-padded"]
    model = started_from(transformer)
    w = {**weights_of(model), **weights_of(transformer)}
    rows = zip(documents.sources, documents.targets)
    want = [logits(w, s, t, alignment("linear", s, t), Window()) for s, t in rows]
    loops.assert_close(loops.whole(model, documents), want)
    relative = [x for name, x in weights_of(model).items() if name.endswith("relative")]
    assert len(relative) == 4 and all(x.shape == (9, 8) for x in relative)
    together = torch.cat(relative)
    assert together.std() == pytest.approx(8**-0.5, rel=0.2)
    assert together.mean() == pytest.approx(0, abs=0.1)


def test_without_options():
    """Relative positions, 20 tokens on each side, sent-align: the best of table 4."""
    arguments = ["--arch", "window_attn_transformer", *tiny.MODEL[2:]]
    model, options = tiny.as_built(*arguments), Window(size=20)
    for documents in (LONG, BATCHES["short"]):
        want = by_loops(model, documents, options)
        loops.assert_close(loops.whole(model, documents), want)
        with torch.no_grad():
            want = by_loops(model, documents, options, Fraction(1))
            loops.assert_close(loops.by_steps(model, documents), want)
