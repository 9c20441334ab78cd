"""Decoder layer whose sublayers are given as functions of a batch-first input."""

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase


class BatchFirstDecoderLayer(TransformerDecoderLayerBase):
    """Stock decoder layer with another attention; parameters bear the stock names.

    A subclass builds its attention in ``build_self_attention`` and ``build_encoder_attention`` and
    calls :meth:`sublayers` for whole sequences and for steps alike.
    """

    def sublayers(self, x, causal, cross):
        """Causal attention, cross attention and feed-forward network around their residuals.

        Args:
            x: (..., C) input.
            causal, cross: functions from the input of an attention to its output.
        """
        x = self._residual(x, self.self_attn_layer_norm, causal)
        x = self._residual(x, self.encoder_attn_layer_norm, cross)
        return self._residual(x, self.final_layer_norm, self._feed_forward)

    def _residual(self, x, norm, sublayer):
        if self.normalize_before:
            return x + self.dropout_module(sublayer(norm(x)))
        return norm(x + self.dropout_module(sublayer(x)))

    def _feed_forward(self, x):
        return self.fc2(self.activation_dropout_module(self.activation_fn(self.fc1(x))))
