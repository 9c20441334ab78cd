"""Training losses, selected by ``--criterion``."""

from fairseq_docmt.criterions import attention_regularization  # noqa: F401
