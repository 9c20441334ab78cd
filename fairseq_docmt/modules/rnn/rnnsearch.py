"""Encoder and decoder of ``rnnsearch`` (Bahdanau et al. 2015; baseline of Tu et al. 2018)."""

from itertools import repeat
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
from fairseq.models import FairseqEncoder, FairseqIncrementalDecoder
from fairseq.modules import FairseqDropout
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_docmt.modules.rnn.attentive_gru import AttendedStates, AttentiveGRU
from fairseq_docmt.modules.shared.beam_rows import split_order
from fairseq_docmt.modules.shared.incremental_state import KeepsState, store_state
from fairseq_docmt.modules.shared.row_groups import RowGroups, packed, target_groups
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSource
from fairseq_docmt.modules.shared.stream import Stream
from fairseq_docmt.ops.rows import placed

#: recurrent models have no length limit; longer than any sentence
MAX_POSITIONS = 100000


def init_uniform(module: nn.Module, size: int) -> None:
    """Initialise parameters uniformly within ``size ** -0.5`` of 0, like torch's GRU."""
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)


class GRUEncoder(SharedSource, FairseqEncoder):
    """Bidirectional GRU over source tokens.

    Args:
        dictionary: source dictionary.
        embed_tokens: source embeddings.
        hidden_size: size of the state of each direction.
        layers: number of layers.
        dropout: dropout of embeddings, between layers and of the output.

    Attributes:
        forget_context: whether every sentence is read as a document of its own.
    """

    forget_context = False

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
        row_groups=None,
        initial=None,
        **_,
    ):
        """Encode (B, S) tokens, padded on either side.

        Args:
            src_tokens: (B, S) tokens.
            src_lengths: unused.
            starts, lanes, doc_state: for decoders with a document state, see :class:`Stream`.
            row_groups: :class:`~fairseq_docmt.data.batch.RowGroupings`, or None.
            initial: (2 layers, B, d) initial states, default: zeros.

        Returns:
            dict with ``encoder_out`` [(S, B, 2 d)], ``encoder_padding_mask`` [(B, S)], ``summary``
            [(B, 2 d)] (last forward and first backward state), ``stream``, ``beams`` (see
            :class:`SharedSource`), ``remembered``, a dict for values that the decoder computes
            from the source once, and ``row_groups``.
        """
        padding = src_tokens.eq(self.padding_idx)
        output, last = self.read(self.gru, src_tokens, initial)
        return {
            "encoder_out": [self.dropout(output).transpose(0, 1)],
            "encoder_padding_mask": [padding],
            "summary": [torch.cat([last[-2], last[-1]], dim=-1)],
            "stream": self.stream_of(src_tokens, starts, lanes, doc_state),
            "remembered": {},
            "row_groups": row_groups,
            "beams": 1,
        }

    def stream_of(self, src_tokens, starts, lanes, doc_state) -> Stream:
        """Return the layout of (rows, S) tokens, for decoders with a document state."""
        return Stream.of(src_tokens, None if self.forget_context else starts, lanes, doc_state)

    def read(self, gru: nn.GRU, tokens: Tensor, initial: Optional[Tensor] = None):
        """Run a GRU over (rows, S) tokens, giving (rows, S, d) states and the last states."""
        lengths = tokens.ne(self.padding_idx).sum(dim=1)
        # Packed sequences need right padding; the output has the padding of the tokens again.
        left = tokens[:, 0].eq(self.padding_idx)
        shift = torch.where(left, tokens.size(1) - lengths, 0)
        x = self.dropout(self.embed_tokens(_rolled(tokens, shift)))
        places = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
        return read_rows(gru, x, lengths.clamp(min=1), initial, _rolled(places, shift))

    def _select(self, encoder_out, sentences, beams):
        return {
            "encoder_out": [encoder_out["encoder_out"][0].index_select(1, sentences)],
            "encoder_padding_mask": [
                x.index_select(0, sentences) for x in encoder_out["encoder_padding_mask"]
            ],
            "summary": [x.index_select(0, sentences) for x in encoder_out["summary"]],
            "stream": encoder_out["stream"].of_rows(sentences),
            "remembered": {},
            "row_groups": None,
            "beams": beams,
        }

    def max_positions(self):
        """Return the maximum source length."""
        return MAX_POSITIONS


def read_rows(
    gru: nn.GRU,
    x: Tensor,
    lengths: Tensor,
    initial: Optional[Tensor] = None,
    places: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """Run a GRU over rows of different lengths.

    Args:
        gru: the GRU.
        x: (rows, T, m) inputs, padded on the right.
        lengths: (rows,) number of inputs of each row, at least 1.
        initial: (layers, rows, d) initial states, default: zeros.
        places: (rows, T) positions of the states in the flattened output; default: in order.

    Returns:
        (rows, T, d) states, zeros at padding, and the last states of all layers.
    """
    lengths = lengths.cpu()
    if places is None:
        places = torch.arange(x[..., 0].numel(), device=x.device).view(x.shape[:2])
    packed, packed_places = (
        pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        for values in (x, places)
    )
    states, last = gru(packed, initial)
    flat = placed(states.data, packed_places.data, places.numel())
    return flat.unflatten(0, places.shape), last


def _rolled(x: Tensor, shift: Tensor) -> Tensor:
    """Rotate the columns of (B, S, ...) to the left by ``shift`` (B,)."""
    columns = torch.arange(x.size(1), device=x.device) + shift.unsqueeze(1)
    columns = columns.remainder(x.size(1))
    rows = torch.arange(len(x), device=x.device).unsqueeze(1)
    return x[rows, columns]


class PerSentence(NamedTuple):
    """One vector for each of B sentences, shared by its beams.

    Attributes:
        values: (B, d).
    """

    values: Tensor

    def of_sentences(self, sentences: Tensor) -> "PerSentence":
        """Select sentences by index."""
        return PerSentence(self.values.index_select(0, sentences))

    def for_rows(self, num_rows: int) -> Tensor:
        """Repeat the vectors for the beams of each sentence, giving (rows, d)."""
        return self.values.repeat_interleave(num_rows // len(self.values), dim=0)


class Recurrence(NamedTuple):
    """What the layers of the decoder compute for (rows, T) tokens.

    Attributes:
        words: (rows, T, E) embeddings.
        hidden: (rows, T, d) states of the top layer.
        contexts: (rows, T, l) attention contexts.
        attention: (rows, T, S) attention weights.
    """

    words: Tensor
    hidden: Tensor
    contexts: Tensor
    attention: Tensor


class GRUState(NamedTuple):
    """Incremental state of the decoder.

    Attributes:
        hidden: (B * N, d) state of the attending layer; the N beams of a sentence are adjacent.
        upper: (layers - 1, B * N, d) states of the layers above.
        source: projected source of B sentences.
        beams: number of beams N of each sentence.
        history: representation of earlier sentences for B sentences: a named tuple of tensors with
            ``of_sentences(sentences)``; None for none.
    """

    hidden: Tensor
    upper: Tensor
    source: AttendedStates
    beams: int
    history: Any = None

    @property
    def bsz(self) -> int:
        """Number of sentences B."""
        return len(self.source.states)

    def reorder(self, order: Tensor) -> "GRUState":
        """Reorder, repeat or drop rows by a (rows,) index of former rows."""
        rows = split_order(order, self.bsz, self.beams)
        if rows is None:
            owners = torch.arange(self.bsz, device=order.device).repeat_interleave(self.beams)
            return self._of_sentences(owners)._replace(beams=1).reorder(order)
        state = self if rows.sentences is None else self._of_sentences(rows.sentences)
        hidden, upper = self.hidden.index_select(0, order), self.upper.index_select(1, order)
        return state._replace(hidden=hidden, upper=upper, beams=rows.beams)

    def in_groups(self, groups: RowGroups) -> List["GRUState"]:
        """Cut the state of B sentences, one row each, into groups by the length of the source."""
        if groups.rows is None:
            return [self]
        hidden, upper = groups.select(self.hidden), groups.select(self.upper.transpose(0, 1))
        sources = zip(*(groups.split(x) for x in self.source))
        histories = repeat(None)
        if self.history is not None:
            parts = zip(*(groups.select(x) for x in self.history))
            histories = (type(self.history)(*part) for part in parts)
        return [
            GRUState(one, more.transpose(0, 1), AttendedStates(*source), 1, history)
            for one, more, source, history in zip(hidden, upper, sources, histories)
        ]

    def _of_sentences(self, sentences: Tensor) -> "GRUState":
        history = None if self.history is None else self.history.of_sentences(sentences)
        return self._replace(source=self.source.of_sentences(sentences), history=history)


class GRUDecoder(KeepsState, FairseqIncrementalDecoder):
    """GRU with attention, optional GRU layers above it, and a deep output layer.

    Args:
        dictionary: target dictionary.
        embed_tokens: target embeddings.
        encoder_units: size of encoder states.
        hidden_size: size of decoder states.
        layers: number of layers; the lowest attends.
        attention_dim: size of the hidden layer of attention.
        dropout: dropout of embeddings, between layers and in the output layer.
        share_input_output_embed: whether the output projection shares the target embeddings.
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
        """Return the state before the first token, one row per sentence."""
        if torch.is_grad_enabled():  # a state computed without gradients must not be reused
            return self._init_state(encoder_out)
        remembered = encoder_out["remembered"]
        if "state" not in remembered:  # shared by the search and the reading of its result
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
        """Compute (B, layers * d) pre-activations of the initial states, ``W_s h``."""
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
        """Compute (rows, T, V) logits, or features, and extra outputs."""
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return features if features_only else self.output_layer(features), extra

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """Compute (rows, T, E) features; extra outputs include ``attn`` [(rows, T, S)].

        With ``row_groups`` see :mod:`fairseq_docmt.modules.shared.row_groups`; there are no
        attention weights then.
        """
        if incremental_state is not None:
            return self.prefill(prev_output_tokens[:, -1:], encoder_out, incremental_state)
        state = self.repeated(self.init_state(encoder_out), len(prev_output_tokens))
        groupings = encoder_out["row_groups"]
        targets, groups = self._in_groups(prev_output_tokens, state, groupings)
        parts = [self._forward_sequence(*group) for group in groups]
        features = [self._features(*part, None)[0] for part in parts]
        features = targets.join(features, prev_output_tokens.size(1))
        return packed(features, self._attention(parts, groupings), groupings)

    @staticmethod
    def _in_groups(tokens: Tensor, state: GRUState, groupings: Optional[dict]):
        """Cut a batch into groups of rows of similar length.

        Returns:
            Groups of the targets, and a list with tokens and state of each.
        """
        if tokens.is_cuda:  # more groups are more steps, and the rows of a step cost little
            groupings = None
        targets, sources = target_groups(groupings)
        return targets, list(zip(targets.split(tokens), state.in_groups(sources)))

    @staticmethod
    def _attention(parts: List[Recurrence], groupings: Optional[dict]) -> dict:
        """Return ``attn`` of consecutive rows; None with groups."""
        if groupings is not None:
            return {"attn": [None]}
        return {"attn": [torch.cat([part.attention for part in parts])]}

    def _forward_sequence(self, tokens: Tensor, state: GRUState) -> Recurrence:
        """Read whole sequences (rows, T)."""
        found = self._attend(tokens, state)
        if self.upper is None:
            return found
        hidden, _ = self.upper(self.dropout(found.hidden), state.upper)
        return found._replace(hidden=hidden)

    def prefill(self, new_tokens, encoder_out, incremental_state):
        """Continue the incremental state by (B, T) right-padded tokens in one pass.

        Returns:
            (B, T, E) features and extra outputs; ``incremental_state`` is updated.
        """
        state = self.current_state(incremental_state, encoder_out, len(new_tokens))
        words, hidden, contexts, attention = self._attend(new_tokens, state)
        lengths = new_tokens.ne(self.padding_idx).sum(dim=1)
        rows = torch.arange(len(lengths), device=lengths.device)
        after = state._replace(hidden=hidden[rows, lengths.clamp(min=1) - 1])
        if self.upper is not None:
            hidden, upper = self._read_upper(self.dropout(hidden), state.upper, lengths)
            after = after._replace(upper=upper)
        store_state(incremental_state, after)
        features, extra = self._features(words, hidden, contexts, attention, state.history)
        return features, {"attn": [attention], **extra}

    def output_layer(self, features):
        """Project features to logits."""
        return self.output_projection(features)

    def max_positions(self):
        """Return the maximum target length."""
        return MAX_POSITIONS

    def _attend(self, tokens: Tensor, state: GRUState) -> Recurrence:
        """Read (rows, T) tokens by the attending layer."""
        words = self.dropout(self.embed_tokens(tokens))
        context = self._context_vector(state.history, len(tokens))
        return Recurrence(words, *self.attending(words, state.hidden, state.source, context))

    def _context_vector(self, history, num_rows: int):
        """Return the input of the attending layer from earlier sentences; None for none."""
        return None

    def _features(self, words, hidden, contexts, attention, history):
        """Compute (rows, T, E) features, given earlier sentences, and extra outputs."""
        features = torch.cat([hidden, words, contexts], dim=-1)
        return self.output_dropout(torch.tanh(self.readout(features))), {}

    def _read_upper(self, hidden: Tensor, state: Tensor, lengths: Tensor):
        """Compute top layer states, and last states of all upper layers for each row."""
        if hidden.size(1) == 1:
            return self.upper(hidden, state.contiguous())
        return read_rows(self.upper, hidden, lengths, state.contiguous())
