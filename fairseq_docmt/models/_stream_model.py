"""Models with a document state."""


class PackedTargets:
    """Mixin for models whose logits may be those of the positions with loss only."""

    def get_targets(self, sample, net_output):
        """Return the targets of the logits: of all positions, or of those with loss."""
        target, positions = sample["target"], net_output[1].get("positions")
        return target if positions is None else target.flatten()[positions].unsqueeze(0)


class StreamModel(PackedTargets):
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
            starts, lanes, doc_state: see :class:`~fairseq_docmt.modules.stream.Stream`.
            row_groups: :class:`~fairseq_docmt.data.batch.RowGroupings`, or None.

        Returns:
            (rows, T, V) logits, with ``row_groups`` (1, N, V), those of the N positions with loss;
            and extra outputs with the new document state, ``doc_state``.
        """
        encoder_out = self.encoder(
            src_tokens,
            src_lengths=src_lengths,
            starts=starts,
            lanes=lanes,
            doc_state=doc_state,
            row_groups=row_groups,
        )
        return self.decoder(
            prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **kwargs
        )
