"""Layers of ``multi_encoder_transformer`` (Li et al. 2020)."""
