"""Commands that choose among several translations of each sentence: MBR and reranking."""
