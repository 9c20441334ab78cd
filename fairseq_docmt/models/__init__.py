"""Architectures (``--arch``)."""

from fairseq_docmt.models import rfa_transformer  # noqa: F401
