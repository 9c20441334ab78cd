"""Accuracy on contrastive test sets."""
