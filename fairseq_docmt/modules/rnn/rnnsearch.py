"""Encoder and decoder of ``rnnsearch`` (Bahdanau et al. 2015; the base of Tu et al. 2018)."""

from typing import Any, NamedTuple, Optional

import torch
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from fairseq.modules import FairseqDropout
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairseq_docmt.modules.rnn.attentive_gru import AttendedStates, AttentiveGRU
from fairseq_docmt.modules.shared.beam_rows import split_order
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSource
from fairseq_docmt.modules.shared.stream import Stream

#: longer than any sentence; a recurrence has no table of positions to run out of
MAX_POSITIONS = 100000
KEY = "state of the recurrence"


def init_uniform(module: nn.Module, size: int) -> None:
    """Draw parameters evenly from ``-size ** -0.5`` to ``size ** -0.5``, as torch's GRU does."""
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)


class GRUEncoder(SharedSource, FairseqEncoder):
    """Bidirectional GRU over source tokens.

    Args:
        dictionary: source dictionary.
        embed_tokens: source embeddings.
        hidden_size: size of the state of each direction.
        layers: number of layers.
        dropout: after the embeddings, between layers and on the output.
    """

    def __init__(
        self, dictionary, embed_tokens: nn.Embedding, hidden_size: int, layers: int, dropout: float
    ):
        super().__init__(dictionary)
        self.embed_tokens, self.padding_idx = embed_tokens, dictionary.pad()
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.gru = nn.GRU(
            embed_tokens.embedding_dim,
            hidden_size,
            layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if layers > 1 else 0.0,
        )
        self.output_units = 2 * hidden_size

    def forward(
        self,
        src_tokens,
        src_lengths=None,
        starts=None,
        lanes=None,
        doc_state=None,
        initial=None,
        **_,
    ):
        """Encode (B, S) tokens, padded on either side.

        Args:
            starts, lanes, carry: for decoders that carry something, see :class:`Stream`.
            initial: (2 layers, B, d) states to begin with, zeros by default.

        Returns:
            dict with ``encoder_out`` [(S, B, 2 d)], ``encoder_padding_mask`` [(B, S)],
            ``summary`` [(B, 2 d)]: the last forward and the first backward state, each of which
            has read everything, ``stream``, ``beams``, see :class:`SharedSource`, and
            ``remembered``, where a decoder keeps what it computes of the source.
        """
        padding = src_tokens.eq(self.padding_idx)
        output, last = self.read(self.gru, src_tokens, initial)
        return {
            "encoder_out": [self.dropout(output).transpose(0, 1)],
            "encoder_padding_mask": [padding],
            "summary": [torch.cat([last[-2], last[-1]], dim=-1)],
            "stream": Stream.of(src_tokens, starts, lanes, doc_state),
            "remembered": {},
            "beams": 1,
        }

    def read(self, gru: nn.GRU, tokens: Tensor, initial: Optional[Tensor] = None):
        """States (rows, S, d) over (rows, S) tokens, padded on either side, and the last ones."""
        lengths = tokens.ne(self.padding_idx).sum(dim=1)
        # A recurrence begins with the first token: padding goes behind, and back in the end.
        left = tokens[:, 0].eq(self.padding_idx)
        shift = torch.where(left, tokens.size(1) - lengths, 0)
        x = self.dropout(self.embed_tokens(_rolled(tokens, shift)))
        lengths = lengths.clamp(min=1).cpu()
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, last = gru(packed, initial)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=tokens.size(1))
        return _rolled(output, -shift), last

    def _select(self, encoder_out, sentences, beams):
        return {
            "encoder_out": [encoder_out["encoder_out"][0].index_select(1, sentences)],
            "encoder_padding_mask": [
                x.index_select(0, sentences) for x in encoder_out["encoder_padding_mask"]
            ],
            "summary": [x.index_select(0, sentences) for x in encoder_out["summary"]],
            "stream": encoder_out["stream"].of_rows(sentences),
            "remembered": {},
            "beams": beams,
        }

    def max_positions(self):
        """No limit of its own."""
        return MAX_POSITIONS


def _rolled(x: Tensor, shift: Tensor) -> Tensor:
    """Columns of (B, S, ...) moved to the left by a number for each row, around the end."""
    columns = torch.arange(x.size(1), device=x.device) + shift.unsqueeze(1)
    columns = columns.remainder(x.size(1))
    rows = torch.arange(len(x), device=x.device).unsqueeze(1)
    return x[rows, columns]


class PerSentence(NamedTuple):
    """One vector for each of B sentences, whatever their beams.

    Attributes:
        values: (B, d).
    """

    values: Tensor

    def of_rows(self, rows: Tensor) -> "PerSentence":
        """Of some of the sentences."""
        return PerSentence(self.values.index_select(0, rows))

    def for_rows(self, rows: int) -> Tensor:
        """(rows, d) with a row for each beam of each sentence."""
        return self.values.repeat_interleave(rows // len(self.values), dim=0)


class GRUState(NamedTuple):
    """What the decoder remembers between tokens.

    Attributes:
        hidden: (B * N, d) of the attending layer, the N beams of a sentence side by side.
        upper: (layers - 1, B * N, d) of the layers above it.
        source: of B sentences.
        beams: rows of each sentence N.
        history: what a decoder knows of earlier sentences, of B documents, with
            ``of_rows(rows)``; None for nothing.
    """

    hidden: Tensor
    upper: Tensor
    source: AttendedStates
    beams: int
    history: Any = None

    def reorder(self, order: Tensor) -> "GRUState":
        """Rows in a new order (B * N,): beams change places, sentences end, beam search begins."""
        bsz = len(self.source.states)
        rows = split_order(order, bsz, self.beams)
        if rows is None:
            owners = torch.arange(bsz, device=order.device).repeat_interleave(self.beams)
            return self._of_sentences(owners)._replace(beams=1).reorder(order)
        state = self if rows.sentences is None else self._of_sentences(rows.sentences)
        hidden, upper = self.hidden.index_select(0, order), self.upper.index_select(1, order)
        return state._replace(hidden=hidden, upper=upper, beams=rows.beams)

    def _of_sentences(self, sentences: Tensor) -> "GRUState":
        history = None if self.history is None else self.history.of_rows(sentences)
        return self._replace(source=self.source.of_sentences(sentences), history=history)


class GRUDecoder(FairseqIncrementalDecoder):
    """GRU with attention, GRUs above it if asked for, and a deep output layer.

    Args:
        dictionary: target dictionary.
        embed_tokens: target embeddings.
        encoder_units: size of encoder states, and of the state that the decoder begins with.
        hidden_size: size of the states.
        layers: number of layers; the lowest attends.
        attention_dim: size of the hidden layer of attention.
        dropout: after the embeddings, between layers and in the output layer.
        share_input_output_embed: project to words by the embeddings.
    """

    def __init__(
        self,
        dictionary,
        embed_tokens: nn.Embedding,
        encoder_units: int,
        hidden_size: int,
        layers: int,
        attention_dim: int,
        dropout: float,
        share_input_output_embed: bool,
    ):
        super().__init__(dictionary)
        self.embed_tokens, self.padding_idx = embed_tokens, dictionary.pad()
        embed_dim = embed_tokens.embedding_dim
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.output_dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.initial = nn.Linear(encoder_units // 2, layers * hidden_size)
        self.attending = AttentiveGRU(embed_dim, encoder_units, hidden_size, attention_dim)
        self.upper = None
        if layers > 1:
            self.upper = nn.GRU(
                hidden_size,
                hidden_size,
                layers - 1,
                batch_first=True,
                dropout=dropout if layers > 2 else 0.0,
            )
        self.readout = nn.Linear(hidden_size + embed_dim + encoder_units, embed_dim)
        self.output_projection = nn.Linear(embed_dim, len(dictionary), bias=False)
        if share_input_output_embed:
            self.output_projection.weight = embed_tokens.weight
        else:
            init_uniform(self.output_projection, embed_dim)
        for module in (self.initial, self.readout):
            init_uniform(module, hidden_size)

    def init_state(self, encoder_out: dict) -> GRUState:
        """State before the first token, one row for each sentence."""
        if torch.is_grad_enabled():  # what was computed without gradients is not learned from
            return self._init_state(encoder_out)
        remembered = encoder_out["remembered"]
        if "state" not in remembered:  # searching and reading the result begin alike
            remembered["state"] = self._init_state(encoder_out)
        return remembered["state"]

    def _init_state(self, encoder_out: dict) -> GRUState:
        padding = encoder_out["encoder_padding_mask"][0]
        states = encoder_out["encoder_out"][0].transpose(0, 1)
        source = self.attending.project_source(states, padding if padding.any() else None)
        initial = torch.tanh(self._before_tanh(encoder_out))
        first, *upper = initial.split(self.attending.hidden_dim, dim=-1)
        upper = torch.stack(upper) if upper else first.new_zeros(0, *first.shape)
        return GRUState(first, upper, source, 1)

    def _before_tanh(self, encoder_out: dict) -> Tensor:
        """(B, layers * d) first states before the tanh, ``W_s h`` of the first backward state."""
        _, first_backward = encoder_out["summary"][0].chunk(2, dim=-1)
        return self.initial(first_backward)

    def forward(
        self,
        prev_output_tokens,
        encoder_out=None,
        incremental_state=None,
        features_only=False,
        **_,
    ):
        """(rows, T, V) logits, or features, and extra outputs."""
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return features if features_only else self.output_layer(features), extra

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """(rows, T, E) features below the projection to words; ``attn`` [(rows, T, S)]."""
        if incremental_state is not None:
            return self.prefill(prev_output_tokens[:, -1:], encoder_out, incremental_state)
        state = self._for_rows(self.init_state(encoder_out), len(prev_output_tokens))
        *parts, attention = self._forward_sequence(prev_output_tokens, state)
        features, extra = self._features(*parts, attention, None)
        return features, {"attn": [attention], **extra}

    def _forward_sequence(self, tokens: Tensor, state: GRUState):
        """Embeddings, states of the top layer, contexts and attention of whole sequences."""
        words, hidden, contexts, attention = self._attend(tokens, state)
        if self.upper is not None:
            hidden, _ = self.upper(self.dropout(hidden), state.upper)
        return words, hidden, contexts, attention

    def prefill(self, new_tokens, encoder_out, incremental_state):
        """Read (B, T) right-padded tokens after those that a state has read.

        Returns:
            (B, T, E) features and extra outputs; ``incremental_state`` is updated.
        """
        state = self._state(incremental_state, encoder_out, len(new_tokens))
        words, hidden, contexts, attention = self._attend(new_tokens, state)
        lengths = new_tokens.ne(self.padding_idx).sum(dim=1)
        rows = torch.arange(len(lengths), device=lengths.device)
        after = state._replace(hidden=hidden[rows, lengths.clamp(min=1) - 1])
        if self.upper is not None:
            hidden, upper = self._read_upper(self.dropout(hidden), state.upper, lengths)
            after = after._replace(upper=upper)
        incremental_state[KEY] = {"state": after}
        features, extra = self._features(words, hidden, contexts, attention, state.history)
        return features, {"attn": [attention], **extra}

    def output_layer(self, features):
        """Logits of all words."""
        return self.output_projection(features)

    def reorder_incremental_state(self, incremental_state, new_order):
        """New order of the rows; called by the generator after each step."""
        if KEY in incremental_state:
            state = incremental_state[KEY]["state"].reorder(new_order)
            incremental_state[KEY] = {"state": state}

    def max_positions(self):
        """No limit of its own."""
        return MAX_POSITIONS

    def _state(self, incremental_state, encoder_out, rows: int) -> GRUState:
        if KEY in incremental_state:
            return incremental_state[KEY]["state"]
        return self._for_rows(self.init_state(encoder_out), rows)

    @staticmethod
    def _for_rows(state: GRUState, rows: int) -> GRUState:
        """With a row for each beam, where there are several."""
        bsz = len(state.hidden)
        if rows == bsz:
            return state
        owners = torch.arange(bsz, device=state.hidden.device)
        return state.reorder(owners.repeat_interleave(rows // bsz))

    def _attend(self, tokens: Tensor, state: GRUState):
        """Embeddings, states of the attending layer, contexts and attention."""
        words = self.dropout(self.embed_tokens(tokens))
        told = self._context_vector(state.history, len(tokens))
        return (words, *self.attending(words, state.hidden, state.source, told))

    def _context_vector(self, history, rows: int):
        """What the attending layer is told of earlier sentences for each of its rows."""
        return None

    def _features(self, words, hidden, contexts, attention, history):
        """(rows, T, E) features given what is known of earlier sentences, and extra outputs."""
        features = torch.cat([hidden, words, contexts], dim=-1)
        return self.output_dropout(torch.tanh(self.readout(features))), {}

    def _read_upper(self, hidden: Tensor, state: Tensor, lengths: Tensor):
        """States of the top layer, and of all upper layers after the last token of each row."""
        if hidden.size(1) == 1:
            return self.upper(hidden, state.contiguous())
        packed = pack_padded_sequence(hidden, lengths.cpu(), True, enforce_sorted=False)
        output, state = self.upper(packed, state.contiguous())
        output, _ = pad_packed_sequence(output, True, total_length=hidden.size(1))
        return output, state
