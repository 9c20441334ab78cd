"""Layers of ``han_transformer`` (Miculicich et al. 2018)."""
