"""Transformer encoder of consecutive sentences of several documents."""

from typing import Optional

from torch import Tensor

from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.shared_source_encoder import SharedSourceEncoder
from fairseq_docmt.modules.shared.stream import Stream


class StreamEncoder(SharedSourceEncoder):
    """Transformer encoder with ``stream`` and ``doc_state`` in its output.

    Subclasses define :meth:`with_context`.

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class; with ``cfg.forget_context``
            every sentence is a document of its own.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.forget_context = cfg.forget_context

    def with_context(self, output: dict, src_tokens: Tensor, stream: Stream) -> dict:
        """Return the output with context of previous sentences and the new document state."""
        raise NotImplementedError

    def forward(
        self,
        src_tokens,
        src_lengths=None,
        return_all_hiddens=False,
        token_embeddings=None,
        starts: Optional[Tensor] = None,
        lanes: Optional[int] = None,
        doc_state: Optional[DocumentState] = None,
    ):
        """Encode consecutive sentences.

        Args:
            src_tokens, src_lengths, return_all_hiddens, token_embeddings: see the base class.
            starts, lanes, doc_state: see :class:`Stream`.

        Returns:
            Output of the base class with ``stream`` and what :meth:`with_context` adds
            (:class:`~fairseq_docmt.modules.shared.encoder_output.EncoderOutput`).
        """
        stream = Stream.of(src_tokens, None if self.forget_context else starts, lanes, doc_state)
        output = super().forward(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        output = {**output, "stream": stream, "doc_state": {}}
        return self.with_context(output, src_tokens, stream)

    def _select(self, encoder_out, sentences, beams):
        stream = encoder_out["stream"].of_rows(sentences)
        selected = super()._select(encoder_out, sentences, beams)
        return {**selected, "stream": stream, "doc_state": {}}
