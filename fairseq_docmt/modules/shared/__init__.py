"""Parts that all systems share: decoder states, beams, document states, attention."""
