"""Encoders and decoders of ``context_rnn``, a recurrent model that reads previous sentences."""

from itertools import repeat
from typing import List, NamedTuple, Optional, Tuple, Type

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.previous_sentences import PreviousSentences
from fairseq_docmt.modules.rnn.gru_decoder import (
    AttendedStates,
    AttentiveGRU,
    GRUDecoder,
    GRUState,
    PerSentence,
)
from fairseq_docmt.modules.rnn.gru_encoder import GRUEncoder, init_uniform
from fairseq_docmt.modules.stream import Stream
from fairseq_docmt.ops.attentive_gru import gru_step


class SourceContext(NamedTuple):
    """Representation of the sentences before each of B source sentences.

    Attributes:
        states: (B, W, l) states of size l of the W words of the previous sentence, or (B, 1, l) a
            single summary of the previous sentences.
        padding: (B, W or 1) True at padding, and throughout for sentences without previous
            sentences.
    """

    states: Tensor
    padding: Tensor

    def of_sentences(self, sentences: Tensor) -> "SourceContext":
        """Select the context of the sentences with the indices ``sentences``, (n,)."""
        return SourceContext(*(x.index_select(0, sentences) for x in self))


class ContextualGRU(AttentiveGRU):
    """Base class of GRUs with attention whose gates also depend on previous sentences.

    Subclasses define :meth:`look_back`, which computes a context vector in each step. A projection
    of this vector is added to the gates.

    Args:
        input_dim, source_dim, hidden_dim, attention_dim: see :class:`AttentiveGRU`.
        context_dim: size l of context states.
    """

    def __init__(self, input_dim, source_dim, hidden_dim, attention_dim, context_dim: int):
        super().__init__(input_dim, source_dim, hidden_dim, attention_dim)
        self.context_gates = nn.Linear(context_dim, 3 * hidden_dim, bias=False)

    def forward(
        self,
        x: Tensor,
        state: Tensor,
        source: AttendedStates,
        context: Optional[SourceContext] = None,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Run the GRU over T inputs, with attention and a context vector at every step.

        Args:
            x, state, source: see :meth:`AttentiveGRU.forward`.
            context: representation of the previous sentences of each of the B sentences; None to
                ignore them.

        Returns:
            (B * N, T, d) states, (B * N, T, source_dim) attention contexts of the source, and
            (B * N, T, S) attention weights, for N beams of each sentence.
        """
        if context is None:
            return super().forward(x, state, source)
        bsz, units = len(source.states), self.attention_dim
        remembered = self.project_context(context)
        states, contexts, attentions = [], [], []
        for inputs, from_input in zip(x.unbind(1), self.input_proj(x).unbind(1)):
            from_state = self.state_proj(state)
            query = (from_input[:, :units] + from_state[:, :units]).view(bsz, -1, 1, units)
            attention = attend(query, source.keys, self.energy, source.padding)
            seen = (attention @ source.states).flatten(0, 1)
            from_source = (attention @ source.gates).flatten(0, 1)
            from_context = self.look_back(inputs, state, seen, remembered)
            gates = from_input[:, units:] + from_source + self.context_gates(from_context)
            state = gru_step(gates, from_state[:, units:], state)
            states.append(state)
            contexts.append(seen)
            attentions.append(attention.flatten(0, 1))
        return tuple(torch.stack(parts, dim=1) for parts in (states, contexts, attentions))

    def project_context(self, context: SourceContext):
        """Precompute from the context what :meth:`look_back` needs in every step.

        By default the context itself is returned.
        """
        return context

    def look_back(self, inputs: Tensor, state: Tensor, seen: Tensor, remembered) -> Tensor:
        """Compute the context vector of one step, (rows, context_dim), from previous sentences.

        Args:
            inputs: (rows, input_dim) input of the step.
            state: (rows, hidden_dim) state before the step.
            seen: (rows, source_dim) attention context of the current source sentence.
            remembered: result of :meth:`project_context`.
        """
        raise NotImplementedError


class AttendingToPrevious(ContextualGRU):
    """GRU that also attends to the words of the previous source sentence (Jean et al. 2017).

    The query is computed from the last state, the last word and the attention context of the
    current sentence.
    """

    def __init__(self, input_dim, source_dim, hidden_dim, attention_dim, context_dim: int):
        super().__init__(input_dim, source_dim, hidden_dim, attention_dim, context_dim)
        sizes = input_dim + hidden_dim + source_dim
        self.context_query = nn.Linear(sizes, self.attention_dim)
        self.context_key = nn.Linear(context_dim, self.attention_dim, bias=False)
        self.context_energy = nn.Linear(self.attention_dim, 1, bias=False)
        init_uniform(self, hidden_dim)

    def project_context(self, context: SourceContext):
        """Return the context and its attention keys, which are the same for all steps."""
        return context, self.context_key(context.states)

    def look_back(self, inputs, state, seen, remembered):
        """Return the (rows, context_dim) attention context of the previous sentence.

        For the arguments, see :meth:`ContextualGRU.look_back`.
        """
        context, keys = remembered
        query = self.context_query(torch.cat([inputs, state, seen], dim=-1))
        query = query.view(len(keys), -1, 1, keys.size(-1))
        weights = attend(query, keys, self.context_energy.weight[0], context.padding)
        return (weights @ context.states).flatten(0, 1)


class GatedContext(ContextualGRU):
    """GRU that reads a gated summary D of previous sentences in every step (Wang et al. 2017).

    The gate is ``z_t = sigmoid(U s_{t-1} + W y_{t-1} + C c_t)`` (equation 8) with the last state s,
    the last word y and the attention context c. A projection of ``z_t * D`` is added to the gates
    of the GRU.
    """

    def __init__(self, input_dim, source_dim, hidden_dim, attention_dim, context_dim: int):
        super().__init__(input_dim, source_dim, hidden_dim, attention_dim, context_dim)
        self.context_gate = nn.Linear(input_dim + hidden_dim + source_dim, context_dim)
        init_uniform(self, hidden_dim)

    def look_back(self, inputs, state, seen, remembered):
        """Return the summary of previous sentences, multiplied by its gate.

        The result is zero in rows without previous sentences. For the arguments, see
        :meth:`ContextualGRU.look_back`.
        """
        gate = torch.sigmoid(self.context_gate(torch.cat([inputs, state, seen], dim=-1)))
        vectors = remembered.states[:, 0].masked_fill(remembered.padding, 0.0)
        return gate * vectors.repeat_interleave(len(gate) // len(vectors), dim=0)


def attend(query: Tensor, keys: Tensor, energy: Tensor, padding: Optional[Tensor]) -> Tensor:
    """Compute additive attention weights.

    Args:
        query: (B, N, 1, a) N queries of size a in each row.
        keys: (B, S, a) keys.
        energy: (a,) vector v of the logits ``v' tanh(query + key)``.
        padding: (B, S) True at padding; None without padding.

    Returns:
        (B, N, S) weights; zeros where all keys are padding.
    """
    logits = torch.tanh(keys.unsqueeze(1) + query) @ energy
    if padding is None:
        return logits.softmax(dim=-1)
    hidden = padding.unsqueeze(1)
    weights = logits.masked_fill(hidden, -float("inf")).softmax(dim=-1)
    return weights.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)


PREVIOUS_STATE = "context.state"


class ContextGRUEncoder(GRUEncoder):
    """Base class of encoders that also encode previous source sentences.

    Their output also has ``context``, the encoded previous sentences, and ``next_doc_state``, the
    document state after the batch.
    """

    def _select(self, encoder_out, sentences, beams):
        selected = super()._select(encoder_out, sentences, beams)
        context = [x.index_select(0, sentences) for x in encoder_out["context"]]
        return {**selected, "context": context, "next_doc_state": encoder_out["next_doc_state"]}


class PreviousSentenceEncoder(ContextGRUEncoder):
    """Encoder with a second GRU over the previous source sentence (Jean et al. 2017)."""

    #: number of previous sentences, as in the paper
    sentences_back = 1

    def __init__(self, dictionary, embed_tokens, hidden_size: int, layers: int, dropout: float):
        super().__init__(dictionary, embed_tokens, hidden_size, layers, dropout)
        self.context_gru = nn.GRU(
            embed_tokens.embedding_dim, hidden_size, batch_first=True, bidirectional=True
        )

    def encode(self, src_tokens, stream):
        """Encode sentences and, with the second GRU, the previous sentence of each.

        Returns:
            Output of :class:`GRUEncoder` with two further entries. ``context`` has the (B, W, 2 d)
            states of the W words of the previous sentences, from a GRU of size d, and their (B, W)
            padding mask. ``next_doc_state`` is the document state after the batch.
        """
        previous = PreviousSentences.of(src_tokens, stream, self.sentences_back, self.padding_idx)
        states, _ = self.read(self.context_gru, previous.tokens)
        place = previous.place[:, 0]
        padding = previous.tokens[place].eq(self.padding_idx) | ~previous.known
        output = super().encode(src_tokens, stream)
        context = [self.dropout(states)[place], padding]
        return {**output, "context": context, "next_doc_state": previous.doc_state}


class HierarchicalEncoder(ContextGRUEncoder):
    """Encoder that starts from a summary of three previous source sentences (Wang et al. 2017).

    One GRU reads each previous sentence. A second GRU reads the last states of the first, and its
    own last state is the summary D. As in the authors' code, D is the initial state of all encoder
    layers. It is zero if there are no previous sentences.
    """

    #: number of previous sentences, as in the paper
    sentences_back = 3

    def __init__(self, dictionary, embed_tokens, hidden_size: int, layers: int, dropout: float):
        super().__init__(dictionary, embed_tokens, hidden_size, layers, dropout)
        self.layers = layers
        self.context_gru = nn.GRU(embed_tokens.embedding_dim, hidden_size, batch_first=True)
        self.context_document_gru = nn.GRU(hidden_size, hidden_size, batch_first=True)

    def encode(self, src_tokens, stream):
        """Encode sentences, starting from the summary of the previous sentences.

        Returns:
            Output of :class:`GRUEncoder` with two further entries. ``context`` has the (B, 1, d)
            summaries and a (B, 1) mask, True for sentences without previous sentences.
            ``next_doc_state`` is the document state after the batch.
        """
        previous = PreviousSentences.of(src_tokens, stream, self.sentences_back, self.padding_idx)
        _, last = self.read(self.context_gru, previous.tokens)
        summary = self._sum_up(last[-1][previous.place], previous.known)
        initial = summary.repeat(2 * self.layers, 1, 1)
        output = super().encode(src_tokens, stream, initial)
        nothing = ~previous.known.any(dim=1, keepdim=True)
        context = [summary.unsqueeze(1), nothing]
        return {**output, "context": context, "next_doc_state": previous.doc_state}

    def _sum_up(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Summarise the n previous sentences of each row with the second GRU; return (rows, d).

        Args:
            vectors: (rows, n, d) vectors of the previous sentences, oldest first.
            known: (rows, n) True for sentences of the current document; others are skipped.
        """
        state = vectors.new_zeros(1, len(vectors), vectors.size(2))
        for sentence, there in zip(vectors.unbind(1), known.unbind(1)):
            _, after = self.context_document_gru(sentence.unsqueeze(1).contiguous(), state)
            state = torch.where(there.view(1, -1, 1), after, state)
        return state[0]


class SourceContextDecoder(GRUDecoder):
    """GRU decoder whose lowest layer reads previous source sentences.

    Args:
        *args: see :class:`~fairseq_docmt.modules.rnn.gru_decoder.GRUDecoder`.
        recurrence: class of the lowest layer.
        context_size: size of context states.
        begins_with_context: whether the initial state of the lowest layer also depends on the
            context: ``tanh(W_s h + W_D D)`` with the first backward encoder state ``h`` and the
            context ``D`` (Wang et al. 2017).
    """

    def __init__(
        self,
        *args,
        recurrence: Type[ContextualGRU],
        context_size: int,
        begins_with_context: bool,
    ):
        super().__init__(*args)
        base = self.attending
        self.attending = recurrence(
            base.input_proj.in_features,
            base.key_proj.in_features,
            base.hidden_dim,
            base.attention_dim,
            context_size,
        )
        self.context_initial = None
        if begins_with_context:
            self.context_initial = nn.Linear(context_size, base.hidden_dim, bias=False)
            init_uniform(self.context_initial, base.hidden_dim)

    def init_state(self, encoder_out: dict) -> GRUState:
        """Return the state before the first token, with the encoded previous source sentences."""
        context = SourceContext(*encoder_out["context"])
        return super().init_state(encoder_out)._replace(history=context)

    def _before_tanh(self, encoder_out: dict) -> Tensor:
        first = super()._before_tanh(encoder_out)
        if self.context_initial is None:
            return first
        lowest = self.context_initial(encoder_out["context"][0][:, 0])
        return first + F.pad(lowest, (0, first.size(1) - lowest.size(1)))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """Compute (rows, T, E) features, with attention weights in ``attn`` [(rows, T, S)].

        E is the embedding size. The extra outputs also include ``doc_state``, the new document
        state. For the other results, see :meth:`GRUDecoder.extract_features`.
        """
        features, extra = super().extract_features(
            prev_output_tokens, encoder_out, incremental_state
        )
        return features, {**extra, "doc_state": encoder_out["next_doc_state"]}

    def _context_vector(self, history, num_rows: int):
        return history


class PreviousTargetDecoder(GRUDecoder):
    """GRU decoder that reads its own last state from the previous sentence (PrevTrg).

    In the lowest layer, a projection of that state is added to the gates at all steps (Maruf and
    Haffari 2018, section 5.2). The sentences of a document are read one after another. Within a
    batch, gradients flow back from each sentence to all earlier sentences of its document.
    """

    def __init__(self, *args):
        super().__init__(*args)
        hidden_size = self.attending.hidden_dim
        self.context_gates = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        init_uniform(self.context_gates, hidden_size)

    def init_state(self, encoder_out: dict) -> GRUState:
        """Return the state before the first token, with the last state of the previous sentence.

        Each sentence of the batch must be from a different document.
        """
        stream = encoder_out["stream"]
        before = self._incoming_state(stream).masked_fill(stream.starts.unsqueeze(1), 0.0)
        return super().init_state(encoder_out)._replace(history=PerSentence(before))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """Compute (rows, T, E) features of embedding size E, sentence by sentence in each document.

        With an incremental state, only the last token is read. Extra outputs include the attention
        weights ``attn``; for whole sequences also ``doc_state``, the new document state.
        """
        if incremental_state is not None:
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state)
        num_rows = len(prev_output_tokens)
        stream = encoder_out["stream"].for_rows(num_rows)
        state = self.repeated(super().init_state(encoder_out), num_rows)
        before, found = self._incoming_state(stream), []
        targets, sources = stream.groups("target"), stream.groups("attended")
        width = prev_output_tokens.size(1)
        steps = zip(
            stream.starts.split(stream.lanes),
            prev_output_tokens.split(stream.lanes),
            _by_step(state, stream.lanes),
        )
        for number, (starts, tokens, part) in enumerate(steps):
            before = before.masked_fill(starts.unsqueeze(1), 0.0)
            source = part.source.columns(sources.columns_of_step(number))
            tokens = tokens[:, targets.columns_of_step(number)]
            part = part._replace(source=source, history=PerSentence(before))
            found.append(self._forward_sequence(tokens, part))
            last = tokens.ne(self.padding_idx).sum(dim=1).clamp(min=1) - 1
            before = found[-1].hidden[torch.arange(len(last), device=last.device), last]
        *parts, _ = zip(*found)
        joined = (torch.cat([_widened(x, width) for x in values]) for values in parts)
        features, _ = self._features(*(stream.at_loss(x) for x in joined), None, None)
        return features, {**self._extra(found, stream), "doc_state": {PREVIOUS_STATE: before}}

    def _incoming_state(self, stream: Stream) -> Tensor:
        """Return the last decoder state of each lane before the batch, (lanes, d).

        A lane is one of the document sequences that are read in parallel. Without a document state,
        the result is zero.
        """
        if stream.doc_state is None:
            return self.output_projection.weight.new_zeros(stream.lanes, self.attending.hidden_dim)
        return stream.doc_state[PREVIOUS_STATE].to(self.output_projection.weight.dtype)

    def _context_vector(self, history, num_rows: int):
        # Without incremental state each beam is a lane.
        return self.context_gates(history.for_rows(num_rows))


def _widened(x: Tensor, width: int) -> Tensor:
    """Zero-pad the second dimension of (rows, T, C) on the right to ``width``."""
    return F.pad(x, (0, 0, 0, width - x.size(1)))


def _by_step(state: GRUState, lanes: int) -> List[GRUState]:
    """Split a decoder state with one row per sentence into one state for each step of the batch.

    A step has the next sentence of each of the ``lanes`` document sequences.
    """
    sources = (repeat(None) if x is None else x.split(lanes) for x in state.source)
    parts = zip(state.hidden.split(lanes), state.upper.split(lanes, dim=1), *sources)
    return [
        state._replace(hidden=hidden, upper=upper, source=AttendedStates(*source))
        for hidden, upper, *source in parts
    ]
