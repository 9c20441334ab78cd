"""Commands that evaluate and rerank document translations; see ``fairseq-docmt --help``."""
