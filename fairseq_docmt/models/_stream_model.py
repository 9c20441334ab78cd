"""Models with a document state."""


class StreamModel:
    """Mixin for encoder-decoder models trained by ``sentence_stream_translation``.

    The encoder takes ``starts``, ``lanes`` and ``doc_state``
    (:class:`~fairseq_docmt.data.batch.NetInput`). The extra outputs of the decoder include
    ``doc_state``, a dict of tensors whose first dimension is the lane.
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
        row_groups=None,
        **kwargs,
    ):
        """Compute the logits of consecutive sentences.

        Args:
            src_tokens, src_lengths, prev_output_tokens, **kwargs: see fairseq's models.
            starts, lanes, doc_state: see :class:`~fairseq_docmt.modules.shared.stream.Stream`.
            row_groups: rows of similar length, which models may make use of.

        Returns:
            (rows, T, V) logits, and extra outputs with the new document state, ``doc_state``.
        """
        encoder_out = self.encoder(
            src_tokens, src_lengths=src_lengths, starts=starts, lanes=lanes, doc_state=doc_state
        )
        return self.decoder(
            prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **kwargs
        )
