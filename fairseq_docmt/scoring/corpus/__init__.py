"""Metrics of whole test sets such as BLEU and COMET, with significance tests."""
