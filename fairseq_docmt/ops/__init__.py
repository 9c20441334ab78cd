"""Tensor operations of the models; :mod:`fairseq_docmt.ops.naive` has loop versions of most."""
