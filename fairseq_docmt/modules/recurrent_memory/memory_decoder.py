"""Encoder and decoder of ``memory_transformer``."""

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.recurrent_memory.sentence_memory import MemoryState, SentenceMemory
from fairseq_docmt.modules.shared.decoder_layer import Sublayers
from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.layer_kwargs import pass_layer_kwargs
from fairseq_docmt.modules.shared.row_groups import (
    RowGroups,
    groups_of,
    packed,
    target_groups,
    training_groups,
)
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSourceEncoder, wrapped
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.shared.stream import Stream


def build_memories(cfg, side, layers: Sequence[int]) -> nn.ModuleDict:
    """Create the memories of the encoder or decoder, by layer number.

    Args:
        cfg: options of the model.
        side: ``cfg.encoder`` or ``cfg.decoder``.
        layers: numbers of the layers with a memory.
    """
    return nn.ModuleDict(
        {
            str(layer): SentenceMemory(
                side.embed_dim,
                side.attention_heads,
                side.ffn_embed_dim,
                cfg.memory_size,
                cfg.memory_gradient_sentences,
                cfg.dropout,
                cfg.attention_dropout,
                cfg.activation_fn,
                side.normalize_before,
            )
            for layer in layers
        }
    )


class MemoryReader:
    """Reads and updates the memories of one side over the consecutive sentences of a batch.

    The document state after the batch is collected in ``doc_state``.

    Args:
        side: ``encoder`` or ``decoder``, a prefix of names in the document state.
        memories: memories of this side, by layer number.
        stream: layout of the batch.
        present: (rows, T) True at tokens, False at padding.
        groups: rows of similar length.
        begun: precomputed results of :meth:`SentenceMemory.begin_sentence`, by layer number.
    """

    def __init__(
        self,
        side: str,
        memories: nn.ModuleDict,
        stream: Stream,
        present: Tensor,
        groups: RowGroups,
        begun=None,
    ):
        self.side, self.memories, self.stream, self.present = side, memories, stream, present
        self.groups = groups
        self.begun: Dict[int, Tuple[Tensor, MemoryState]] = begun or {}
        self.doc_state: DocumentState = {}

    def sublayer(self, layer: int):
        """Return the memory sublayer of a layer, or None.

        It is a function of the (rows, T, C) states of each group.
        """
        if str(layer) not in self.memories:
            return None
        memory, name = self.memories[str(layer)], f"{self.side}.{layer}"

        def read(groups: List[Tensor]) -> List[Tensor]:
            before = MemoryState.of_doc_state(self.stream.doc_state, name)
            states = self.groups.join([memory.states_of(x) for x in groups], self.present.size(1))
            rows, columns = (states, self.present, self.stream.starts), self.groups.steps()
            seen, after = memory.read_sentences(
                *rows, self.stream.lanes, before, self.begun.get(layer), columns
            )
            self.doc_state.update(after.as_doc_state(name))
            memories = self.groups.select(seen)
            return [memory(x, memory.project_memory(y)) for x, y in zip(groups, memories)]

        return read


class MemoryEncoderLayer(Sublayers, TransformerEncoderLayerBase):
    """Encoder layer with an optional memory between attention and feed-forward network."""

    def forward(self, x, encoder_padding_mask, attn_mask=None, memory=None, groups=None):
        """See the base class.

        Args:
            x, encoder_padding_mask, attn_mask: see the base class.
            memory: function of the (rows, S, C) states of each group, or None.
            groups: rows of similar length; None for all rows together.
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
    """Apply a function of (T, B, C) states to (B, T, C) states."""
    return function(x.transpose(0, 1), *more).transpose(0, 1)


class MemoryTransformerEncoder(SharedSourceEncoder):
    """Transformer encoder with memories in some layers.

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
        memory_layers: numbers of the layers with a memory.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int, memory_layers: List[int]):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.memories = build_memories(cfg, cfg.encoder, memory_layers)
        self.forget_memory = cfg.forget_memory

    def build_encoder_layer(self, cfg):
        """See the base class."""
        return wrapped(MemoryEncoderLayer(cfg), cfg)

    def forward(
        self,
        src_tokens,
        src_lengths=None,
        return_all_hiddens=False,
        token_embeddings=None,
        starts: Optional[Tensor] = None,
        lanes: Optional[int] = None,
        doc_state: Optional[DocumentState] = None,
        row_groups: Optional[dict] = None,
    ):
        """Encode consecutive sentences.

        Args:
            src_tokens, src_lengths, return_all_hiddens, token_embeddings: see the base class.
            starts: (rows,) True for rows that start a document; default: all.
            lanes: number of lanes; default: number of rows.
            doc_state: incoming document state of each lane, None for none.
            row_groups: :class:`~fairseq_docmt.data.batch.RowGroupings`, or None.

        Returns:
            Output of the base class with ``stream``, ``doc_state``, ``begun`` and ``row_groups``
            (:class:`~fairseq_docmt.modules.shared.encoder_output.EncoderOutput`).
        """
        stream = Stream.of(src_tokens, None if self.forget_memory else starts, lanes, doc_state)
        groups, present = groups_of(row_groups, "source"), src_tokens.ne(self.padding_idx)
        reader = MemoryReader("encoder", self.memories, stream, present, groups)
        sublayers = [reader.sublayer(layer) for layer in range(len(self.layers))]
        with pass_layer_kwargs(self.layers, memory=sublayers, groups=groups):
            output = super().forward(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        return {
            **output,
            "stream": stream,
            "doc_state": reader.doc_state,
            "begun": {},
            "row_groups": row_groups,
        }

    def _select(self, encoder_out, sentences, beams):
        stream = encoder_out["stream"].of_rows(sentences)
        selected = super()._select(encoder_out, sentences, beams)
        return {**selected, "stream": stream, "doc_state": {}, "begun": {}, "row_groups": None}


class MemoryTransformerDecoder(StatefulDecoder):
    """Transformer decoder with memories in some layers (Feng et al. 2022).

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
        memory_layers: numbers of the layers with a memory.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int, memory_layers: List[int]):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.memories = build_memories(cfg, cfg.decoder, memory_layers)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute the features of whole sequences.

        Args:
            x, tokens, encoder_out, weights_of: see the base class.

        Returns:
            (rows, T, C) features, and extra outputs with the new document state, ``doc_state``.
            With ``row_groups`` the features are those of the N positions with loss, (1, N, C), and
            the extra outputs have their indices in the flattened targets, ``positions``.
        """
        stream = encoder_out["stream"].for_rows(len(tokens))
        one_row_each = stream is encoder_out["stream"]
        groupings = training_groups(encoder_out, len(tokens), weights_of)
        targets, sources = target_groups(groupings)
        present = tokens.ne(self.padding_idx)
        begun = encoder_out["begun"] if one_row_each else None
        reader = MemoryReader("decoder", self.memories, stream, present, targets, begun)
        source, padding, _ = batch_first_source(encoder_out)
        encoded = list(zip(sources.split(source), sources.split(padding)))
        groups, _, weights = self.run_layers(
            targets.split(x),
            lambda number, layer, _: [layer.init_state(*each) for each in encoded],
            reader.sublayer,
            weights_of,
        )
        x = targets.join(groups, x.size(1))
        extra = {
            "attn": weights or [None],
            "doc_state": {**encoder_out["doc_state"], **reader.doc_state},
        }
        return packed(x, extra, groupings)

    def init_layers(self, encoder_out):
        """See the base class."""
        layers, _ = super().init_layers(encoder_out)
        stream = encoder_out["stream"]
        for name, memory in self.memories.items():
            before = MemoryState.of_doc_state(stream.doc_state, f"decoder.{name}")
            begun = memory.begin_sentence(before, stream.starts)
            if not torch.is_grad_enabled():  # no gradients: the result can be reused
                encoder_out["begun"][int(name)] = begun
            attended = memory.project_memory(begun[0])
            layers[int(name)] = layers[int(name)]._replace(memory=attended)
        return layers, None

    def read(self, x, tokens, state):
        """See the base class."""

        def sublayer(number):
            attended = state.layers[number].memory
            if attended is None:
                return None
            memory = self.memories[str(number)]
            return lambda groups: [memory(y, attended) for y in groups]

        x, layers = self.extend_layers(x, state, self._padding(tokens), between=sublayer)
        return x, layers, None, {}
