"""The memory transformer of Feng et al. (2022) as loops, one sentence after the other.

Written from the equations of the paper, and of Vaswani et al. (2017) for the transformer around
them.  What the paper leaves out is as in the authors' code: output attention is a sublayer of its
own, between self-attention and what follows it, with residual and norm; the first memory goes
through a norm.  Nothing here calls the package; parameters are read by their names.
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Tuple

import torch
from equations.loops import layer_norm as norm
from equations.loops import linear, softmax
from torch import Tensor

PAD = 1


def relu(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def mha(p, name: str, heads: int, query: Tensor, source: Tensor, causal: bool = False) -> Tensor:
    """``MHA(Q, K, V) = Concat(head_1, ..., head_n) W^o`` (section 3.2), K = V = source.

    Head by head; with ``causal`` query i sees the first i vectors and its own.
    """
    q = linear(p, f"{name}.q_proj", query)
    k, v = (linear(p, f"{name}.{part}_proj", source) for part in "kv")
    size, outputs = q.size(1) // heads, []
    for head in range(heads):
        at = slice(head * size, (head + 1) * size)
        scores = q[:, at] @ k[:, at].T / math.sqrt(size)
        if causal:
            scores = scores + torch.full_like(scores, -math.inf).triu(1)
        outputs.append(softmax(scores) @ v[:, at])
    return linear(p, f"{name}.out_proj", torch.cat(outputs, dim=1))


# ---- the memory ---------------------------------------------------------------------------------


def update_attention(p, name, heads: int, memory, states, activation=relu, drop=lambda x: x):
    """``M^{t+1} = UpdateAttention(M^t, h^t)`` (equations 2 to 4).

    Args:
        drop: dropout, which the paper does not speak of; as in the authors' code, where what is
            added to the attention is the dropped query too.
    """
    memory = drop(memory + p[f"{name}.positions"])  # (4)
    attended = mha(p, f"{name}.update_attention", heads, memory, states)
    memory = norm(p, f"{name}.update_norm", memory + drop(attended))  # (2)
    inner = drop(activation(linear(p, f"{name}.fc1", memory)))
    return norm(p, f"{name}.final_norm", memory + drop(linear(p, f"{name}.fc2", inner)))  # (3)


@dataclass
class Past:
    """Past sentences of one memory: M^t and h^t of each sentence t."""

    memories: List[Tensor] = field(default_factory=list)
    states: List[Tensor] = field(default_factory=list)

    def then(self, memory: Tensor, states: Tensor) -> "Past":
        return Past([*self.memories, memory], [*self.states, states])

    def cut(self, sentences: int) -> "Past":
        """Return the past at the start of a batch: the latest sentences, without gradients."""
        kept = max(sentences, 1)
        return Past(*([x.detach() for x in xs[-kept:]] for xs in (self.memories, self.states)))


Document = Dict[str, Past]


@dataclass
class MemoryTransformer:
    """The model.

    Attributes:
        p: its parameters.
        layers, heads, memory_layers: each of encoder and decoder.
        gradient_sentences: sentences back that gradients flow into by one memory; 0: all.
        exact: they end there whatever memories lie below, as the paper says; otherwise what a
            memory is updated from has read the memories below it, and reaches add up, as in the
            authors' code.
        pre_norm: norms stand before their sublayers (not in the paper).
        activation: in feed-forward networks, also of memories.
    """

    p: Dict[str, Tensor]
    layers: Tuple[int, int]
    heads: Tuple[int, int]
    memory_layers: Tuple[list, list]
    gradient_sentences: int = 1
    exact: bool = False
    pre_norm: bool = False
    activation: Callable[[Tensor], Tensor] = relu
    constant_memories: bool = False

    def read_memory(self, name: str, heads: int, past: Past) -> Tensor:
        """Return M^t given all previous sentences (equation 1).

        "The gradients are only back-propagated to the current and most recent sentences in each
        update step, and we stop the gradient for M before it is passed to the next step" (3.4).
        """
        if not past.states:  # "M is initialized trainable parameters before the first input"
            return norm(self.p, f"{name}.initial_norm", self.p[f"{name}.initial"])
        back = min(self.gradient_sentences or len(past.states), len(past.states))
        memory = past.memories[-back]
        if self.gradient_sentences:
            memory = memory.detach()
        for states in past.states[-back:]:
            memory = update_attention(self.p, name, heads, memory, states, self.activation)
        return memory

    def add_norm(self, name: str, x: Tensor, sublayer) -> Tensor:
        if self.pre_norm:
            return x + sublayer(norm(self.p, name, x))
        return norm(self.p, name, x + sublayer(x))

    def memory_sublayer(self, side: str, layer: int, heads: int, x, past: Document, now: Document):
        """Apply output attention (5) and store h^t for the next sentence."""
        name, key = f"{side}.memories.{layer}", f"{side}.{layer}"
        before = past.get(key, Past())
        memory = self.read_memory(name, heads, before)
        states = norm(self.p, f"{name}.output_norm", x) if self.pre_norm else x
        now[key] = before.then(memory, states)
        memory = memory.detach() if self.constant_memories else memory
        return self.add_norm(
            f"{name}.output_norm",
            x,
            lambda h: mha(self.p, f"{name}.output_attention", heads, h, memory),
        )

    def feed_forward(self, name: str, x: Tensor) -> Tensor:
        def network(y):
            inner = self.activation(linear(self.p, f"{name}.fc1", y))
            return linear(self.p, f"{name}.fc2", inner)

        return self.add_norm(f"{name}.final_layer_norm", x, network)

    def embed(self, side: str, tokens: Tensor) -> Tensor:
        table = self.p[f"{side}.embed_tokens.weight"]
        # fairseq's positions begin at the index of padding + 1.
        places = [PAD + 1 + i for i in range(len(tokens))]
        learned = self.p.get(f"{side}.embed_positions.weight")
        positions = self.p[f"{side}.embed_positions.weights"] if learned is None else learned
        return table[tokens] * math.sqrt(table.size(1)) + positions[places]

    def encode(self, source: Tensor, past: Document, now: Document) -> Tensor:
        x, heads = self.embed("encoder", source), self.heads[0]
        for layer in range(self.layers[0]):
            name = f"encoder.layers.{layer}"
            x = self.add_norm(
                f"{name}.self_attn_layer_norm",
                x,
                lambda y, name=name: mha(self.p, f"{name}.self_attn", heads, y, y),
            )
            if layer in self.memory_layers[0]:
                x = self.memory_sublayer("encoder", layer, heads, x, past, now)
            x = self.feed_forward(name, x)
        return norm(self.p, "encoder.layer_norm", x) if self.pre_norm else x

    def decode(self, previous: Tensor, source: Tensor, past: Document, now: Document) -> Tensor:
        x, heads = self.embed("decoder", previous), self.heads[1]
        for layer in range(self.layers[1]):
            name = f"decoder.layers.{layer}"
            x = self.add_norm(
                f"{name}.self_attn_layer_norm",
                x,
                lambda y, name=name: mha(self.p, f"{name}.self_attn", heads, y, y, causal=True),
            )
            if layer in self.memory_layers[1]:
                x = self.memory_sublayer("decoder", layer, heads, x, past, now)
            x = self.add_norm(
                f"{name}.encoder_attn_layer_norm",
                x,
                lambda y, name=name: mha(self.p, f"{name}.encoder_attn", heads, y, source),
            )
            x = self.feed_forward(name, x)
        x = norm(self.p, "decoder.layer_norm", x) if self.pre_norm else x
        return linear(self.p, "decoder.output_projection", x)

    def sentence(self, source, previous, past: Document) -> Tuple[Tensor, Document]:
        """Return the (T, V) logits of a sentence and the past of the next sentence.

        Args:
            source: tokens with ``</s>``.
            previous: what the decoder reads: ``</s>`` and the translation without its own.
            past: of the document; empty at its beginning.
        """
        logits, now = self._read(source, previous, past)
        if self.exact:
            # The next sentence attends to the same states, with memories as constants.
            again = dataclasses.replace(self, constant_memories=True)
            _, now = again._read(source, previous, past)
        return logits, now

    def _read(self, source, previous, past: Document) -> Tuple[Tensor, Document]:
        now: Document = {}
        encoded = self.encode(source, past, now)
        return self.decode(previous, encoded, past, now), now

    def cut(self, past: Document) -> Document:
        """Return the past at the start of a batch, without gradients."""
        return {key: x.cut(self.gradient_sentences) for key, x in past.items()}
