"""Recurrent memory, updated after each sentence (Feng et al. 2022)."""
