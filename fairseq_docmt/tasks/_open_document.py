"""State of a document that continues from one buffer of input lines to the next."""

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

    def advance(self, src, sizes, index: DocumentIndex, context: int) -> None:
        """Append lines and keep the last ``context`` sentences."""
        if index.num_documents > 0:
            number = self.number + index.num_documents - 1
            length = int(index.starts[-1] - index.starts[-2])
            if index.num_documents > 1:
                self.position, self.sentences = 0, []
            self.number = number
            self.position += length
            line_ids = index.line_ids[index.starts[-2] :].tolist()
            kept = self.sentences + [src[line_id] for line_id in line_ids]
            self.sentences = kept[-context:] if context > 0 else []
        if len(sizes) > 0 and sizes[-1] <= BLANK_SIZE:
            self.close()
