"""Contrastive test sets: readers of published sets, and the accuracy of models on them."""
