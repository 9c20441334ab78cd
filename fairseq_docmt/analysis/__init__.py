"""What trained models do with their context."""

from fairseq_docmt.analysis.sentence_decay import sentence_decay, sentence_weights

__all__ = ["sentence_decay", "sentence_weights"]
