"""Memory vectors that are updated sentence by sentence (Feng et al. 2022)."""
