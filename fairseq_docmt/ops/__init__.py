"""Tensor operations of the models; :mod:`fairseq_docmt.ops.naive` defines most with plain loops."""
