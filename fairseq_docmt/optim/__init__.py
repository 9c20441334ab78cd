"""Further optimizers for fairseq, selected by ``--optimizer``."""

from fairseq_docmt.optim import grouped_adam  # noqa: F401
