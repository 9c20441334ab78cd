"""The decoder layer of all transformers with their own attention, and its state in a search."""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from fairseq_docmt.modules.attention import CausalAttention, SourceAttention
from fairseq_docmt.modules.search_state import BeamRows


class LayerState(NamedTuple):
    """State of a decoder layer after some target tokens.

    Attributes:
        recent: what causal attention needs of these tokens, with ``reorder(rows)``; None before the
            first token.
        source: what cross attention reads, shared by the beams of a sentence, with
            ``of_sentences(sentences)``.
        beams: number of beams of each sentence.
        memory: what a further attention of the layer reads, shared by the beams too, with
            ``of_sentences(sentences)``: a memory or previous sentences; None without one.
    """

    recent: Any
    source: Any
    beams: int
    memory: Any = None

    def reorder(self, rows: BeamRows) -> "LayerState":
        """Select sentences and reorder, repeat or drop their beams."""
        recent = None if self.recent is None else self.recent.reorder(rows)
        state = self._replace(recent=recent, beams=rows.beams)
        if rows.sentences is None:
            return state
        memory = None if self.memory is None else self.memory.of_sentences(rows.sentences)
        return state._replace(source=self.source.of_sentences(rows.sentences), memory=memory)


class Sublayers:
    """Residual connections, layer norms and feed-forward network of fairseq's layers."""

    def residual(self, x, norm, sublayer):
        """Apply a sublayer with dropout, residual connection and pre- or post-norm.

        Args:
            x: (..., C) input.
            norm: layer norm.
            sublayer: function from (..., C) to (..., C).
        """
        if self.normalize_before:
            return x + self.dropout_module(sublayer(norm(x)))
        return norm(x + self.dropout_module(sublayer(x)))

    def feed_forward(self, x):
        """Apply the feed-forward network to (..., C) values."""
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))


class DecoderLayer(Sublayers, TransformerDecoderLayerBase):
    """Batch-first decoder layer with attention to all target tokens before and to the whole source.

    Subclasses build other attentions. Parameters have fairseq's names. The attentions are called as

    * ``self_attn(x, padding, before, need_state, **marks)``, which returns the output and, if
      ``need_state``, the state of the attention after ``x``, else None;
    * ``encoder_attn.project_source(source, padding, **marks)``, which returns the source as
      ``encoder_attn(x, source, **marks)`` reads it, and ``encoder_attn.weights`` with the same
      arguments for the weights.

    Marks are further tensors of the same tokens, such as their sentence numbers; each attention
    takes those that it needs.
    """

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build the attention to earlier target tokens."""
        return CausalAttention(embed_dim, cfg.decoder.attention_heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """Build the attention to the source."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)

    def init_state(self, source: Tensor, padding: Optional[Tensor] = None, **marks) -> LayerState:
        """Return the state before the first token.

        Args:
            source: (B, S, C) encoder output.
            padding: (B, S) True at padding; None without padding.
            **marks: marks of the source.
        """
        return LayerState(None, self.encoder_attn.project_source(source, padding, **marks), 1)

    def cross(self, x: Tensor, state: LayerState, **marks) -> Tensor:
        """Attend from (rows, T, C) target tokens to the source."""
        return self.encoder_attn(x, state.source, **marks)

    def forward(
        self,
        groups: List[Tensor],
        begin: Callable[["DecoderLayer", List[Tensor]], List[LayerState]],
        padding: Optional[Tensor] = None,
        need_state: bool = False,
        between: Optional[Callable[[List[Tensor]], List[Tensor]]] = None,
        weights: Optional[list] = None,
        **marks,
    ) -> Tuple[List[Tensor], List[LayerState]]:
        """Continue states by one or more tokens.

        Args:
            groups: (rows, T, C) inputs, right-padded, of groups of rows of similar length; mostly
                one group. The beams of a sentence are adjacent. In a single step of a search,
                layers may take (rows, C).
            begin: function from the layer and ``groups`` to the state of each group before them.
            padding: (rows, T) True at padding, None without padding; only needed for new states.
            need_state: whether to return the states after these tokens.
            between: sublayer between causal and cross attention, a function of all groups.
            weights: list to which attention weights (rows, T, S), averaged over heads, are
                appended.
            **marks: marks of the target tokens, if there is one group.

        Returns:
            (rows, T, C) output of each group, and its new state.
        """
        states, after = list(begin(self, groups)), []

        def attend(x, state):
            def causal(y):
                y, recent = self.self_attn(y, padding, state.recent, need_state, **marks)
                after.append(state._replace(recent=recent))
                return y

            return self.residual(x, self.self_attn_layer_norm, causal)

        def read_source(x, state):
            def cross(y):
                if weights is not None:
                    found = self.encoder_attn.weights(y, state.source, **marks)
                    weights.append(found.mean(dim=1))
                return self.cross(y, state, **marks)

            x = self.residual(x, self.encoder_attn_layer_norm, cross)
            return self.residual(x, self.final_layer_norm, self.feed_forward)

        groups = [attend(x, state) for x, state in zip(groups, states)]
        if between is not None:
            groups = between(groups)
        return [read_source(x, state) for x, state in zip(groups, states)], after
