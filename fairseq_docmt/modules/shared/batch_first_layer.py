"""Transformer layers whose sublayers are given as functions."""

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase


class Sublayers:
    """Residuals, norms and the feed-forward network of the stock layers, one by one."""

    def residual(self, x, norm, sublayer):
        """``sublayer(x)`` with dropout, residual and norm, in the order of the layer."""
        if self.normalize_before:
            return x + self.dropout_module(sublayer(norm(x)))
        return norm(x + self.dropout_module(sublayer(x)))

    def feed_forward(self, x):
        """The feed-forward network."""
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))


class BatchFirstDecoderLayer(Sublayers, TransformerDecoderLayerBase):
    """Stock decoder layer with another attention; parameters bear the stock names.

    A subclass builds its attention in ``build_self_attention`` and ``build_encoder_attention`` and
    calls :meth:`sublayers` for whole sequences and for steps alike.
    """

    def sublayers(self, x, causal, cross, between=None):
        """Causal attention, cross attention and feed-forward network around their residuals.

        Args:
            x: (..., C) input.
            causal, cross: functions from the input of an attention to its output.
            between: function from what causal attention gives to what cross attention gets, with
                a residual of its own if it needs one; None for none.
        """
        x = self.residual(x, self.self_attn_layer_norm, causal)
        if between is not None:
            x = between(x)
        x = self.residual(x, self.encoder_attn_layer_norm, cross)
        return self.residual(x, self.final_layer_norm, self.feed_forward)
