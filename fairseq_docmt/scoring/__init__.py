"""Evaluation of translated documents: ``python -m fairseq_docmt.scoring --help``.

Importing this package registers ``--scoring document_bleu``.
"""

from fairseq_docmt.scoring import document_bleu  # noqa: F401
