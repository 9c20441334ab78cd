"""Decoding of documents inside the stock commands."""

from fairseq_docmt.generation.document_decoder import DocumentDecoder
from fairseq_docmt.generation.supported import refuse_unsupported

__all__ = ["DocumentDecoder", "refuse_unsupported"]
