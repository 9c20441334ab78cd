"""Document decoding for the stock commands and the Python interface."""

from fairseq_docmt.generation.translator import DocumentTranslator

__all__ = ["DocumentTranslator"]
