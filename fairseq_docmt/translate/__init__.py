"""Translation of documents in files, and export of models that run without fairseq."""
