"""Support for training that starts from the weights of another model."""
