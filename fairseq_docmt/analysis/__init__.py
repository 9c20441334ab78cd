"""Analyses of how trained models use their context."""
