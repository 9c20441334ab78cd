"""Decoding of documents inside the stock commands, and from Python."""

from fairseq_docmt.generation.document_decoder import DocumentDecoder
from fairseq_docmt.generation.supported import refuse_unsupported
from fairseq_docmt.generation.translator import DocumentTranslator

__all__ = ["DocumentDecoder", "DocumentTranslator", "refuse_unsupported"]
