"""The transformer of Vaswani et al. (2017) in plain loops, and how a model is compared with loops.

One document is computed at a time, without padding: tokens are a list of numbers, a sequence is a
(T, C) tensor.  Parameters are read from a model by name; nothing of ``fairseq_docmt`` is called.
An architecture gives its own attention as a function from the parameters of an attention and its
(T, C) input to its (T, C) output.
"""

import itertools
import math
from typing import Callable, Dict, List, NamedTuple, Sequence

import pytest
import tiny
import torch
from fairseq.data.data_utils import collate_tokens
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor

DICTIONARY = tiny.dictionary()
PAD, EOS, SEP = DICTIONARY.pad(), DICTIONARY.eos(), DICTIONARY.index("<sep>")
HEADS = 2
WIDER_ENCODER = ["--encoder-embed-dim", "24"]
Weights = Dict[str, Tensor]

# ---- parameters ----------------------------------------------------------------------------------


def weights_of(model) -> Weights:
    """Return parameters and buffers by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def inside(w: Weights, prefix: str) -> Weights:
    """Return the entries whose names begin with ``prefix.``, without the prefix."""
    return {name[len(prefix) + 1 :]: x for name, x in w.items() if name.startswith(prefix + ".")}


def layers(w: Weights, side: str) -> List[Weights]:
    """Return the parameters of the layers of ``encoder`` or ``decoder``."""
    numbers = sorted({int(name.split(".")[0]) for name in inside(w, f"{side}.layers")})
    return [inside(w, f"{side}.layers.{number}") for number in numbers]


# ---- the transformer -----------------------------------------------------------------------------


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    """``x W^T``, with ``+ b`` where there is a bias."""
    product = x @ w[f"{name}.weight"].t()
    return product + w[f"{name}.bias"] if f"{name}.bias" in w else product


def layer_norm(w: Weights, name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred / (variance + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def softmax(logits: Tensor) -> Tensor:
    """Of a vector, or of each row."""
    powers = (logits - logits.max(dim=-1, keepdim=True)[0].detach()).exp()
    return powers / powers.sum(dim=-1, keepdim=True)


def heads(x: Tensor) -> List[Tensor]:
    """Split (T, C) into a (T, C / H) part for each head."""
    size = x.size(-1) // HEADS
    return [x[..., h * size : (h + 1) * size] for h in range(HEADS)]


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Callable, position: Callable = None) -> Tensor:
    """Scaled dot-product attention of one head (Vaswani et al. 2017, equation 1).

    Args:
        q, k, v: (I, d), (J, d), (J, d).
        seen: function from a query i to the keys j that it sees.
        position: function from i and those keys to vectors (J', d) that are added to them.
    """
    outputs = []
    for i, query in enumerate(q):
        columns = list(seen(i))
        keys = k[columns]
        if position is not None:
            keys = keys + position(i, columns)
        weights = softmax(keys @ query / math.sqrt(len(query)))
        outputs.append(weights @ v[columns])
    return torch.stack(outputs)


def multi_head(w: Weights, x: Tensor, source: Tensor, seen: Callable, position=None) -> Tensor:
    """Multi-head attention of ``x`` over ``source`` (Vaswani et al. 2017, section 3.2.2)."""
    q, k, v = linear(w, "q_proj", x), linear(w, "k_proj", source), linear(w, "v_proj", source)
    parts = [attend(*head, seen, position) for head in zip(heads(q), heads(k), heads(v))]
    return linear(w, "out_proj", torch.cat(parts, dim=-1))


def self_attention(w: Weights, x: Tensor) -> Tensor:
    """Every token sees every token."""
    return multi_head(w, x, x, lambda i: range(len(x)))


def causal_attention(w: Weights, x: Tensor) -> Tensor:
    """Every token sees itself and those before it."""
    return multi_head(w, x, x, lambda i: range(i + 1))


def cross_attention(w: Weights, x: Tensor, source: Tensor) -> Tensor:
    """Every target token sees every source token."""
    return multi_head(w, x, source, lambda i: range(len(source)))


def feed_forward(w: Weights, x: Tensor) -> Tensor:
    return linear(w, "fc2", linear(w, "fc1", x).clamp(min=0))


def embed(w: Weights, side: str, tokens: Sequence[int], positions: bool = True) -> Tensor:
    """Scaled embeddings plus sinusoidal positions, the first of which follows that of padding."""
    table = w[f"{side}.embed_tokens.weight"]
    x = math.sqrt(table.size(1)) * table[list(tokens)]
    if not positions:
        return x
    # fairseq computes its table in single precision.
    sinusoids = SinusoidalPositionalEmbedding.get_embedding(len(x) + PAD + 1, x.size(1), PAD)
    return x + sinusoids[PAD + 1 :].to(x)


def residual(w: Weights, norm: str, x: Tensor, function: Callable, norm_first: bool) -> Tensor:
    if norm_first:
        return x + function(layer_norm(w, norm, x))
    return layer_norm(w, norm, x + function(x))


def sublayer(w: Weights, name: str, x: Tensor, attention: Callable, norm_first: bool) -> Tensor:
    """The attention of a layer within its residual."""
    own = inside(w, name)
    return residual(w, f"{name}_layer_norm", x, lambda y: attention(own, y), norm_first)


def network(w: Weights, x: Tensor, norm_first: bool) -> Tensor:
    """The feed-forward network of a layer within its residual."""
    return residual(w, "final_layer_norm", x, lambda y: feed_forward(w, y), norm_first)


def encoder(w: Weights, x: Tensor, attention: Callable = self_attention, norm_first=False):
    """(S, C) encoder output for embeddings (S, C)."""
    for layer in layers(w, "encoder"):
        x = sublayer(layer, "self_attn", x, attention, norm_first)
        x = network(layer, x, norm_first)
    return layer_norm(w, "encoder.layer_norm", x) if norm_first else x


def decoder(
    w: Weights, x: Tensor, source: Tensor, causal: Callable, cross: Callable, norm_first=False
):
    """(T, V) logits for embeddings (T, C) and encoder output (S, C)."""
    for layer in layers(w, "decoder"):
        x = sublayer(layer, "self_attn", x, causal, norm_first)
        x = sublayer(layer, "encoder_attn", x, lambda w, y: cross(w, y, source), norm_first)
        x = network(layer, x, norm_first)
    if norm_first:
        x = layer_norm(w, "decoder.layer_norm", x)
    return linear(w, "decoder.output_projection", x)


def transformer(w: Weights, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """(T, V) logits of the stock transformer for a source and a decoder input."""
    encoded = encoder(w, embed(w, "encoder", source))
    return decoder(w, embed(w, "decoder", target), encoded, causal_attention, cross_attention)


def transformers(w: Weights, documents: "Batch") -> List[Tensor]:
    """Logits of each row."""
    return [transformer(w, s, t) for s, t in zip(documents.sources, documents.targets)]


# ---- documents -----------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Documents of several rows: sources end with ``</s>``, decoder inputs begin with it."""

    sources: List[List[int]]
    targets: List[List[int]]
    left_pad: bool

    def source_batch(self) -> dict:
        """Return the arguments of an encoder."""
        tokens = collate_tokens(
            [torch.tensor(s) for s in self.sources], PAD, left_pad=self.left_pad
        )
        return {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)}

    def target_batch(self) -> Tensor:
        return collate_tokens([torch.tensor(t) for t in self.targets], PAD)

    def rows(self, logits: Tensor) -> List[Tensor]:
        """Split (B, T, V) logits into the (T', V) logits of the tokens of each row."""
        return [row[: len(target)] for row, target in zip(logits, self.targets)]


def document(length: int, generator: torch.Generator) -> List[int]:
    """Return random words with separators at about every fourth position, some adjacent."""
    tokens = torch.randint(4, SEP, (length,), generator=generator)
    tokens[torch.rand(length, generator=generator) < 0.27] = SEP
    return tokens.tolist()


def batch(sources: Sequence[int], targets: Sequence[int], left_pad: bool, seed: int = 0) -> Batch:
    """Documents of the given numbers of tokens."""
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        [[*document(length - 1, generator), EOS] for length in sources],
        [[EOS, *document(length - 1, generator)] for length in targets],
        left_pad,
    )


#: several rows of odd lengths each
BATCHES = {
    "short": batch([7, 1, 5], [5, 7, 1], left_pad=True),
    "right-padded": batch([33, 9, 1], [7, 33, 1], left_pad=False, seed=1),
    "left-padded": batch([9, 33, 20], [35, 7, 12], left_pad=True, seed=2),
}
#: longer than the chunks, blocks and lists of recent tokens that attention is computed in
LONG = batch([131, 9], [20, 133], left_pad=True, seed=3)


def each(variants: Dict[str, tuple], *long: str):
    """Parametrise a test by variants and batches.

    Each variant has short sentences, and longer ones that are padded on the left or, for every
    second variant, on the right; variants in ``long`` have ``LONG`` as well.
    """
    cases = []
    for (name, variant), side in zip(variants.items(), itertools.cycle(("left", "right"))):
        kinds = ["short", f"{side}-padded", *(["long"] if name in long else [])]
        for kind in kinds:
            documents = {**BATCHES, "long": LONG}[kind]
            cases.append(pytest.param(*variant, documents, id=f"{name}-{kind}"))
    return pytest.mark.parametrize("options, arguments, documents", cases)


# ---- comparison ----------------------------------------------------------------------------------


def whole(model, documents: Batch) -> List[Tensor]:
    """Return the logits of each row with teacher forcing."""
    inputs = {**documents.source_batch(), "prev_output_tokens": documents.target_batch()}
    return documents.rows(model(**inputs)[0])


@torch.no_grad()
def by_steps(model, documents: Batch) -> List[Tensor]:
    """Return the logits of each row with incremental decoding."""
    encoded, tokens, state = model.encoder(**documents.source_batch()), documents.target_batch(), {}
    steps = [
        model.decoder(tokens[:, : t + 1], encoder_out=encoded, incremental_state=state)[0]
        for t in range(tokens.size(1))
    ]
    return documents.rows(torch.cat(steps, dim=1))


@torch.no_grad()
def by_prefix(model, documents: Batch) -> List[Tensor]:
    """Return the logits of each row: two ragged parts read in parallel, then one step."""
    encoded, state = model.encoder(**documents.source_batch()), {}
    cuts = [(len(t) // 3 + 1, max(len(t) - 1, 1)) for t in documents.targets]
    parts = [[], [], []]
    for target, (first, second) in zip(documents.targets, cuts):
        second = max(first, second)
        for part, tokens in zip(parts, (target[:first], target[first:second], target[second:])):
            part.append(torch.tensor(tokens, dtype=torch.long))
    outputs: List[List[Tensor]] = [[] for _ in documents.targets]
    for number, part in enumerate(parts):
        tokens = collate_tokens(part, PAD, pad_to_length=1)
        if number < 2:
            features, _ = model.decoder.prefill(tokens, encoded, state)
            logits = model.decoder.output_layer(features)
        else:
            logits, _ = model.decoder(tokens, encoder_out=encoded, incremental_state=state)
        for row, new, output in zip(logits, part, outputs):
            output.append(row[: len(new)])
    return [torch.cat(output) for output in outputs]


def assert_close(got: Sequence[Tensor], want: Sequence[Tensor], tolerance: float = 1e-9) -> None:
    """Compare rows up to a tolerance, absolute below 1 and relative above."""
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)


def assert_same_gradients(model, got, want, new: Sequence[str], tolerance: float = 1e-9) -> None:
    """Compare the gradients of all parameters for a random sum of logits.

    Args:
        model: owner of the parameters.
        got, want: logits of each row, of the model and of the loops.
        new: parts of the names of parameters that must have a gradient.
        tolerance: relative to the largest gradient of a parameter, if above 1.
    """
    names, parameters = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad))
    found = []
    for rows in (got, want):
        generator = torch.Generator().manual_seed(7)
        loss = sum(
            (row * torch.randn(row.shape, generator=generator, dtype=row.dtype)).sum()
            for row in rows
        )
        found.append(torch.autograd.grad(loss, parameters, allow_unused=True))
    for name, parameter, ours, theirs in zip(names, parameters, *found):
        ours = torch.zeros_like(parameter) if ours is None else ours
        theirs = torch.zeros_like(parameter) if theirs is None else theirs
        if any(part in name for part in new):
            assert theirs.any(), f"{name} has no gradient"
        bound = tolerance * max(1.0, theirs.abs().max().item())
        assert (ours - theirs).abs().max() <= bound, name
