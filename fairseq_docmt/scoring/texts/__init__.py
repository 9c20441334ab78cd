"""Texts of a test set: outputs, references and sources, matched document by document."""
