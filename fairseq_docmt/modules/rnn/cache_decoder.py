"""Decoder of ``cache_rnn``: the translation history in a continuous cache (Tu et al. 2018)."""

from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.data.symbols import begin_index
from fairseq_docmt.modules.rnn.rnnsearch import KEY, GRUDecoder, GRUState, init_uniform
from fairseq_docmt.modules.rnn.search_trace import SearchTrace
from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.stream import Stream
from fairseq_docmt.ops.translation_cache import (
    NO_WORD,
    Cache,
    compare,
    probabilities,
    read,
    write,
)

FUSIONS = ("deep", "shallow")
PREFIX = "cache."
TRACE = "trace of the search"


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


class Lookup(NamedTuple):
    """Caches as the rows of their sentences read them, with all that does not wait for a target.

    A context is a sum of source states weighted by attention, so what is computed of contexts is
    the same sum of what is computed of source states, once for all beams and steps.  The values
    that are read are such a sum too.

    Attributes:
        words: (B, I) in the slots. values: (B, I, d).
        likeness: (B, S, I) products of source states and keys.
        gates: (B, S + I, g) ``V h`` and ``W v``; without the latter (B, S, g) for many slots,
            where ``W m`` is less to compute.
        filled: (B, 1, 1) one, or zero where a cache is empty.
    """

    words: Tensor
    values: Tensor
    likeness: Tensor
    gates: Tensor
    filled: Tensor

    @classmethod
    def of(cls, cache: Cache, sources: Tensor, gate: CacheGate) -> "Lookup":
        """Of caches and source states (B, S, l)."""
        # Beams together read about as often as this, or more.
        gates = gate.of_context(sources)
        if cache.words.size(1) <= 2 * sources.size(1):
            gates = torch.cat([gates, gate.of_cache(cache.values)], dim=1)
        filled = cache.words.ne(NO_WORD).any(dim=1).to(gates.dtype)[:, None, None]
        return cls(cache.words, cache.values, compare(cache, sources), gates, filled)

    def of_rows(self, rows: Tensor) -> "Lookup":
        """Of some sentences, by index."""
        return Lookup(*(x.index_select(0, rows) for x in self))

    def read(self, hidden: Tensor, attention: Tensor, gate: CacheGate):
        """Match with the slots (equation 5), read them, and open the gate (equation 8).

        Args:
            hidden: (rows, T, d) states, and attention: (rows, T, S), of as many rows each.

        Returns:
            (rows, T, I) probabilities of slots, (rows, T, d) values, (rows, T, g) gates.
        """
        shape, documents = hidden.shape[:2], len(self.words)
        seen = attention.reshape(documents, -1, attention.size(-1))
        weights = probabilities(seen.to(self.likeness.dtype) @ self.likeness, self.words)
        weights = weights.to(hidden.dtype)
        recalled = weights @ self.values
        opening = gate.of_state(hidden).reshape(documents, len(seen[0]), -1)
        if self.gates.size(1) > seen.size(-1):
            seen = torch.cat([seen, weights], dim=-1)
        else:
            opening = opening + gate.of_cache(recalled)
        opening = opening.baddbmm(seen, self.gates)
        # Where nothing is in the cache, nothing is taken from it.
        opened = (torch.sigmoid(opening) * self.filled).view(*shape, -1)
        return weights.view(*shape, -1), recalled.view(*shape, -1), opened


def _doc_state_of(cache: Cache) -> DocumentState:
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
        self.begin_of_document = begin_index(self.dictionary)
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
        """As in the base class; the extra outputs of whole sequences hold ``doc_state``."""
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        if features_only:
            return features, extra
        logits = self.output_layer(features)
        return self._mixed(logits, *extra["recall"]) if "recall" in extra else logits, extra

    def init_state(self, encoder_out: dict) -> GRUState:
        """State before the first token, with the caches that its sentences find."""
        stream, state = encoder_out["stream"], super().init_state(encoder_out)
        cache = self._incoming_state(stream).emptied(stream.starts)
        # Shallow fusion mixes probabilities, and gives logarithms of these even so.
        if self.fusion == "deep" and cache.words.eq(NO_WORD).all():
            return state
        return state._replace(history=Lookup.of(cache, state.source.states, self.cache_gate))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """As in the base class; sentences of one lane find what those before them have written."""
        if incremental_state is not None:
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state)
        rows = len(prev_output_tokens)
        state = self._for_rows(super().init_state(encoder_out), rows)
        words, hidden, contexts, attention = self._forward_sequence(prev_output_tokens, state)
        stream = encoder_out["stream"].for_rows(rows)
        found, cache = self._follow(stream, prev_output_tokens, hidden, contexts)
        # Beams without a state have a cache each.
        sources = state.source.states.repeat_interleave(state.beams, dim=0)
        history = Lookup.of(found, sources, self.cache_gate)
        features, extra = self._features(words, hidden, contexts, attention, history)
        return features, {"attn": [attention], "doc_state": _doc_state_of(cache), **extra}

    def prefill(self, new_tokens, encoder_out, incremental_state):
        """As in the base class; a search by single steps is remembered for :meth:`carry_on`."""
        if KEY not in incremental_state and new_tokens.size(1) == 1:
            trace = SearchTrace(len(encoder_out["stream"].starts))
            incremental_state[TRACE] = {"trace": trace}
            encoder_out["remembered"]["trace"] = trace
        features, extra = super().prefill(new_tokens, encoder_out, incremental_state)
        if TRACE in incremental_state:
            state = incremental_state[KEY]["state"]
            top = state.hidden if self.upper is None else state.upper[-1]
            trace = incremental_state[TRACE]["trace"]
            trace.add(new_tokens[:, -1], top, extra["attn"][0][:, -1])
        return features, extra

    def reorder_incremental_state(self, incremental_state, new_order):
        """New order of the rows; called by the generator after each step."""
        super().reorder_incremental_state(incremental_state, new_order)
        if TRACE in incremental_state:
            incremental_state[TRACE]["trace"].reorder(new_order)

    def next_doc_state(self, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
        """What is carried on after (rows, T) tokens; what a search has read is not read again."""
        trace = encoder_out["remembered"].get("trace")
        found = trace and trace.find(prev_output_tokens, self.padding_idx)
        if found:
            hidden, attention = found
            contexts = attention @ super().init_state(encoder_out).source.states
        else:
            _, hidden, contexts, _ = self._without_cache(prev_output_tokens, encoder_out)
        _, cache = self._follow(encoder_out["stream"], prev_output_tokens, hidden, contexts)
        return _doc_state_of(cache)

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
        return self._forward_sequence(
            tokens, self._for_rows(super().init_state(encoder_out), len(tokens))
        )

    def _incoming_state(self, stream: Stream) -> Cache:
        """Caches of the lanes of a stream."""
        if stream.doc_state is None:
            like = self.output_projection.weight
            sizes = (self.cache_size, self.context_size, self.hidden_size)
            return Cache.empty(like, stream.lanes, *sizes)
        return Cache(*(stream.doc_state[PREFIX + name] for name in Cache._fields))

    def _follow(
        self, stream: Stream, tokens: Tensor, hidden: Tensor, contexts: Tensor
    ) -> Tuple[Cache, Cache]:
        """The cache that each row finds, with rows K * B, and what the B lanes carry on."""
        cache, found = self._incoming_state(stream), []
        # What a step produces is the next input; what ends a sentence is not written, nor is <bod>,
        # which is given and not produced.
        produced = F.pad(tokens[:, 1:], (0, 1), value=self.padding_idx)
        unwritten = produced.eq(self.padding_idx) | produced.eq(self.begin_of_document)
        produced = produced.masked_fill(unwritten, NO_WORD)
        rows = (stream.starts, contexts.detach(), hidden.detach(), produced)
        for starts, *sentence in zip(*(x.unflatten(0, (-1, stream.lanes)) for x in rows)):
            cache = cache.emptied(starts)
            found.append(cache)
            cache = write(cache, *sentence, self.overwrite)
        return Cache(*(torch.cat(parts) for parts in zip(*found))), cache

    def _features(self, words, hidden, contexts, attention, history: Optional[Lookup]):
        if history is None:
            return super()._features(words, hidden, contexts, attention, None)
        weights, recalled, gate = history.read(hidden, attention, self.cache_gate)
        if self.fusion == "deep":
            mixed = torch.lerp(hidden, recalled.to(hidden), gate.to(hidden))
            return super()._features(words, mixed, contexts, attention, None)
        features, _ = super()._features(words, hidden, contexts, attention, None)
        rows = len(hidden) // len(history.words)
        known = history.words.repeat_interleave(rows, dim=0).unsqueeze(1).expand_as(weights)
        return features, {"recall": (gate, weights, known)}

    @staticmethod
    def _mixed(logits: Tensor, gate: Tensor, weights: Tensor, known: Tensor) -> Tensor:
        """Logarithms of ``(1 - gate) P(word) + gate P(slots that hold the word)``."""
        vocabulary = logits.float().softmax(dim=-1)
        slots = torch.zeros_like(vocabulary)
        slots.scatter_add_(2, known.clamp(min=0), weights.to(slots.dtype))
        gate = gate.to(slots.dtype)
        mixed = (1 - gate) * vocabulary + gate * slots
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log().to(logits.dtype)
