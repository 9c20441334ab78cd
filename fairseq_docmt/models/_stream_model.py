"""Encoder-decoders with a state that goes from sentence to sentence."""


class StreamModel:
    """Mixin for encoder-decoders that ``sentence_stream_translation`` trains.

    The encoder takes ``starts``, ``lanes`` and ``doc_state``
    (:class:`~fairseq_docmt.data.batch.NetInput`); the extra outputs of the decoder have
    ``doc_state``, a dict of tensors whose rows are the lanes.
    """

    is_document_recurrent = True

    def forward(
        self,
        src_tokens,
        src_lengths,
        prev_output_tokens,
        starts=None,
        lanes=None,
        doc_state=None,
        **kwargs,
    ):
        """As in the stock models, for sentences that follow each other.

        Args:
            starts, lanes, carry: see :class:`~fairseq_docmt.modules.shared.stream.Stream`.

        Returns:
            (rows, T, V) logits; extra outputs with ``doc_state``, what the lanes carry on.
        """
        encoder_out = self.encoder(
            src_tokens, src_lengths=src_lengths, starts=starts, lanes=lanes, doc_state=doc_state
        )
        return self.decoder(
            prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **kwargs
        )
