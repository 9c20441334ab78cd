"""Log-probabilities that a model gives to references, with and without context."""
