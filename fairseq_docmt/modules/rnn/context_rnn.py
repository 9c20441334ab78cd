"""Encoders and decoders of ``context_rnn``, which reads a few previous sentences."""

from itertools import repeat
from typing import List, Type

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.modules.rnn.attentive_gru import AttendedStates
from fairseq_docmt.modules.rnn.contextual_gru import ContextualGRU, SourceContext
from fairseq_docmt.modules.rnn.rnnsearch import (
    GRUDecoder,
    GRUEncoder,
    GRUState,
    PerSentence,
    init_uniform,
)
from fairseq_docmt.modules.shared.previous_sentences import PreviousSentences
from fairseq_docmt.modules.shared.row_groups import at_loss, positions, target_groups
from fairseq_docmt.modules.shared.stream import Stream

PREVIOUS_STATE = "context.state"


class ContextGRUEncoder(GRUEncoder):
    """Base class of encoders with ``context`` and ``next_doc_state`` in their output."""

    def _select(self, encoder_out, sentences, beams):
        selected = super()._select(encoder_out, sentences, beams)
        context = [x.index_select(0, sentences) for x in encoder_out["context"]]
        return {**selected, "context": context, "next_doc_state": encoder_out["next_doc_state"]}


class PreviousSentenceEncoder(ContextGRUEncoder):
    """Encoder with a second GRU over the previous source sentence (Jean et al. 2017)."""

    def __init__(self, dictionary, embed_tokens, hidden_size: int, layers: int, dropout: float):
        super().__init__(dictionary, embed_tokens, hidden_size, layers, dropout)
        self.context_gru = nn.GRU(
            embed_tokens.embedding_dim, hidden_size, batch_first=True, bidirectional=True
        )

    def forward(
        self, src_tokens, src_lengths=None, starts=None, lanes=None, doc_state=None, **kwargs
    ):
        """See the base class; adds ``context`` [(B, W, 2 d), (B, W)] and ``next_doc_state``."""
        stream = self.stream_of(src_tokens, starts, lanes, doc_state)
        previous = PreviousSentences.of(src_tokens, stream, 1, self.padding_idx)
        states, _ = self.read(self.context_gru, previous.tokens)
        place = previous.place[:, 0]
        padding = previous.tokens[place].eq(self.padding_idx) | ~previous.known
        output = super().forward(src_tokens, src_lengths, starts, lanes, doc_state, **kwargs)
        context = [self.dropout(states)[place], padding]
        return {**output, "context": context, "next_doc_state": previous.doc_state}


class HierarchicalEncoder(ContextGRUEncoder):
    """Encoder that starts from a summary of three previous source sentences (Wang et al. 2017).

    One GRU reads each sentence, another reads their last states; the last state of the second is
    the summary D. As in the authors' code, D is the initial state of all encoder layers; it is zero
    without previous sentences.
    """

    #: number of previous sentences, as in the paper
    sentences_back = 3

    def __init__(self, dictionary, embed_tokens, hidden_size: int, layers: int, dropout: float):
        super().__init__(dictionary, embed_tokens, hidden_size, layers, dropout)
        self.layers = layers
        self.context_gru = nn.GRU(embed_tokens.embedding_dim, hidden_size, batch_first=True)
        self.context_document_gru = nn.GRU(hidden_size, hidden_size, batch_first=True)

    def forward(
        self, src_tokens, src_lengths=None, starts=None, lanes=None, doc_state=None, **kwargs
    ):
        """See the base class; ``context`` has one state per sentence, (B, 1, d)."""
        stream = self.stream_of(src_tokens, starts, lanes, doc_state)
        previous = PreviousSentences.of(src_tokens, stream, self.sentences_back, self.padding_idx)
        _, last = self.read(self.context_gru, previous.tokens)
        summary = self._sum_up(last[-1][previous.place], previous.known)
        initial = summary.repeat(2 * self.layers, 1, 1)
        output = super().forward(
            src_tokens, src_lengths, starts, lanes, doc_state, initial=initial, **kwargs
        )
        nothing = ~previous.known.any(dim=1, keepdim=True)
        context = [summary.unsqueeze(1), nothing]
        return {**output, "context": context, "next_doc_state": previous.doc_state}

    def _sum_up(self, vectors: Tensor, known: Tensor) -> Tensor:
        """Compute the (rows, d) summary of (rows, n, d) sentence vectors.

        Args:
            vectors: (rows, n, d) vectors.
            known: (rows, n) True for sentences of the same document; others are skipped.
        """
        state = vectors.new_zeros(1, len(vectors), vectors.size(2))
        for sentence, there in zip(vectors.unbind(1), known.unbind(1)):
            _, after = self.context_document_gru(sentence.unsqueeze(1).contiguous(), state)
            state = torch.where(there.view(1, -1, 1), after, state)
        return state[0]


class SourceContextDecoder(GRUDecoder):
    """GRU decoder whose lowest layer reads previous source sentences.

    Args:
        *args: see the base class.
        recurrence: class of that layer.
        context_size: size of context states.
        begins_with_context: whether the initial state of the lowest layer includes the context,
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
        """Return the state before the first token, with the context of each sentence."""
        context = SourceContext(*encoder_out["context"])
        return super().init_state(encoder_out)._replace(history=context)

    def _before_tanh(self, encoder_out: dict) -> Tensor:
        first = super()._before_tanh(encoder_out)
        if self.context_initial is None:
            return first
        lowest = self.context_initial(encoder_out["context"][0][:, 0])
        return first + F.pad(lowest, (0, first.size(1) - lowest.size(1)))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """See the base class; for whole sequences the extra outputs include ``doc_state``."""
        features, extra = super().extract_features(
            prev_output_tokens, encoder_out, incremental_state
        )
        return features, {**extra, "doc_state": encoder_out["next_doc_state"]}

    def _context_vector(self, history, num_rows: int):
        return history


class PreviousTargetDecoder(GRUDecoder):
    """GRU decoder that reads its own last state of the previous sentence (PrevTrg).

    Maruf and Haffari (2018), section 5.2: that state is added to the gates at all steps of the
    attending layer. The sentences of a lane are read one after another; gradients reach all
    sentences of the batch.
    """

    def __init__(self, *args):
        super().__init__(*args)
        hidden_size = self.attending.hidden_dim
        self.context_gates = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        init_uniform(self.context_gates, hidden_size)

    def init_state(self, encoder_out: dict) -> GRUState:
        """Return the state before the first token; each sentence is a lane."""
        stream = encoder_out["stream"]
        before = self._incoming_state(stream).masked_fill(stream.starts.unsqueeze(1), 0.0)
        return super().init_state(encoder_out)._replace(history=PerSentence(before))

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """See the base class; for whole sequences the extra outputs include ``doc_state``."""
        if incremental_state is not None:
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state)
        num_rows = len(prev_output_tokens)
        stream = encoder_out["stream"].for_rows(num_rows)
        state = self.repeated(super().init_state(encoder_out), num_rows)
        before, found = self._incoming_state(stream), []
        groupings, width = encoder_out["row_groups"], prev_output_tokens.size(1)
        targets, sources = target_groups(groupings)
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
        features, _ = self._features(*(at_loss(x, groupings) for x in joined), None, None)
        extra = {**self._attention(found, groupings), "doc_state": {PREVIOUS_STATE: before}}
        return features, {**extra, **positions(groupings)}

    def _incoming_state(self, stream: Stream) -> Tensor:
        """Return the (lanes, d) last states of the sentences before the batch."""
        if stream.doc_state is None:
            return self.output_projection.weight.new_zeros(stream.lanes, self.attending.hidden_dim)
        return stream.doc_state[PREVIOUS_STATE].to(self.output_projection.weight.dtype)

    def _context_vector(self, history, num_rows: int):
        # Without incremental state each beam is a lane.
        return self.context_gates(history.for_rows(num_rows))


def _widened(x: Tensor, width: int) -> Tensor:
    """Pad (rows, T, C) on the right to a width."""
    return F.pad(x, (0, 0, 0, width - x.size(1)))


def _by_step(state: GRUState, lanes: int) -> List[GRUState]:
    """Cut a state with a row for each sentence into the sentences of each step."""
    sources = (repeat(None) if x is None else x.split(lanes) for x in state.source)
    parts = zip(state.hidden.split(lanes), state.upper.split(lanes, dim=1), *sources)
    return [
        state._replace(hidden=hidden, upper=upper, source=AttendedStates(*source))
        for hidden, upper, *source in parts
    ]
