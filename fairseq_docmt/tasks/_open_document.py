"""State of a document that continues from one buffer of input lines to the next."""

import numpy as np

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.data.document_index import BLANK_SIZE


class OpenDocument:
    """Last document of the input lines so far, which the next lines may continue.

    Attributes:
        number: number of the document.
        position: number of its sentences so far.
        sentences: its last sentences, the context of the next ones.
    """

    def __init__(self):
        self.number = 0
        self.position = 0
        self.sentences: list = []

    def close(self) -> None:
        """End the document."""
        if self.position > 0:
            self.number += 1
        self.position, self.sentences = 0, []

    def close_before(self, sizes, index: DocumentIndex, kept: np.ndarray) -> None:
        """End the document if the next lines begin with another.

        Args:
            sizes: tokens of each line.
            index: sentences and documents of the lines.
            kept: (sentences,) bool, False for sentences that are too long to be translated.  They
                belong to their documents all the same.
        """
        begins_blank = len(sizes) > 0 and sizes[0] <= BLANK_SIZE
        if begins_blank or (index.num_documents > 1 and not kept[index.document == 0].any()):
            self.close()

    def advance(self, src, sizes, index: DocumentIndex, kept: np.ndarray, context: int) -> None:
        """Append lines and keep the last ``context`` sentences.

        Args:
            src: lines.
            sizes, index, kept: see :meth:`close_before`.
            context: number of sentences.
        """
        translated = index.without(~kept)
        if translated.num_documents > 0:
            first, end = translated.spans[-1]
            if translated.num_documents > 1:
                self.position, self.sentences = 0, []
            self.number += translated.num_documents - 1
            self.position += end - first
            line_ids = translated.line_ids[first:end].tolist()
            sentences = self.sentences + [src[line_id] for line_id in line_ids]
            self.sentences = sentences[-context:] if context > 0 else []
        last_is_left_out = not kept[index.document == index.num_documents - 1].any()
        ends_blank = len(sizes) > 0 and sizes[-1] <= BLANK_SIZE
        if ends_blank or (index.num_documents > 1 and last_is_left_out):
            self.close()
