"""Parts shared by all systems: decoder states, beams, document states, attention."""
