"""Evaluation of translated documents: ``python -m fairseq_docmt.scoring --help``."""
