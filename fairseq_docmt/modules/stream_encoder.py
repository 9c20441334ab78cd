"""Transformer encoder of consecutive sentences of several documents."""

from typing import Optional

from torch import Tensor

from fairseq_docmt.modules.encoder import SharedSourceEncoder
from fairseq_docmt.modules.stream import DocumentState, RowGroups, Stream, groups_of


class StreamEncoder(SharedSourceEncoder):
    """Transformer encoder with ``stream`` and ``doc_state`` in its output.

    Subclasses may define :meth:`with_context`, for context that comes after the last layer.  An
    encoder whose layers read context has a ``forward`` of its own
    (:class:`~fairseq_docmt.modules.recurrent_memory.MemoryTransformerEncoder`).

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class; with ``cfg.forget_context``
            every sentence is a document of its own.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.forget_context = cfg.forget_context

    def with_context(
        self, output: dict, src_tokens: Tensor, stream: Stream, groups: RowGroups
    ) -> dict:
        """Return the output with context of previous sentences and the new document state.

        By default the encoder reads no context and has no document state.

        Args:
            output: output of the encoder without context, ``encoder_out`` [(S, rows, C)].
            src_tokens: (rows, S) padded tokens.
            stream: documents of the rows.
            groups: rows of similar length, which are computed together.
        """
        return output

    def forward(
        self,
        src_tokens,
        src_lengths=None,
        return_all_hiddens=False,
        token_embeddings=None,
        starts: Optional[Tensor] = None,
        lanes: Optional[int] = None,
        doc_state: Optional[DocumentState] = None,
        row_groups: Optional[dict] = None,
    ):
        """Encode consecutive sentences.

        Args:
            src_tokens, src_lengths, return_all_hiddens, token_embeddings: see the base class.
            starts, lanes, doc_state: see :class:`Stream`.
            row_groups: :class:`~fairseq_docmt.data.batch.RowGroupings`, or None.

        Returns:
            Output of the base class with ``stream``, ``row_groups`` and what :meth:`with_context`
            adds (:class:`~fairseq_docmt.modules.encoder_output.EncoderOutput`).
        """
        stream = Stream.of(src_tokens, None if self.forget_context else starts, lanes, doc_state)
        groups = groups_of(row_groups, "source")
        if row_groups is None:
            output = super().forward(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        else:
            output = self._forward_groups(src_tokens, groups)
        output = {**output, "stream": stream, "doc_state": {}, "row_groups": row_groups}
        return self.with_context(output, src_tokens, stream, groups)

    def _forward_groups(self, src_tokens: Tensor, groups: RowGroups) -> dict:
        """Encode groups of rows of similar length, one after another."""
        outputs = [super(StreamEncoder, self).forward(part) for part in groups.split(src_tokens)]
        states = [output["encoder_out"][0].transpose(0, 1) for output in outputs]
        states = groups.join(states, src_tokens.size(1)).transpose(0, 1)
        padding = src_tokens.eq(self.padding_idx)
        output = {
            "encoder_out": [states],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [],
            "src_lengths": [(~padding).sum(dim=1, keepdim=True)],
        }
        return self._shared({**outputs[0], **output}, src_tokens)

    def _select(self, encoder_out, sentences, beams):
        stream = encoder_out["stream"].of_rows(sentences)
        selected = super()._select(encoder_out, sentences, beams)
        return {**selected, "stream": stream, "doc_state": {}, "row_groups": None}
