"""Scores of references by a model, with and without context."""
