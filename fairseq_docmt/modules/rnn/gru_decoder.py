"""Decoder of ``rnnsearch``: additive attention and a GRU (Bahdanau et al. 2015)."""

from itertools import repeat
from typing import Any, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.models import FairseqIncrementalDecoder
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_docmt.modules.rnn.gru_encoder import MAX_POSITIONS, init_uniform, read_rows
from fairseq_docmt.modules.search_state import KeepsState, split_order, store_state
from fairseq_docmt.modules.stream import RowGroups, Stream
from fairseq_docmt.ops.attentive_gru import (
    AttentionParts,
    attentive_gru,
    attentive_gru_without_gradients,
)


class AttendedStates(NamedTuple):
    """Encoder states of B sources with S positions, and their projections for the decoder's GRU.

    They are shared by the beams of a sentence.

    Attributes:
        states: (B, S, l) encoder states of size l.
        keys: (B, S, a) attention keys of size a.
        gates: (B, S, 3 d) contribution of each state to the reset gate, the update gate and the
            candidate of a GRU of size d.
        padding: (B, S) True at padding; None without padding.
    """

    states: Tensor
    keys: Tensor
    gates: Tensor
    padding: Optional[Tensor]

    def columns(self, columns: slice) -> "AttendedStates":
        """Restrict the states to the source positions in the slice ``columns``."""
        return AttendedStates(*(None if x is None else x[:, columns] for x in self))

    def of_sentences(self, sentences: Tensor) -> "AttendedStates":
        """Select the states of the sentences with the indices ``sentences``, (n,)."""
        return AttendedStates(*(None if x is None else x.index_select(0, sentences) for x in self))


class AttentiveGRU(nn.Module):
    """GRU with additive attention to the source at every step.

    ``c_t = attention(s_{t-1}, x_t; h)`` and ``s_t = GRU(s_{t-1}, [x_t; c_t])``, where h are the
    encoder states and x_t is the embedding of the last word (Tu et al. 2018, equations 3 and 4). As
    in their section 4.1, the query of attention depends on the last word, not only on the last
    state.

    Everything independent of the last state is computed for all steps at once: the projections of
    the inputs and of the source. The gates are linear in the context vector, a weighted sum of
    encoder states. Each encoder state is therefore projected to the gates once, and the context
    vectors are computed only after the recurrence.

    Args:
        input_dim: size of inputs x.
        source_dim: size l of encoder states.
        hidden_dim: size d of the state s.
        attention_dim: size a of the hidden layer of attention; default: ``hidden_dim``.
    """

    def __init__(
        self,
        input_dim: int,
        source_dim: int,
        hidden_dim: int,
        attention_dim: Optional[int] = None,
    ):
        super().__init__()
        attention_dim = attention_dim or hidden_dim
        self.hidden_dim, self.attention_dim = hidden_dim, attention_dim
        # One projection each of input and state gives the attention query and the gates of the GRU.
        self.input_proj = nn.Linear(input_dim, attention_dim + 3 * hidden_dim)
        self.source_gates = nn.Linear(source_dim, 3 * hidden_dim, bias=False)
        self.state_proj = nn.Linear(hidden_dim, attention_dim + 3 * hidden_dim)
        self.key_proj = nn.Linear(source_dim, attention_dim, bias=False)
        self.energy = nn.Parameter(torch.empty(attention_dim))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden_dim**-0.5), hidden_dim**-0.5)

    def project_source(self, states: Tensor, padding: Optional[Tensor]) -> AttendedStates:
        """Compute all projections of the encoder states that the decoding steps need.

        These are the attention keys and the contribution of each encoder state to the gates of the
        GRU. They are the same in all steps. They are returned together with the states and the
        padding mask, which hides padding from attention.

        Args:
            states: (B, S, l) encoder states of size l.
            padding: (B, S) True at padding; None without padding.
        """
        return AttendedStates(states, self.key_proj(states), self.source_gates(states), padding)

    def forward(
        self, x: Tensor, state: Tensor, source: AttendedStates, gates: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Run the GRU over T inputs, with attention to the source at every step.

        Args:
            x: (B * N, T, input_dim) inputs; the N beams of a sentence are adjacent.
            state: (B * N, d) state before the first step.
            source: projected encoder states of B sentences with S positions, from
                :meth:`project_source`.
            gates: (B * N, 3 d) constant added to the input of the gates at every step, or None.

        Returns:
            (B * N, T, d) states, (B * N, T, l) context vectors, (B * N, T, S) attention weights.
        """
        parts = AttentionParts(source.keys, source.gates, source.padding)
        from_input = self.input_proj(x)
        if gates is not None:
            from_input = from_input + F.pad(gates, (self.attention_dim, 0)).unsqueeze(1)
        if torch.is_grad_enabled():
            weight, bias = self.state_proj.weight, self.state_proj.bias
            states, attention = attentive_gru(from_input, state, parts, weight, bias, self.energy)
        else:  # the projection may have packed weights
            states, attention = attentive_gru_without_gradients(
                from_input, state, parts, self.state_proj, self.energy
            )
        bsz, (rows, length) = len(source.states), x.shape[:2]
        contexts = attention.view(bsz, -1, attention.size(-1)) @ source.states
        return states, contexts.view(rows, length, -1), attention


class PerSentence(NamedTuple):
    """One vector for each of B sentences, shared by its beams.

    Attributes:
        values: (B, d) vectors.
    """

    values: Tensor

    def of_sentences(self, sentences: Tensor) -> "PerSentence":
        """Select the vectors of the sentences with the indices ``sentences``, (n,)."""
        return PerSentence(self.values.index_select(0, sentences))

    def for_rows(self, num_rows: int) -> Tensor:
        """Repeat each vector for the beams of its sentence, giving (``num_rows``, d)."""
        return self.values.repeat_interleave(num_rows // len(self.values), dim=0)


class Recurrence(NamedTuple):
    """Results of the recurrent layers for (rows, T) decoder input.

    :class:`GRUDecoder` computes the features from all of them except ``attention``.

    Attributes:
        words: (rows, T, E) embeddings of the input.
        hidden: (rows, T, d) states of the top layer.
        contexts: (rows, T, l) attention contexts, weighted sums of encoder states.
        attention: (rows, T, S) attention weights.
    """

    words: Tensor
    hidden: Tensor
    contexts: Tensor
    attention: Tensor


class GRUState(NamedTuple):
    """Incremental state of a decoder with GRUs of size d, for B sentences with N beams each.

    Attributes:
        hidden: (B * N, d) state of the lowest layer, which attends to the source; the beams of a
            sentence are adjacent.
        upper: (layers - 1, B * N, d) states of the layers above.
        source: projected encoder states of B sentences.
        beams: number of beams N of each sentence.
        history: representation of the context of each of the B sentences, for example of previous
            sentences: a named tuple of tensors with a method ``of_sentences(sentences)``; None
            without context.
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
        """Return the state for a new order of batch rows.

        Rows may be repeated or left out; ``order`` has the former index of each new row.
        """
        rows = split_order(order, self.bsz, self.beams)
        state = self if rows.sentences is None else self._of_sentences(rows.sentences)
        hidden, upper = self.hidden.index_select(0, order), self.upper.index_select(1, order)
        return state._replace(hidden=hidden, upper=upper, beams=rows.beams)

    def in_groups(self, groups: RowGroups) -> List["GRUState"]:
        """Split a state with one row per sentence into one state for each group of rows."""
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
        layers: number of layers; the lowest attends to the source.
        attention_dim: size of the hidden layer of attention.
        dropout: dropout probability on embeddings, between layers and in the output layer.
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
        """Return the state before the first token, with one row per sentence.

        Without gradients, the state is computed only once for each encoder output.
        """
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
        """Compute the initial states of all layers before the tanh, (B, layers * d).

        They are a projection ``W_s h`` of the first backward state h of the encoder.
        """
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
        """Return (rows, T, vocabulary) logits, or features if requested, and extra outputs.

        The features, (rows, T, E) with embedding size E, are the input of the output projection.
        """
        features, extra = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        return features if features_only else self.output_layer(features), extra

    def extract_features(self, prev_output_tokens, encoder_out, incremental_state=None, **_):
        """Compute (rows, T, E) features, with attention weights in ``attn`` [(rows, T, S)].

        E is the embedding size. With an incremental state, only the last token is read. If the
        batch is divided into groups of rows (:mod:`fairseq_docmt.modules.stream`), only the
        features that contribute to the loss are returned, and no attention weights.
        """
        if incremental_state is not None:
            return self.prefill(prev_output_tokens[:, -1:], encoder_out, incremental_state)
        state = self.repeated(self.init_state(encoder_out), len(prev_output_tokens))
        stream = encoder_out["stream"]
        targets, groups = self._in_groups(prev_output_tokens, state, stream)
        parts = [self._forward_sequence(*group) for group in groups]
        features = [self._features(*part, None)[0] for part in parts]
        features = targets.join(features, prev_output_tokens.size(1))
        return stream.at_loss(features), self._extra(parts, stream)

    @staticmethod
    def _in_groups(tokens: Tensor, state: GRUState, stream: Stream):
        """Split a batch into groups of rows of similar length; on a GPU it stays one group.

        Args:
            tokens: (rows, T) decoder input.
            state: state before the first token, with one row per sentence.
            stream: layout of the batch, with its groups of rows.

        Returns:
            The division into groups, and a list with the tokens and the state of each group.
        """
        if tokens.is_cuda:  # more groups are more steps, and the rows of a step cost little
            stream = stream.ungrouped()
        targets, sources = stream.groups("target"), stream.groups("attended")
        return targets, list(zip(targets.split(tokens), state.in_groups(sources)))

    @staticmethod
    def _extra(parts: List[Recurrence], stream: Stream) -> dict:
        """Return the extra outputs of whole sequences.

        They include ``attn``, the attention weights of all rows. If the batch is divided into
        groups of rows, they have ``positions`` instead, the indices of the targets that contribute
        to the loss.

        Args:
            parts: results for consecutive parts of the batch.
            stream: layout of the batch, with its groups of rows.
        """
        if stream.row_groups is not None:
            return {"attn": [None], **stream.positions()}
        return {"attn": [torch.cat([part.attention for part in parts])]}

    def _forward_sequence(self, tokens: Tensor, state: GRUState) -> Recurrence:
        """Run all layers over (rows, T) tokens of whole sequences, starting from ``state``."""
        found = self._attend(tokens, state)
        if self.upper is None:
            return found
        hidden, _ = self.upper(self.dropout(found.hidden), state.upper)
        return found._replace(hidden=hidden)

    def prefill(self, new_tokens, encoder_out, incremental_state):
        """Read (B, T) right-padded tokens in a single pass and update the incremental state.

        Returns:
            (B, T, E) features of embedding size E, and extra outputs with the attention weights in
            ``attn`` [(B, T, S)].
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
        """Return a number above any target length, because a GRU has no maximum length."""
        return MAX_POSITIONS

    def _attend(self, tokens: Tensor, state: GRUState) -> Recurrence:
        """Run only the lowest layer, which attends to the source, over (rows, T) tokens."""
        words = self.dropout(self.embed_tokens(tokens))
        context = self._context_vector(state.history, len(tokens))
        return Recurrence(words, *self.attending(words, state.hidden, state.source, context))

    def _context_vector(self, history, num_rows: int):
        """Return the additional input of the lowest layer that depends on the context, or None.

        It is the last argument of the layer's ``forward``: for :class:`AttentiveGRU`, a (rows, 3 d)
        tensor that is added to the gates. Subclasses compute it from ``history``, the
        representation of the context; this base class returns None.
        """
        return None

    def _features(self, words, hidden, contexts, attention, history):
        """Compute features from word embeddings, states and attention contexts.

        Subclasses may also use ``attention``, the attention weights, and ``history``, the
        representation of the context. For shapes, see :class:`Recurrence`.

        Returns:
            (rows, T, E) features of embedding size E, and a dictionary of extra outputs.
        """
        features = torch.cat([hidden, words, contexts], dim=-1)
        return self.output_dropout(torch.tanh(self.readout(features))), {}

    def _read_upper(self, hidden: Tensor, state: Tensor, lengths: Tensor):
        """Run the layers above the lowest.

        Args:
            hidden: (rows, T, d) states of the lowest layer.
            state: (layers - 1, rows, d) states of the upper layers before these tokens.
            lengths: (rows,) number of tokens of each row.

        Returns:
            (rows, T, d) states of the top layer, and (layers - 1, rows, d) states of the upper
            layers after the last token of each row.
        """
        if hidden.size(1) == 1:
            return self.upper(hidden, state.contiguous())
        return read_rows(self.upper, hidden, lengths, state.contiguous())
