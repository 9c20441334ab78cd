"""What trained models do with their context."""
