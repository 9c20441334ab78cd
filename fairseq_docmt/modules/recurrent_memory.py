"""Recurrent memory that summarises earlier sentences (Feng et al. 2022)."""

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
from fairseq.modules import FairseqDropout, SinusoidalPositionalEmbedding
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.utils import get_activation_fn
from torch import Tensor, nn

from fairseq_docmt.modules.decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.encoder import pass_layer_kwargs, wrapped
from fairseq_docmt.modules.layers import AttendedSource, SourceAttention, Sublayers
from fairseq_docmt.modules.stream import DocumentState, RowGroups, Stream
from fairseq_docmt.modules.stream_encoder import StreamEncoder


class ReadSentence(NamedTuple):
    """Token states of one sentence in each of B rows, with which a memory is updated.

    Attributes:
        states: (B, T, C) states.
        present: (B, T) True at tokens, False at padding. Rows without a sentence are False
            throughout.
    """

    states: Tensor
    present: Tensor


class MemoryState(NamedTuple):
    """State of a memory between sentences: memory vectors, and sentences not yet included in them.

    The update with the latest sentences is postponed until the next sentence is processed. It is
    then part of the autograd graph of the next sentence, so that gradients flow through it.

    Attributes:
        memory: (B, m, C) m memory vectors of each row, without the latest sentences.
        sentences: the latest sentences, oldest first.
    """

    memory: Tensor
    sentences: List[ReadSentence]

    def as_doc_state(self, prefix: str) -> DocumentState:
        """Convert to a document state whose keys start with ``prefix``."""
        doc_state = {f"{prefix}.memory": self.memory}
        for number, sentence in enumerate(self.sentences):
            doc_state[f"{prefix}.states.{number}"] = sentence.states
            doc_state[f"{prefix}.present.{number}"] = sentence.present
        return doc_state

    @classmethod
    def of_doc_state(
        cls, doc_state: Optional[DocumentState], prefix: str
    ) -> Optional["MemoryState"]:
        """Restore the state that :meth:`as_doc_state` saved with the same ``prefix``.

        If there is no document state, None is returned.
        """
        if doc_state is None:
            return None
        sentences = []
        while f"{prefix}.states.{len(sentences)}" in doc_state:
            at = len(sentences)
            sentences.append(
                ReadSentence(
                    doc_state[f"{prefix}.states.{at}"], doc_state[f"{prefix}.present.{at}"]
                )
            )
        return cls(doc_state[f"{prefix}.memory"], sentences)


class SentenceMemory(nn.Module):
    """Recurrent memory of one layer: vectors that summarise the earlier sentences of a document.

    Every sentence attends to the memory of the sentences before it (output attention). Afterwards
    the memory is updated with the sentence. See equations 2 to 5 of Feng et al. (2022). As in the
    authors' code, output attention is a sublayer with its own residual connection and layer norm,
    and the initial memory is normalised.

    Args:
        embed_dim: size of states and memory vectors.
        heads: number of attention heads.
        ffn_dim: inner size of the feed-forward network of the update.
        size: number of memory vectors.
        gradient_sentences: number of previous sentences that the gradient of a sentence reaches; 0
            for all previous sentences of the batch.
        dropout, attention_dropout: dropout probabilities of the layer.
        activation: name of the activation function of the feed-forward network.
        normalize_before: whether the layer is pre-norm.
    """

    def __init__(
        self,
        embed_dim: int,
        heads: int,
        ffn_dim: int,
        size: int,
        gradient_sentences: int = 1,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: str = "relu",
        normalize_before: bool = False,
    ):
        super().__init__()
        self.gradient_sentences = gradient_sentences
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.activation = get_activation_fn(activation)
        self.normalize_before = normalize_before
        self.initial = nn.Parameter(torch.randn(size, embed_dim))
        self.initial_norm = nn.LayerNorm(embed_dim)
        self.update_attention = SourceAttention(embed_dim, heads, attention_dropout)
        self.update_norm = nn.LayerNorm(embed_dim)
        self.fc1, self.fc2 = nn.Linear(embed_dim, ffn_dim), nn.Linear(ffn_dim, embed_dim)
        for linear in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.final_norm = nn.LayerNorm(embed_dim)
        self.output_attention = SourceAttention(embed_dim, heads, attention_dropout)
        self.output_norm = nn.LayerNorm(embed_dim)
        positions = SinusoidalPositionalEmbedding.get_embedding(size, embed_dim)
        self.register_buffer("positions", positions, persistent=False)

    # ---- the memory ----------------------------------------------------------------------------

    def first(self, num_rows: int) -> Tensor:
        """Return the initial memory of each row: m learned vectors, (rows, m, C)."""
        return self.initial_norm(self.initial).expand(num_rows, -1, -1)

    def update(self, memory: Tensor, sentence: ReadSentence) -> Tensor:
        """Update a memory with a sentence (equations 2 to 4).

        As in the authors' code, dropout also applies to the residual input.

        Args:
            memory: (B, m, C) m memory vectors of each row before the sentence.
            sentence: states of the sentence.

        Returns:
            (B, m, C) memory after the sentence; unchanged in rows without a sentence.
        """
        absent = ~sentence.present.any(dim=1)
        # Full masking of rows without a sentence would give NaN; their result is unused.
        padding = ~sentence.present & ~absent.unsqueeze(1)
        query = self.dropout(memory + self.positions.to(memory.dtype))
        source = self.update_attention.project_source(sentence.states, padding)
        x = self.dropout(self.update_attention(query, source))
        x = self.update_norm(query + x)
        x = self.final_norm(x + self.dropout(self.fc2(self.dropout(self.activation(self.fc1(x))))))
        return torch.where(absent[:, None, None], memory, x)

    def begin_sentence(
        self, before: Optional[MemoryState], starts: Tensor
    ) -> Tuple[Tensor, MemoryState]:
        """Compute the memory that the next sentence reads.

        The postponed update with the latest sentences takes place here.

        Args:
            before: state before the sentence; None to start from the initial memory.
            starts: (B,) True for rows that start a document; these also start from the initial
                memory.

        Returns:
            (B, m, C) memory, and a memory state. The state is complete when the next sentence has
            been appended to its ``sentences``.
        """
        memory = self.first(len(starts))
        if before is None:
            # In training, update from an empty sentence, so that every parameter has a gradient in
            # every batch, as data-parallel training requires.
            nothing = ReadSentence(memory[:, :1].detach(), starts.new_zeros(len(starts), 1))
            before = MemoryState(memory, [nothing] if self.training else [])
        memory = torch.where(starts[:, None, None], memory, before.memory.to(memory.dtype))
        going_on = ~starts.unsqueeze(1)
        # A checkpoint of training in another precision may have been resumed.
        sentences = [
            ReadSentence(s.states.to(memory.dtype), s.present & going_on) for s in before.sentences
        ]
        chain = [memory]
        for sentence in sentences:
            chain.append(self.update(chain[-1], sentence))
        full = int(len(sentences) == max(self.gradient_sentences, 1))
        base = chain[full].detach() if self.gradient_sentences else chain[full]
        return chain[-1], MemoryState(base, sentences[full:])

    def read_sentences(
        self,
        states: Tensor,
        present: Tensor,
        starts: Tensor,
        lanes: int,
        before: Optional[MemoryState],
        begun: Optional[Tuple[Tensor, MemoryState]] = None,
        columns: Callable[[int], slice] = lambda number: slice(None),
    ) -> Tuple[Tensor, MemoryState]:
        """Compute the memory before each of K consecutive sentences of B lanes.

        The sentences update the memory one after another. A lane is a sequence of documents; lanes
        are processed in parallel.

        Args:
            states: (K * B, T, C) states; the first sentences of all lanes come first.
            present: (K * B, T) True at tokens.
            starts: (K * B,) True for rows that start a document.
            lanes: number of lanes B.
            before: memory state of the B lanes before these sentences; None if there is none.
            begun: result of :meth:`begin_sentence` for the first sentences; None if it has not been
                computed yet.
            columns: function from k, counted from 0, to the slice of the T columns that the k-th
                sentences occupy.

        Returns:
            (K * B, m, C) memory that each sentence reads, and the memory state after the last
            sentences.
        """
        memories, state = [], before
        steps = zip(*(x.unflatten(0, (-1, lanes)) for x in (states, present, starts)))
        for number, (step_states, step_present, step_starts) in enumerate(steps):
            used = columns(number)
            memory, state = begun or self.begin_sentence(state, step_starts)
            begun = None
            memories.append(memory)
            sentence = ReadSentence(step_states[:, used], step_present[:, used])
            state = state._replace(sentences=[*state.sentences, sentence])
        return torch.cat(memories), state

    # ---- output attention ----------------------------------------------------------------------

    def states_of(self, x: Tensor) -> Tensor:
        """Return the states that update the memory.

        In a pre-norm layer this is the layer norm of ``x``, otherwise ``x`` itself.
        """
        return self.output_norm(x) if self.normalize_before else x

    def project_memory(self, memory: Tensor) -> AttendedSource:
        """Project a memory (B, m, C) to the keys and values of output attention."""
        return self.output_attention.project_source(memory)

    def forward(self, x: Tensor, source: AttendedSource) -> Tensor:
        """Attend from states to the memory and add the result to the states (equation 5).

        Args:
            x: (B * N, T, C) states; N consecutive rows share a memory.
            source: keys and values of the memory, see :meth:`project_memory`.

        Returns:
            (B * N, T, C) states.
        """
        y = self.output_attention(self.states_of(x), source)
        return (
            x + self.dropout(y) if self.normalize_before else self.output_norm(x + self.dropout(y))
        )


def build_memories(cfg, side: str) -> nn.ModuleDict:
    """Create the recurrent memories of one side, the ``encoder`` or the ``decoder``.

    The keys of the returned dict are the numbers, as strings, of the layers that have a memory.
    """
    of_side = getattr(cfg, side)
    return nn.ModuleDict(
        {
            str(layer): SentenceMemory(
                of_side.embed_dim,
                of_side.attention_heads,
                of_side.ffn_embed_dim,
                cfg.memory_size,
                cfg.memory_gradient_sentences,
                cfg.dropout,
                cfg.attention_dropout,
                cfg.activation_fn,
                of_side.normalize_before,
            )
            for layer in cfg.memory_layers[side]
        }
    )


class MemoryReader:
    """One pass over a batch that reads and updates the memories of an encoder or decoder.

    When all layers have been computed, ``doc_state`` is the document state after the batch.

    Args:
        side: ``encoder`` or ``decoder``; also the prefix of the keys in the document state.
        memories: memories of the encoder or decoder, by layer number.
        stream: layout of the batch, and the document state before it.
        present: (rows, T) True at tokens, False at padding.
        begun: results of :meth:`SentenceMemory.begin_sentence` that have already been computed, by
            layer number; None if there are none.
    """

    def __init__(
        self,
        side: str,
        memories: nn.ModuleDict,
        stream: Stream,
        present: Tensor,
        begun=None,
    ):
        self.side, self.memories, self.stream, self.present = side, memories, stream, present
        self.groups = stream.groups("source" if side == "encoder" else "target")
        self.begun: Dict[int, Tuple[Tensor, MemoryState]] = begun or {}
        self.doc_state: DocumentState = {}

    def sublayer(self, layer: int):
        """Return the memory sublayer of a layer, or None if the layer has no memory.

        The sublayer is a function from a list of (rows, T, C) states to a list of new states. Both
        lists have one tensor for each group of rows of similar length. The function also updates
        the memory with the sentences and adds the new memory to ``doc_state``.
        """
        if str(layer) not in self.memories:
            return None
        memory, name = self.memories[str(layer)], f"{self.side}.{layer}"

        def read(groups: List[Tensor]) -> List[Tensor]:
            before = MemoryState.of_doc_state(self.stream.doc_state, name)
            states = self.groups.join([memory.states_of(x) for x in groups], self.present.size(1))
            rows = (states, self.present, self.stream.starts)
            seen, after = memory.read_sentences(
                *rows, self.stream.lanes, before, self.begun.get(layer), self.groups.columns_of_step
            )
            self.doc_state.update(after.as_doc_state(name))
            memories = self.groups.select(seen)
            return [memory(x, memory.project_memory(y)) for x, y in zip(groups, memories)]

        return read


class MemoryEncoderLayer(Sublayers, TransformerEncoderLayerBase):
    """Encoder layer with an optional memory between attention and feed-forward network."""

    def forward(self, x, encoder_padding_mask, attn_mask=None, memory=None, groups=None):
        """Apply the layer to (T, B, C) states and return (T, B, C).

        Args:
            x, encoder_padding_mask, attn_mask: see fairseq's encoder layer.
            memory: memory sublayer, see :meth:`MemoryReader.sublayer`; None for a layer without
                memory.
            groups: division of the batch into groups of rows of similar length; None for one group.
        """
        groups, length = groups or RowGroups(None), len(x)
        parts = groups.split(x.transpose(0, 1))
        paddings = groups.split(encoder_padding_mask)
        if memory is None:
            stock = super().forward
            parts = [_length_first(stock, y, p, attn_mask) for y, p in zip(parts, paddings)]
        else:
            parts = [_length_first(self._attend, y, p) for y, p in zip(parts, paddings)]
            parts = [_length_first(self._feed_forward, y) for y in memory(parts)]
        return groups.join(parts, length).transpose(0, 1)

    def _attend(self, x, padding):
        def attention(y):
            return self.self_attn(y, y, y, padding, need_weights=False)[0]

        return self.residual(x, self.self_attn_layer_norm, attention)

    def _feed_forward(self, x):
        return self.residual(x, self.final_layer_norm, self.feed_forward)


def _length_first(function, x, *more):
    """Apply a function that expects (T, B, C) states to batch-first states ``x``, (B, T, C).

    The result is batch-first again. Further arguments of the function are given in ``more``.
    """
    return function(x.transpose(0, 1), *more).transpose(0, 1)


class MemoryTransformerEncoder(StreamEncoder):
    """Transformer encoder with recurrent memories in some layers (Feng et al. 2022).

    Args:
        cfg, dictionary, embed_tokens: see fairseq's transformer.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.memories = build_memories(cfg, "encoder")

    def build_encoder_layer(self, cfg):
        """Build an encoder layer that accepts a memory sublayer."""
        return wrapped(MemoryEncoderLayer(cfg), cfg)

    def encode(self, src_tokens, stream):
        """Encode the sentences of a batch and update the memories with them.

        Rows are computed in groups of similar length. Each layer processes all groups before the
        next layer starts, because its memory needs all sentences.

        Besides the usual encoder output, the result has ``doc_state``, the document state of the
        encoder after the batch, and ``begun``, an empty dict in which the decoder keeps its
        memories for reuse.
        """
        reader = MemoryReader("encoder", self.memories, stream, src_tokens.ne(self.padding_idx))
        sublayers = [reader.sublayer(layer) for layer in range(len(self.layers))]
        with pass_layer_kwargs(self.layers, memory=sublayers, groups=reader.groups):
            output = super().encode(src_tokens, stream.ungrouped())
        return {**output, "doc_state": reader.doc_state, "begun": {}}

    def _select(self, encoder_out, sentences, beams):
        return {**super()._select(encoder_out, sentences, beams), "begun": {}}


class MemoryTransformerDecoder(StatefulDecoder):
    """Transformer decoder with recurrent memories in some layers (Feng et al. 2022).

    Args:
        cfg, dictionary, embed_tokens: see fairseq's transformer.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.memories = build_memories(cfg, "decoder")

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute features of whole sentences and update the memories (teacher forcing).

        See :meth:`StatefulDecoder.forward_sequence`; the extra outputs include the new document
        state, ``doc_state``.
        """
        stream = encoder_out["stream"].for_rows(len(tokens))
        begun = encoder_out["begun"] if stream is encoder_out["stream"] else None
        stream = stream if weights_of is None else stream.ungrouped()
        targets, sources = stream.groups("target"), stream.groups("attended")
        reader = MemoryReader("decoder", self.memories, stream, tokens.ne(self.padding_idx), begun)
        source, padding, _ = batch_first_source(encoder_out)
        encoded = list(zip(sources.split(source), sources.split(padding)))
        groups, _, weights = self.run_layers(
            targets.split(x),
            lambda number, layer, _: [layer.init_state(*each) for each in encoded],
            reader.sublayer,
            weights_of,
        )
        x = targets.join(groups, x.size(1))
        doc_state = {**encoder_out["doc_state"], **reader.doc_state}
        extra = {"attn": weights or [None], "doc_state": doc_state, **stream.positions()}
        return stream.at_loss(x), extra

    def init_layers(self, encoder_out):
        """Return the initial state of each layer, and None because the layers share no state.

        Each state has one row per sentence. In a layer with a memory, it includes the keys and
        values of the memory that the sentence reads.
        """
        layers, _ = super().init_layers(encoder_out)
        stream = encoder_out["stream"]
        for name, memory in self.memories.items():
            before = MemoryState.of_doc_state(stream.doc_state, f"decoder.{name}")
            begun = memory.begin_sentence(before, stream.starts)
            if not torch.is_grad_enabled():  # no gradients: the result can be reused
                encoder_out["begun"][int(name)] = begun
            attended = memory.project_memory(begun[0])
            layers[int(name)] = layers[int(name)]._replace(memory=(attended,))
        return layers, None

    def read(self, x, tokens, state):
        """Run the decoder over one or more new tokens of each row, with attention to the memories.

        For the arguments, see :meth:`StatefulDecoder.read`.

        Returns:
            (rows, T, C) features, new layer states, and None because the layers share no state.
        """

        def sublayer(number):
            if not state.layers[number].memory:
                return None
            (attended,), memory = state.layers[number].memory, self.memories[str(number)]
            return lambda groups: [memory(y, attended) for y in groups]

        padding = self._padding(tokens)
        return (*self.extend_layers(x, state, padding, between=sublayer), None)
