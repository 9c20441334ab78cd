"""Functions that read translations, references and sources, and match their segments."""
