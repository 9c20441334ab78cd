"""Words that need context: pronouns, formality, tagged words."""
