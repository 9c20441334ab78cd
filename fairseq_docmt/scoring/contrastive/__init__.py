"""Accuracy of models on contrastive test sets."""
