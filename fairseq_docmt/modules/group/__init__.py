"""Layers of ``g_transformer``."""
