"""Layers of ``g_transformer`` (Bao et al. 2021)."""
