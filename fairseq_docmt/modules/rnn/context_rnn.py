"""Encoders and decoders of ``context_rnn``, which knows a few sentences back."""

from typing import Type

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.rnn.contextual_gru import ContextualGRU, SourceContext
from fairseq_docmt.modules.rnn.previous_sentences import PreviousSentences
from fairseq_docmt.modules.rnn.rnnsearch import (
    GRUDecoder,
    GRUEncoder,
    GRUState,
    PerSentence,
    init_uniform,
)
from fairseq_docmt.modules.shared.stream import Stream

PREVIOUS_STATE = "context.state"


class ContextEncoder(GRUEncoder):
    """Base of encoders whose output has ``context`` and ``next_doc_state``."""

    def _select(self, encoder_out, sentences, beams):
        selected = super()._select(encoder_out, sentences, beams)
        context = [x.index_select(0, sentences) for x in encoder_out["context"]]
        return {**selected, "context": context, "next_doc_state": encoder_out["next_doc_state"]}


class PreviousSentenceEncoder(ContextEncoder):
    """Reads the previous source sentence too, with a GRU of its own (Jean et al. 2017)."""

    def __init__(self, dictionary, embed_tokens, hidden_size: int, layers: int, dropout: float):
        super().__init__(dictionary, embed_tokens, hidden_size, layers, dropout)
        self.context_gru = nn.GRU(
            embed_tokens.embedding_dim, hidden_size, batch_first=True, bidirectional=True
        )

    def forward(self, src_tokens, src_lengths=None, starts=None, lanes=None, doc_state=None, **_):
        """As in the base class, with ``context`` [(B, W, 2 d), (B, W)] and ``next_doc_state``."""
        stream = Stream.of(src_tokens, starts, lanes, doc_state)
        previous = PreviousSentences.of(src_tokens, stream, 1, self.padding_idx)
        states, _ = self.read(self.context_gru, previous.tokens)
        place = previous.place[:, 0]
        padding = previous.tokens[place].eq(self.padding_idx) | ~previous.known
        output = super().forward(src_tokens, src_lengths, starts, lanes, doc_state)
        context = [self.dropout(states)[place], padding]
        return {**output, "context": context, "next_doc_state": previous.doc_state}


class HierarchicalEncoder(ContextEncoder):
    """Sums up three earlier source sentences and begins with that (Wang et al. 2017).

    A GRU reads each sentence; another reads their last states, and its own is the summary D.  As in
    the authors' code D itself is the first state of the encoder, here of all layers; zeros where
    nothing comes before.
    """

    #: sentences looked back on, as in the paper
    sentences_back = 3

    def __init__(self, dictionary, embed_tokens, hidden_size: int, layers: int, dropout: float):
        super().__init__(dictionary, embed_tokens, hidden_size, layers, dropout)
        self.layers = layers
        self.context_gru = nn.GRU(embed_tokens.embedding_dim, hidden_size, batch_first=True)
        self.context_document_gru = nn.GRU(hidden_size, hidden_size, batch_first=True)

    def forward(self, src_tokens, src_lengths=None, starts=None, lanes=None, doc_state=None, **_):
        """As in the base class; ``context`` has one state for each sentence, (B, 1, d)."""
        stream = Stream.of(src_tokens, starts, lanes, doc_state)
        previous = PreviousSentences.of(src_tokens, stream, self.sentences_back, self.padding_idx)
        _, last = self.read(self.context_gru, previous.tokens)
        summary = self._sum_up(last[-1][previous.place], previous.known)
        initial = summary.repeat(2 * self.layers, 1, 1)
        output = super().forward(src_tokens, src_lengths, starts, lanes, doc_state, initial=initial)
        nothing = ~previous.known.any(dim=1, keepdim=True)
        context = [summary.unsqueeze(1), nothing]
        return {**output, "context": context, "next_doc_state": previous.doc_state}

    def _sum_up(self, vectors: Tensor, known: Tensor) -> Tensor:
        """(rows, d) last state over (rows, n, d) sentences, of which the last ones are known.

        Zeros where none is.
        """
        state = vectors.new_zeros(1, len(vectors), vectors.size(2))
        for sentence, there in zip(vectors.unbind(1), known.unbind(1)):
            _, after = self.context_document_gru(sentence.unsqueeze(1).contiguous(), state)
            state = torch.where(there.view(1, -1, 1), after, state)
        return state[0]


class SourceContextDecoder(GRUDecoder):
    """GRU decoder whose lowest layer looks back on earlier source sentences.

    Args:
        *args: as in the base class.
        recurrence: the class of that layer.
        context_size: size of context states.
        begins_with_context: whether the first state of the lowest layer knows the context too:
            ``tanh(W_s h + W_D D)`` (Wang et al. 2017).
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
        """State before the first token, with the context of its sentences."""
        context = SourceContext(*encoder_out["context"])
        return super().init_state(encoder_out)._replace(history=context)

    def _before_tanh(self, encoder_out: dict) -> Tensor:
        first = super()._before_tanh(encoder_out)
        if self.context_initial is None:
            return first
        lowest = self.context_initial(encoder_out["context"][0][:, 0])
        return first + F.pad(lowest, (0, first.size(1) - lowest.size(1)))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """As in the base class; the extra outputs of whole sequences hold ``doc_state``."""
        features, extra = super().extract_features(
            prev_output_tokens, encoder_out, incremental_state
        )
        return features, {**extra, "doc_state": encoder_out["next_doc_state"]}

    def _context_vector(self, history, rows: int):
        return history


class PreviousTargetDecoder(GRUDecoder):
    """GRU decoder that is told its own last state of the sentence before (PrevTrg).

    Maruf and Haffari (2018), section 5.2: it goes to all states of the attending layer.  Sentences
    of a lane are read one after the other, and gradients flow through all of a batch.
    """

    def __init__(self, *args):
        super().__init__(*args)
        hidden_size = self.attending.hidden_dim
        self.context_gates = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        init_uniform(self.context_gates, hidden_size)

    def init_state(self, encoder_out: dict) -> GRUState:
        """State before the first token of sentences, each in a lane of its own."""
        stream = encoder_out["stream"]
        before = self._incoming_state(stream).masked_fill(stream.starts.unsqueeze(1), 0.0)
        return super().init_state(encoder_out)._replace(history=PerSentence(before))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """As in the base class; the extra outputs of whole sequences hold ``doc_state``."""
        if incremental_state is not None:
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state)
        rows = len(prev_output_tokens)
        stream = encoder_out["stream"].for_rows(rows)
        state = self._for_rows(super().init_state(encoder_out), rows)
        before, found = self._incoming_state(stream), []
        for number, starts in enumerate(stream.starts.view(-1, stream.lanes)):
            here = slice(number * stream.lanes, (number + 1) * stream.lanes)
            before = before.masked_fill(starts.unsqueeze(1), 0.0)
            part = state if stream.lanes == rows else _of_lanes(state, here)
            part = part._replace(history=PerSentence(before))
            tokens = prev_output_tokens[here]
            found.append(self._forward_sequence(tokens, part))
            last = tokens.ne(self.padding_idx).sum(dim=1).clamp(min=1) - 1
            before = found[-1][1][torch.arange(len(last), device=last.device), last]
        *parts, attention = (torch.cat(values) for values in zip(*found))
        features, extra = self._features(*parts, attention, None)
        return features, {"attn": [attention], "doc_state": {PREVIOUS_STATE: before}, **extra}

    def _incoming_state(self, stream: Stream) -> Tensor:
        """(lanes, d) last states of the sentences before a batch."""
        if stream.doc_state is None:
            return self.output_projection.weight.new_zeros(stream.lanes, self.attending.hidden_dim)
        return stream.doc_state[PREVIOUS_STATE].to(self.output_projection.weight.dtype)

    def _context_vector(self, history, rows: int):
        # Beams without a state have a lane each.
        return self.context_gates(history.for_rows(rows))


def _of_lanes(state: GRUState, rows: slice) -> GRUState:
    """State of some rows, each of a sentence of its own."""
    at = torch.arange(rows.start, rows.stop, device=state.hidden.device)
    return state._replace(
        hidden=state.hidden[rows], upper=state.upper[:, rows], source=state.source.of_sentences(at)
    )
