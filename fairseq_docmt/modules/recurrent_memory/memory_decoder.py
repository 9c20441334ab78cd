"""Encoder and decoder of ``memory_transformer``."""

from typing import Dict, List, Optional, Sequence, Tuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.recurrent_memory.sentence_memory import MemoryState, SentenceMemory
from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer, Sublayers
from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.full_attention import CausalAttention, SourceAttention
from fairseq_docmt.modules.shared.layer_kwargs import pass_layer_kwargs
from fairseq_docmt.modules.shared.layer_state import AttentionLayerState
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSourceEncoder, wrapped
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.shared.stream import Stream, side_by_side


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
        begun: precomputed results of :meth:`SentenceMemory.begin_sentence`, by layer number.
    """

    def __init__(
        self, side: str, memories: nn.ModuleDict, stream: Stream, present: Tensor, begun=None
    ):
        self.side, self.memories, self.stream, self.present = side, memories, stream, present
        self.begun: Dict[int, Tuple[Tensor, MemoryState]] = begun or {}
        self.doc_state: DocumentState = {}

    def sublayer(self, layer: int):
        """Return the memory sublayer of a layer, a function of (rows, T, C) states, or None."""
        if str(layer) not in self.memories:
            return None
        memory, name = self.memories[str(layer)], f"{self.side}.{layer}"

        def read(x: Tensor) -> Tensor:
            before = MemoryState.of_doc_state(self.stream.doc_state, name)
            begun = self.begun.get(layer)
            seen, after = self._read_sentences(memory, memory.states_of(x), before, begun)
            self.doc_state.update(after.as_doc_state(name))
            return memory(x, memory.project_memory(seen))

        return read

    def _read_sentences(self, memory: SentenceMemory, states: Tensor, before, begun):
        """Return the memory of each row and the state after the batch.

        See :meth:`SentenceMemory.read_sentences`. With copied lanes, memories are updated from the
        copies, which read the memory as a constant: the gradient of a later sentence reaches the
        copies but not the sentences before them.
        """
        stream, rows = self.stream, (states, self.present, self.stream.starts)
        if not stream.copied:
            return memory.read_sentences(*rows, stream.lanes, before, begun)
        lanes = stream.lanes // 2
        seen, after = memory.read_sentences(*stream.copies(*rows), lanes, before)
        return side_by_side(seen, seen.detach(), lanes), after


class MemoryEncoderLayer(Sublayers, TransformerEncoderLayerBase):
    """Encoder layer with an optional memory between attention and feed-forward network."""

    def forward(self, x, encoder_padding_mask, attn_mask=None, memory=None):
        """See the base class; ``memory`` is a function of (B, S, C) states, or None."""
        if memory is None:
            return super().forward(x, encoder_padding_mask, attn_mask)
        x = self.residual(
            x,
            self.self_attn_layer_norm,
            lambda y: self.self_attn(y, y, y, encoder_padding_mask, need_weights=False)[0],
        )
        x = memory(x.transpose(0, 1)).transpose(0, 1)
        return self.residual(x, self.final_layer_norm, self.feed_forward)


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
        copied: bool = False,
    ):
        """Encode consecutive sentences.

        Args:
            src_tokens, src_lengths, return_all_hiddens, token_embeddings: see the base class.
            starts: (rows,) True for rows that start a document; default: all.
            lanes: number of lanes; default: number of rows.
            doc_state: incoming document state of each lane, None for none.
            copied: see :class:`Stream`.

        Returns:
            Output of the base class with ``stream``, ``doc_state`` and ``begun``
            (:class:`~fairseq_docmt.modules.shared.encoder_output.EncoderOutput`).
        """
        stream = Stream.of(src_tokens, None if self.forget_memory else starts, lanes, doc_state)
        stream = stream._replace(copied=copied)
        reader = MemoryReader("encoder", self.memories, stream, src_tokens.ne(self.padding_idx))
        sublayers = [reader.sublayer(layer) for layer in range(len(self.layers))]
        with pass_layer_kwargs(self.layers, memory=sublayers):
            output = super().forward(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        return {**output, "stream": stream, "doc_state": reader.doc_state, "begun": {}}

    def _select(self, encoder_out, sentences, beams):
        stream = encoder_out["stream"].of_rows(sentences)
        selected = super()._select(encoder_out, sentences, beams)
        return {**selected, "stream": stream, "doc_state": {}, "begun": {}}


class MemoryDecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with an optional memory between causal and cross attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        return CausalAttention(embed_dim, cfg.decoder.attention_heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """See the base class."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)

    def forward(self, x: Tensor, causal, cross, memory=None) -> Tensor:
        """Compute whole sequences (rows, T, C) with the given functions, see :meth:`sublayers`."""
        return self.sublayers(x, causal, cross, memory)

    def extend(
        self, x: Tensor, state: AttentionLayerState, padding: Optional[Tensor], memory
    ) -> Tuple[Tensor, AttentionLayerState]:
        """Continue a state by one or more tokens.

        Args:
            x: (rows, T, C) input, right-padded; the beams of a sentence are adjacent.
            state: state before these tokens.
            padding: (rows, T) True at padding; None without padding.
            memory: :class:`SentenceMemory` of the layer, or None.

        Returns:
            (rows, T, C) output and the new state.
        """
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y, padding, state.recent, need_state=True)
            return y

        def cross(y):
            return self.encoder_attn(y, state.source)

        def remembered(y):
            return memory(y, state.memory)

        x = self.sublayers(x, causal, cross, None if memory is None else remembered)
        return x, state._replace(**new)


class MemoryTransformerDecoder(StatefulDecoder):
    """Transformer decoder with memories in some layers (Feng et al. 2022).

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
        memory_layers: numbers of the layers with a memory.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int, memory_layers: List[int]):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.memories = build_memories(cfg, cfg.decoder, memory_layers)

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See the base class."""
        return wrapped(MemoryDecoderLayer(cfg, no_encoder_attn), cfg)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """See the base class; the extra outputs include the new document state, ``doc_state``."""
        source, source_padding, _ = batch_first_source(encoder_out)
        present = tokens.ne(self.padding_idx)
        stream = encoder_out["stream"].for_rows(len(tokens))
        # Reuse precomputed memories only if there is one row per sentence.
        begun = encoder_out["begun"] if stream is encoder_out["stream"] else None
        reader = MemoryReader("decoder", self.memories, stream, present, begun)
        inner_states, padding, attention = [x], self._padding(tokens), []
        for number, layer in enumerate(self.layers):
            attended = layer.encoder_attn.project_source(source, source_padding)

            def cross(y, layer=layer, attended=attended, number=number):
                if number == weights_of:
                    attention.append(layer.encoder_attn.weights(y, attended).mean(dim=1))
                return layer.encoder_attn(y, attended)

            x = layer(
                x,
                lambda y, layer=layer: layer.self_attn(y, padding)[0],
                cross,
                reader.sublayer(number),
            )
            inner_states.append(x)
        doc_state = {**encoder_out["doc_state"], **reader.doc_state}
        if stream.copied:  # copies have no loss
            (x,) = stream.sentences(x)
        return x, {
            "inner_states": inner_states,
            "attn": attention or [None],
            "doc_state": doc_state,
        }

    def init_layers(self, encoder_out):
        """See the base class."""
        source, padding, _ = batch_first_source(encoder_out)
        stream, layers = encoder_out["stream"], []
        for number, layer in enumerate(self.layers):
            memory = self._memory(number)
            if memory is not None:
                before = MemoryState.of_doc_state(stream.doc_state, f"decoder.{number}")
                begun = memory.begin_sentence(before, stream.starts)
                if not torch.is_grad_enabled():  # no gradients: the result can be reused
                    encoder_out["begun"][number] = begun
                memory = memory.project_memory(begun[0])
            attended = layer.encoder_attn.project_source(source, padding)
            layers.append(AttentionLayerState(None, attended, 1, memory))
        return layers, None

    def read(self, x, tokens, state):
        """See the base class."""
        padding, layers = self._padding(tokens), []
        for number, (layer, before) in enumerate(zip(self.layers, state.layers)):
            x, after = layer.extend(x, before, padding, self._memory(number))
            layers.append(after)
        return x, layers, None, {}

    def step(self, x, tokens, state):
        """See the base class."""
        x, layers, rest, extra = self.read(x.unsqueeze(1), tokens.unsqueeze(1), state)
        return x.squeeze(1), layers, rest, extra

    def _memory(self, layer: int) -> Optional[SentenceMemory]:
        return self.memories[str(layer)] if str(layer) in self.memories else None
