"""Transformer decoders whose layers attend to all tokens before and to the whole source."""

from typing import Callable, Iterable, List, Optional, Tuple

from torch import Tensor

from fairseq_docmt.modules.shared.batch_first_layer import BatchFirstDecoderLayer
from fairseq_docmt.modules.shared.full_attention import CausalAttention, SourceAttention
from fairseq_docmt.modules.shared.layer_state import AttentionLayerState
from fairseq_docmt.modules.shared.shared_source_encoder import wrapped
from fairseq_docmt.modules.shared.stateful_decoder import DecoderState, StatefulDecoder


class AttentionDecoderLayer(BatchFirstDecoderLayer):
    """Decoder layer with full causal attention and full cross attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See the base class."""
        return CausalAttention(embed_dim, cfg.decoder.attention_heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """See the base class."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)

    def init_state(self, source: Tensor, padding: Optional[Tensor]) -> AttentionLayerState:
        """Return the state before the first token, for a source (B, S, C) with padding (B, S)."""
        return AttentionLayerState(None, self.encoder_attn.project_source(source, padding), 1)

    def cross(self, x: Tensor, state: AttentionLayerState) -> Tensor:
        """Attend from (rows, T, C) target tokens to the source."""
        return self.encoder_attn(x, state.source)

    def forward(self, x: Tensor, state: AttentionLayerState, weights=None) -> Tensor:
        """Compute whole sequences.

        Args:
            x: (rows, T, C) input, right-padded.
            state: state of each row before the first token.
            weights: list to which attention weights (rows, T, S) are appended; None for none.

        Returns:
            (rows, T, C) output.
        """

        def cross(y):
            if weights is not None:
                weights.append(self.encoder_attn.weights(y, state.source).mean(dim=1))
            return self.cross(y, state)

        return self.sublayers(x, lambda y: self.self_attn(y)[0], cross)

    def extend(
        self, x: Tensor, state: AttentionLayerState, padding: Optional[Tensor], between=None
    ) -> Tuple[Tensor, AttentionLayerState]:
        """Continue a state by one or more tokens.

        Args:
            x: (rows, T, C) input, right-padded; the beams of a sentence are adjacent.
            state: state before these tokens.
            padding: (rows, T) True at padding; None without padding.
            between: see :meth:`sublayers`.

        Returns:
            (rows, T, C) output and the new state.
        """
        new = {}

        def causal(y):
            y, new["recent"] = self.self_attn(y, padding, state.recent, need_state=True)
            return y

        x = self.sublayers(x, causal, lambda y: self.cross(y, state), between)
        return x, state._replace(**new)


class AttentionDecoder(StatefulDecoder):
    """Decoder of :class:`AttentionDecoderLayer`, or of a subclass of it, ``layer_class``.

    Subclasses define :meth:`forward_sequence`, :meth:`init_layers` and :meth:`read` with the two
    methods below.

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
    """

    layer_class = AttentionDecoderLayer

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See the base class."""
        return wrapped(self.layer_class(cfg, no_encoder_attn), cfg)

    def run_layers(
        self,
        groups: List[Tensor],
        states_of: Callable[[AttentionDecoderLayer], Iterable[AttentionLayerState]],
        weights_of: Optional[int],
    ) -> Tuple[List[Tensor], List[Tensor]]:
        """Compute whole sequences through all layers.

        Args:
            groups: (rows, T, C) embeddings of rows of similar length.
            states_of: function from a layer to the state of each group before the first token.
            weights_of: see :meth:`forward_sequence`.

        Returns:
            Outputs of the groups, and attention weights as in ``attn``.
        """
        weights: List[Tensor] = []
        for number, layer in enumerate(self.layers):
            wanted = weights if number == weights_of else None
            groups = [layer(x, state, wanted) for x, state in zip(groups, states_of(layer))]
        return groups, weights

    def extend_layers(
        self,
        x: Tensor,
        tokens: Tensor,
        state: DecoderState,
        between: Callable = lambda *given: None,
    ) -> Tuple[Tensor, list]:
        """Continue a state through all layers; see :meth:`read`.

        Args:
            x, tokens, state: see :meth:`read`.
            between: function from the number of a layer and its state to the sublayer between
                causal and cross attention, or None.

        Returns:
            (rows, T, C) output and the new layer states.
        """
        padding, layers = self._padding(tokens), []
        for number, (layer, before) in enumerate(zip(self.layers, state.layers)):
            x, after = layer.extend(x, before, padding, between(number, before))
            layers.append(after)
        return x, layers
