"""Transformer with window attention: layers, alignment, encoder, decoder (Herold and Ney 2023)."""
