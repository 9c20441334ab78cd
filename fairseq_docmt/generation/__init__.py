"""Document-level decoding for fairseq's commands and the Python interface."""

from fairseq_docmt.generation.translator import DocumentTranslator

__all__ = ["DocumentTranslator"]
