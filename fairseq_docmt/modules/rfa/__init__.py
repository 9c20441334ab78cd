"""Random feature attention with a sentential gate (Wu et al. 2022)."""
