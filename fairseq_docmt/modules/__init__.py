"""Neural modules and the states that they keep while decoding."""
