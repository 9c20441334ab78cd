"""Evaluation of translated documents: ``fairseq-docmt --help``."""
