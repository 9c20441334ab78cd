"""Trainings that start from the weights of another model."""
