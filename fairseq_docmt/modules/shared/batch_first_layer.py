"""Transformer layers with interchangeable sublayers."""

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase


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


class BatchFirstDecoderLayer(Sublayers, TransformerDecoderLayerBase):
    """Base of batch-first decoder layers; parameters keep fairseq's names.

    Subclasses create their attention modules in ``build_self_attention`` and
    ``build_encoder_attention`` and call :meth:`sublayers` for whole sequences and for single steps.
    """

    def sublayers(self, x, causal, cross, between=None):
        """Apply causal attention, cross attention and feed-forward network with residuals.

        Args:
            x: (..., C) input.
            causal, cross: functions from the input of an attention module to its output.
            between: sublayer between the two attention modules, including its residual connection
                if it has one; None for none.

        Returns:
            (..., C) output.
        """
        x = self.residual(x, self.self_attn_layer_norm, causal)
        if between is not None:
            x = between(x)
        return self.after_causal(x, cross)

    def after_causal(self, x, cross):
        """Apply the sublayers after causal attention and the one between; see :meth:`sublayers`."""
        x = self.residual(x, self.encoder_attn_layer_norm, cross)
        return self.residual(x, self.final_layer_norm, self.feed_forward)
