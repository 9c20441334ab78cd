"""Log-probabilities that a model assigns to references, with and without context."""
