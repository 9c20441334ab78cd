"""Architectures (``--arch``)."""

from fairseq_docmt.models import rfa_transformer, window_attn_transformer  # noqa: F401
