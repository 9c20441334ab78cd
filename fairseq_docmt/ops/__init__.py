"""Pure tensor functions; each has a loop version in :mod:`fairseq_docmt.ops.naive`."""
