"""Decoder of ``cache_rnn`` with a continuous translation cache (Tu et al. 2018)."""

from typing import List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.rnn.gru_decoder import GRUDecoder, GRUState, Recurrence
from fairseq_docmt.modules.rnn.gru_encoder import init_uniform
from fairseq_docmt.modules.search_state import stored_state
from fairseq_docmt.modules.stream import DocumentState, Stream
from fairseq_docmt.ops.precision import at_least_single
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
    """Gate of the cache, ``sigmoid(U s + V c + W m)`` (Tu et al. 2018, equation 8).

    It decides how much is read from the cache. This module holds only the projections;
    :class:`Lookup` computes the gate.

    Args:
        hidden_size: size of states s and of vectors m read from the cache.
        context_size: size of attention contexts c.
        outputs: size of the gate, either the size of states or 1.
    """

    def __init__(self, hidden_size: int, context_size: int, outputs: int):
        super().__init__()
        self.of_state = nn.Linear(hidden_size, outputs, bias=False)
        self.of_context = nn.Linear(context_size, outputs, bias=False)
        self.of_cache = nn.Linear(hidden_size, outputs, bias=False)
        init_uniform(self, hidden_size)


class Lookup(NamedTuple):
    """Contents of B caches with I slots, and precomputed products that all decoding steps reuse.

    An attention context is a weighted sum of source states, so its projection is the same sum of
    projected source states. These are computed once for all beams and steps. The same holds for
    vectors read from the cache, which are weighted sums of slot values.

    Attributes:
        words: (B, I) words in the slots.
        values: (B, I, d) values in the slots, of size d.
        likeness: (B, S, I) dot products of the S source states with the keys of the slots.
        gates: (B, S + I, g) source states, then slot values, projected for a gate of size g. With
            more than 2 S slots, only the projected source states, (B, S, g): it is then cheaper to
            project the vectors read from the cache at each step.
        filled: (B, 1, 1) 0 for an empty cache, otherwise 1.
    """

    words: Tensor
    values: Tensor
    likeness: Tensor
    gates: Tensor
    filled: Tensor

    @classmethod
    def of(cls, cache: Cache, sources: Tensor, gate: CacheGate) -> "Lookup":
        """Compute what all reads of the caches of a batch have in common.

        These are the dot products of slot keys and source states and, for the gate, projections of
        the source states. Slot values are projected too, unless there are more than 2 S slots.

        Args:
            cache: caches of B documents.
            sources: (B, S, context_size) source states.
            gate: gate of the cache.
        """
        # The number of queries of all beams and steps is typically at least this.
        gates = gate.of_context(sources)
        if cache.words.size(1) <= 2 * sources.size(1):
            gates = torch.cat([gates, gate.of_cache(cache.values)], dim=1)
        filled = cache.words.ne(NO_WORD).any(dim=1).to(gates.dtype)[:, None, None]
        return cls(cache.words, cache.values, compare(cache, sources), gates, filled)

    @property
    def has_slot_gates(self) -> bool:
        """Whether ``gates`` holds projections of slot values as well as of source states."""
        return self.gates.size(1) > self.likeness.size(1)

    def of_sentences(self, sentences: Tensor) -> "Lookup":
        """Return the lookup restricted to the n sentences with the indices ``sentences``, (n,)."""
        return Lookup(*(x.index_select(0, sentences) for x in self))

    def read(self, hidden: Tensor, attention: Tensor, gate: CacheGate):
        """Read the caches with attention contexts as queries, and compute the gate.

        An attention context is the sum of source states, weighted by ``attention``. It is compared
        with the keys of the slots (Tu et al. 2018, equation 5). The gate is that of equation 8.

        Args:
            hidden: (rows, T, d) decoder states.
            attention: (rows, T, S) attention weights of the S source states.
            gate: gate of the cache.

        Returns:
            (rows, T, I) probabilities of the I slots; (rows, T, d) vectors read from the cache; and
            (rows, T, g) gates of size g, which are 0 for an empty cache.
        """
        shape, documents = hidden.shape[:2], len(self.words)
        seen = attention.reshape(documents, -1, attention.size(-1))
        weights = probabilities(seen.to(self.likeness.dtype) @ self.likeness, self.words)
        weights = weights.to(hidden.dtype)
        recalled = weights @ self.values
        opening = gate.of_state(hidden).reshape(documents, len(seen[0]), -1)
        if self.has_slot_gates:
            seen = torch.cat([seen, weights], dim=-1)
        else:
            opening = opening + gate.of_cache(recalled)
        opening = opening.baddbmm(seen, self.gates)
        # An empty cache is not used.
        opened = (torch.sigmoid(opening) * self.filled).view(*shape, -1)
        return weights.view(*shape, -1), recalled.view(*shape, -1), opened


def _doc_state_of(cache: Cache) -> DocumentState:
    """Return the document state that passes a cache on to the next sentences.

    Each tensor of the cache is stored under its field name with the prefix ``cache.``.
    """
    return {PREFIX + name: value for name, value in cache._asdict().items()}


class CacheDecoder(GRUDecoder):
    """GRU decoder with a cache of earlier attention contexts, states and words.

    The recurrence is independent of the cache. With teacher forcing, the states of all sentences
    are therefore computed first. The sentences of each document are then written to its cache one
    after another. Finally all sentences read in parallel, each from the cache of its document as it
    was before this sentence.

    Args:
        *args: see :class:`~fairseq_docmt.modules.rnn.gru_decoder.GRUDecoder`.
        cache_size: number of slots.
        fusion: ``deep`` interpolates decoder states (Tu et al., 2018, equation 6), ``shallow``
            interpolates word probabilities (section 4.4).
        overwrite: whether a word that is already in the cache is written to its slot; otherwise
            every token gets a slot of its own.
        begin_of_document: index of ``<bod>``, which is not written to the cache; -1 for none.
    """

    def __init__(
        self, *args, cache_size: int, fusion: str, overwrite: bool, begin_of_document: int
    ):
        super().__init__(*args)
        self.cache_size, self.fusion, self.overwrite = cache_size, fusion, overwrite
        self.begin_of_document = begin_of_document
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
        """Return (rows, T, vocabulary) logits, or features if requested, and extra outputs.

        With shallow fusion the logits are log-probabilities. For whole sequences the extra outputs
        include ``doc_state``, the new document state.
        """
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        if features_only:
            return features, extra
        logits = self.output_layer(features)
        return self._mixed(logits, *extra["recall"]) if "recall" in extra else logits, extra

    def init_state(self, encoder_out: dict) -> GRUState:
        """Return the state before the first token, with the caches filled by earlier sentences.

        With deep fusion, the caches are left out if all of them are empty.
        """
        stream, state = encoder_out["stream"], super().init_state(encoder_out)
        cache = self._incoming_state(stream).emptied(stream.starts)
        # Shallow fusion returns log-probabilities also with an empty cache.
        if self.fusion == "deep" and cache.words.eq(NO_WORD).all():
            return state
        return state._replace(history=Lookup.of(cache, state.source.states, self.cache_gate))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """Compute (rows, T, E) features, where each sentence reads the cache of earlier sentences.

        E is the embedding size. With an incremental state, only the last token is read. Extra
        outputs include the attention weights ``attn`` [(rows, T, S)]; for whole sequences also
        ``doc_state``, the new document state.
        """
        if incremental_state is not None:
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state)
        num_rows = len(prev_output_tokens)
        state = self.repeated(super().init_state(encoder_out), num_rows)
        stream, length = encoder_out["stream"].for_rows(num_rows), prev_output_tokens.size(1)
        targets, groups = self._in_groups(prev_output_tokens, state, stream)
        parts = [self._forward_sequence(*group) for group in groups]
        hidden = targets.join([part.hidden for part in parts], length)
        contexts = targets.join([part.contexts for part in parts], length)
        found, cache = self._follow(stream, prev_output_tokens, hidden, contexts)
        caches = zip(*(targets.select(x) for x in found))
        read = [
            self._features(*part, self._lookup(Cache(*of_group), group_state))
            for part, of_group, (_, group_state) in zip(parts, caches, groups)
        ]
        extra = self._extra(parts, stream)
        extra["doc_state"] = _doc_state_of(cache)
        if self.fusion == "shallow":
            recall = zip(*(more["recall"] for _, more in read))
            extra["recall"] = [stream.at_loss(targets.join(x, length)) for x in recall]
        features = targets.join([features for features, _ in read], length)
        return stream.at_loss(features), extra

    def _lookup(self, cache: Cache, state: GRUState) -> Lookup:
        """Return the :class:`Lookup` with which each row reads its own cache.

        The source states of a sentence are repeated for its beams.
        """
        sources = state.source.states.repeat_interleave(state.beams, dim=0)
        return Lookup.of(cache, sources, self.cache_gate)

    def prefill(self, new_tokens, encoder_out, incremental_state):
        """Read (B, T) right-padded tokens in a single pass and update the incremental state.

        If the first call reads a single token, as in a search, the states and attention weights of
        all calls are recorded, so that :meth:`next_doc_state` need not compute them again. For the
        results, see :meth:`GRUDecoder.prefill`.
        """
        if stored_state(incremental_state) is None and new_tokens.size(1) == 1:
            trace = SearchTrace(len(encoder_out["stream"].starts))
            incremental_state[TRACE] = {"trace": trace}
            encoder_out["remembered"]["trace"] = trace
        features, extra = super().prefill(new_tokens, encoder_out, incremental_state)
        if TRACE in incremental_state:
            state = stored_state(incremental_state)
            top = state.hidden if self.upper is None else state.upper[-1]
            trace = incremental_state[TRACE]["trace"]
            # fairseq averages the attention of an ensemble in the tensor of its first model.
            trace.add(new_tokens[:, -1], top, extra["attn"][0][:, -1].clone())
        return features, extra

    def reorder_incremental_state(self, incremental_state, new_order):
        """Reorder the rows of the state and record the new order for :meth:`next_doc_state`."""
        super().reorder_incremental_state(incremental_state, new_order)
        if TRACE in incremental_state:
            incremental_state[TRACE]["trace"].reorder(new_order)

    def next_doc_state(self, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
        """Return the document state after finished translations, given as decoder input (rows, T).

        Decoder states are not computed again if the preceding search has recorded them.
        """
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
        """Return the caches and slot probabilities of consecutive sentences, for analysis.

        Args:
            prev_output_tokens: (K, T) decoder input of K consecutive sentences of one lane.
            encoder_out: encoder output of these sentences.

        Returns:
            The cache that each of the K sentences reads, and (K, T, I) probabilities of its I slots
            (equation 5).
        """
        _, hidden, contexts, _ = self._without_cache(prev_output_tokens, encoder_out)
        cache, _ = self._follow(encoder_out["stream"], prev_output_tokens, hidden, contexts)
        return cache, read(cache, contexts)[0]

    def _without_cache(self, tokens: Tensor, encoder_out: dict) -> Recurrence:
        """Compute decoder states and attention for (rows, T) tokens without reading the cache."""
        return self._forward_sequence(
            tokens, self.repeated(super().init_state(encoder_out), len(tokens))
        )

    def _incoming_state(self, stream: Stream) -> Cache:
        """Return the cache of each lane (document sequence) before the batch.

        Without a document state the caches are empty.
        """
        like = self.output_projection.weight
        if stream.doc_state is None:
            sizes = (self.cache_size, self.context_size, self.hidden_size)
            return Cache.empty(like, stream.lanes, *sizes)
        cache = Cache(*(stream.doc_state[PREFIX + name] for name in Cache._fields))
        # A checkpoint of training in another precision may have been resumed.
        return cache._replace(keys=cache.keys.to(like.dtype), values=cache.values.to(like.dtype))

    def _follow(
        self, stream: Stream, tokens: Tensor, hidden: Tensor, contexts: Tensor
    ) -> Tuple[Cache, Cache]:
        """Write the sentences of a batch to the caches one after another.

        The batch has K consecutive sentences of each of B lanes (document sequences).

        Args:
            stream: layout of the batch, and the document state before it.
            tokens: (rows, T) decoder input.
            hidden: (rows, T, d) decoder states, written as values.
            contexts: (rows, T, context_size) attention contexts, written as keys.

        Returns:
            The cache that each of the K * B rows reads, and the caches of the B lanes after the
            batch.
        """
        cache, found = self._incoming_state(stream), []
        # The output of a step is the next input.  The end of a sentence is not written, nor is
        # <bod>, which is not predicted.
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
        beams = len(hidden) // len(history.words)
        known = history.words.repeat_interleave(beams, dim=0).unsqueeze(1).expand_as(weights)
        return features, {"recall": (gate, weights, known)}

    @staticmethod
    def _mixed(logits: Tensor, gate: Tensor, weights: Tensor, known: Tensor) -> Tensor:
        """Mix the word probabilities of decoder and cache for shallow fusion.

        The result is the logarithm of ``(1 - gate) P(word) + gate P(slots with the word)``.
        Probabilities are computed in at least single precision.

        Args:
            logits: (rows, T, vocabulary) scores of the decoder.
            gate: (rows, T, 1) gate of the cache.
            weights: (rows, T, I) probabilities of the I slots.
            known: (rows, T, I) word index in each slot; negative for empty slots.
        """
        precise = at_least_single(logits.dtype)
        vocabulary = logits.to(precise).softmax(dim=-1)
        slots = torch.zeros_like(vocabulary)
        slots.scatter_add_(2, known.clamp(min=0), weights.to(slots.dtype))
        gate = gate.to(slots.dtype)
        mixed = (1 - gate) * vocabulary + gate * slots
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log().to(logits.dtype)


class _Step(NamedTuple):
    """Record of one step of beam search.

    Attributes:
        order: (rows,) former index of each row; None if the order is unchanged.
        tokens: (rows,) input tokens.
        values: (rows, ...) tensors to look up later, such as decoder states.
    """

    order: Optional[Tensor]
    tokens: Tensor
    values: Tuple[Tensor, ...]


class SearchTrace:
    """Record of the tensors computed in each step of a beam search.

    After the search, :meth:`find` collects the tensors of the finished hypotheses, although the
    rows have been reordered in every step. Tensors are stored by reference and only copied by
    :meth:`find`.

    Args:
        sentences: number of sentences B; the beams of a sentence are adjacent.
    """

    def __init__(self, sentences: int):
        self.sentences = sentences
        self._steps: List[_Step] = []
        self._order: Optional[Tensor] = None

    def reorder(self, order: Tensor) -> None:
        """Record a new order of rows after the last step.

        ``order`` (rows,) has the former index of each new row.
        """
        self._order = order if self._order is None else self._order[order]

    def add(self, tokens: Tensor, *values: Tensor) -> None:
        """Record the input tokens of a step, (rows,), and tensors computed in it, (rows, ...)."""
        # The generator changes its tensor of tokens in place.
        self._steps.append(_Step(self._order, tokens.clone(), values))
        self._order = None

    def find(self, tokens: Tensor, pad: int) -> Optional[List[Tensor]]:
        """Look up the tensors recorded at each token of one hypothesis per sentence.

        Args:
            tokens: (B, T) right-padded hypotheses.
            pad: padding index.

        Returns:
            A list with a (B, T, ...) tensor, zero at padding, for each of the ``values`` of
            :meth:`add`; None if the search did not visit all of these hypotheses.
        """
        if not self._steps or tokens.size(1) > len(self._steps):
            return None
        num_rows = len(self._steps[0].tokens)
        owners = torch.arange(self.sentences, device=tokens.device)
        owners = owners.repeat_interleave(num_rows // self.sentences)
        same = torch.ones_like(owners, dtype=torch.bool)
        places = []
        for step, wanted in zip(self._steps, tokens.unbind(1)):
            if step.order is not None:
                owners, same = owners[step.order], same[step.order]
            same = same & step.tokens.eq(wanted[owners])
            place = torch.full_like(wanted, -1)
            place[owners[same]] = same.nonzero().squeeze(1)
            places.append(place)
        places = torch.stack(places, dim=1)
        padding = tokens.eq(pad)
        if (places.lt(0) & ~padding).any():
            return None
        found = []
        for number in range(len(self._steps[0].values)):
            steps = (step.values[number] for step in self._steps)
            picked = [v[at] for v, at in zip(steps, places.clamp(min=0).unbind(1))]
            value = torch.stack(picked, dim=1)
            at = padding.view(*padding.shape, *[1] * (value.dim() - 2))
            found.append(value.masked_fill(at, 0.0))
        return found
