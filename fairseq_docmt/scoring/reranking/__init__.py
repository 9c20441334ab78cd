"""Choice among several translations of a sentence."""
