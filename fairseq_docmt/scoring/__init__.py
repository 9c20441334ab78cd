"""Commands that evaluate and rerank translations of documents, see ``fairseq-docmt --help``."""
