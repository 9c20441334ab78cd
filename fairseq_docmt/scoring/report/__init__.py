"""The HTML page that compares systems."""
