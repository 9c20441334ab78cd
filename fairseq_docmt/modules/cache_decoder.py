"""Decoder of ``cache_rnn``: the translation history in a continuous cache (Tu et al. 2018)."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.data.carry import Carry
from fairseq_docmt.modules.rnnsearch import GRUDecoder, GRUState, init_uniform
from fairseq_docmt.modules.stream import Stream
from fairseq_docmt.ops.translation_cache import NO_WORD, Cache, read, write

FUSIONS = ("deep", "shallow")
PREFIX = "cache."


class CacheGate(nn.Module):
    """How much of what the cache holds is used (equation 8): ``sigmoid(U s + V c + W m)``.

    Args:
        hidden_size: size of states s and of what is read, m.
        context_size: size of attention contexts c.
        outputs: size of the gate: that of states, or 1.
    """

    def __init__(self, hidden_size: int, context_size: int, outputs: int):
        super().__init__()
        self.of_state = nn.Linear(hidden_size, outputs, bias=False)
        self.of_context = nn.Linear(context_size, outputs, bias=False)
        self.of_cache = nn.Linear(hidden_size, outputs, bias=False)
        init_uniform(self, hidden_size)

    def forward(self, states: Tensor, contexts: Tensor, recalled: Tensor) -> Tensor:
        """(rows, T, outputs) gates."""
        logits = self.of_state(states) + self.of_context(contexts) + self.of_cache(recalled)
        return torch.sigmoid(logits)


def _carry_of(cache: Cache) -> Carry:
    return {PREFIX + name: value for name, value in cache._asdict().items()}


class CacheDecoder(GRUDecoder):
    """GRU decoder that looks up what it did before in similar contexts.

    The recurrence does not know of the cache, so that for references all states are there before
    the first sentence is written; then the sentences of each lane are written one after the other,
    and read all at once.

    Args:
        *args: as in the base class.
        cache_size: slots.
        fusion: ``deep`` mixes decoder states (equation 6), ``shallow`` probabilities of words
            (section 4.4).
        overwrite: whether a known word goes to its slot.
    """

    def __init__(self, *args, cache_size: int, fusion: str, overwrite: bool):
        super().__init__(*args)
        self.cache_size, self.fusion, self.overwrite = cache_size, fusion, overwrite
        self.hidden_size = self.attending.hidden_dim
        self.context_size = self.attending.key_proj.in_features
        outputs = self.hidden_size if fusion == "deep" else 1
        self.cache_gate = CacheGate(self.hidden_size, self.context_size, outputs)

    def forward(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        features_only=False,
        **_,
    ):
        """As in the base class; the extra outputs of whole sequences hold ``carry``."""
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        if features_only:
            return features, extra
        logits = self.output_layer(features)
        return self._mixed(logits, *extra["recall"]) if "recall" in extra else logits, extra

    def begin(self, encoder_out: dict) -> GRUState:
        """State before the first token, with the caches that its sentences find."""
        stream = encoder_out["stream"]
        cache = self._carried(stream).emptied(stream.starts)
        return super().begin(encoder_out)._replace(history=cache)

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """As in the base class; sentences of one lane find what those before them have written."""
        if incremental_state is not None:
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state)
        words, hidden, contexts, attention = self._without_cache(prev_output_tokens, encoder_out)
        stream = encoder_out["stream"].for_rows(len(prev_output_tokens))
        history, cache = self._follow(stream, prev_output_tokens, hidden, contexts)
        features, extra = self._features(words, hidden, contexts, history)
        return features, {"attn": [attention], "carry": _carry_of(cache), **extra}

    def carry_on(self, prev_output_tokens: Tensor, encoder_out: dict) -> Carry:
        """What is carried on after (rows, T) tokens, without the output that they have."""
        _, hidden, contexts, _ = self._without_cache(prev_output_tokens, encoder_out)
        _, cache = self._follow(encoder_out["stream"], prev_output_tokens, hidden, contexts)
        return _carry_of(cache)

    def matching(self, prev_output_tokens: Tensor, encoder_out: dict) -> Tuple[Cache, Tensor]:
        """What the tokens of a document find in the cache; for analysis.

        Args:
            prev_output_tokens: (K, T) sentences that follow each other in one lane.

        Returns:
            cache that each sentence finds, its rows the K sentences, and (K, T, I) probabilities
            of its slots (equation 5).
        """
        _, hidden, contexts, _ = self._without_cache(prev_output_tokens, encoder_out)
        cache, _ = self._follow(encoder_out["stream"], prev_output_tokens, hidden, contexts)
        return cache, read(cache, contexts)[0]

    def _without_cache(self, tokens: Tensor, encoder_out: dict):
        """Embeddings, states, contexts and attention of (rows, T) tokens; no cache is in them."""
        return self._all_tokens(tokens, self._for_rows(super().begin(encoder_out), len(tokens)))

    def _carried(self, stream: Stream) -> Cache:
        """Caches of the lanes of a stream."""
        if stream.carry is None:
            like = self.output_projection.weight
            sizes = (self.cache_size, self.context_size, self.hidden_size)
            return Cache.empty(like, stream.lanes, *sizes)
        return Cache(*(stream.carry[PREFIX + name] for name in Cache._fields))

    def _follow(
        self, stream: Stream, tokens: Tensor, hidden: Tensor, contexts: Tensor
    ) -> Tuple[Cache, Cache]:
        """The cache that each row finds, with rows K * B, and what the B lanes carry on."""
        cache, found = self._carried(stream), []
        # What a step produces is the next input; what ends a sentence is not written.
        produced = F.pad(tokens[:, 1:], (0, 1), value=self.padding_idx)
        produced = produced.masked_fill(produced.eq(self.padding_idx), NO_WORD)
        rows = (stream.starts, contexts.detach(), hidden.detach(), produced)
        for starts, *sentence in zip(*(x.unflatten(0, (-1, stream.lanes)) for x in rows)):
            cache = cache.emptied(starts)
            found.append(cache)
            cache = write(cache, *sentence, self.overwrite)
        return Cache(*(torch.cat(parts) for parts in zip(*found))), cache

    def _features(self, words, hidden, contexts, history: Optional[Cache]):
        if history is None:
            return super()._features(words, hidden, contexts, None)
        documents = len(history.words)
        queries = contexts.unflatten(0, (documents, -1)).flatten(1, 2)
        weights, recalled = read(history, queries)
        recalled = recalled.view(*hidden.shape)
        gate = self.cache_gate(hidden, contexts, recalled)
        # Where nothing is in the cache, nothing is taken from it.
        filled = history.words.ne(NO_WORD).any(dim=1).to(gate.dtype)
        gate = gate * filled.repeat_interleave(len(hidden) // documents)[:, None, None]
        if self.fusion == "deep":
            mixed = hidden + gate * (recalled - hidden)
            return super()._features(words, mixed, contexts, None)
        features, _ = super()._features(words, hidden, contexts, None)
        known = history.words.unsqueeze(1).expand_as(weights)
        shape = (*hidden.shape[:2], -1)
        return features, {"recall": (gate, weights.reshape(shape), known.reshape(shape))}

    @staticmethod
    def _mixed(logits: Tensor, gate: Tensor, weights: Tensor, known: Tensor) -> Tensor:
        """Logarithms of ``(1 - gate) P(word) + gate P(slots that hold the word)``."""
        vocabulary = logits.float().softmax(dim=-1)
        slots = torch.zeros_like(vocabulary)
        slots.scatter_add_(2, known.clamp(min=0), weights.to(slots.dtype))
        gate = gate.to(slots.dtype)
        mixed = (1 - gate) * vocabulary + gate * slots
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log().to(logits.dtype)
