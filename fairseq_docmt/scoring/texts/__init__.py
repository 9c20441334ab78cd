"""Functions that read translations, references and sources, and match them by segment."""
