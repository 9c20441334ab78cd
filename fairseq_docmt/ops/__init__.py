"""Tensor operations of the models, most of them also as loops in :mod:`fairseq_docmt.ops.naive`."""
