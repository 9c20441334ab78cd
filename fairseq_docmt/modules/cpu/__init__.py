"""Faster layers for training and decoding on a CPU."""
