"""Evaluation of document translations; nothing else in the package depends on it."""
