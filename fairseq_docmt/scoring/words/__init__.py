"""Accuracy and F1 of words whose translation needs context, such as pronouns and formality."""
