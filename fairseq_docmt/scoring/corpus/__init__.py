"""Metrics of whole test sets, with significance tests."""
