"""Tensor operations of the models.

:mod:`fairseq_docmt.ops.naive` defines most of them with plain loops, which are easier to read.
"""
