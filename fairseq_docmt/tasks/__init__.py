"""The document tasks; importing this package registers them with fairseq."""

from fairseq_docmt.tasks import (  # noqa: F401
    document_rows_translation,
    full_document_translation,
    sentence_stream_translation,
    sliding_window_translation,
)
