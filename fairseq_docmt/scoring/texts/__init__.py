"""Reading of a test set: translations, references and sources, matched segment by segment."""
