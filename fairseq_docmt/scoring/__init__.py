"""Figures for the translations of documents: ``python -m fairseq_docmt.scoring --help``."""
