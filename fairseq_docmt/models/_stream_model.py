"""Encoder-decoders that carry something from sentence to sentence."""


class StreamModel:
    """What ``sentence_stream_translation`` asks of a model; mixed into an encoder-decoder.

    The encoder takes ``starts``, ``lanes`` and ``carry``; the decoder gives ``carry`` among its
    extra outputs, a dict of tensors whose rows are the lanes (see data/stream_view.py).
    """

    carries = True

    def forward(
        self,
        src_tokens,
        src_lengths,
        prev_output_tokens,
        starts=None,
        lanes=None,
        carry=None,
        **kwargs,
    ):
        """As in the stock models, for sentences that follow each other.

        Args:
            starts, lanes, carry: see :class:`~fairseq_docmt.modules.stream.Stream`.

        Returns:
            (rows, T, V) logits; extra outputs with ``carry``, what the lanes carry on.
        """
        encoder_out = self.encoder(
            src_tokens, src_lengths=src_lengths, starts=starts, lanes=lanes, carry=carry
        )
        return self.decoder(
            prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **kwargs
        )
