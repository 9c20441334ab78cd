"""Documents that go on from one buffer of lines to the next."""

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.data.document_index import BLANK_SIZE


class OpenDocument:
    """The document that the lines typed so far end in."""

    def __init__(self):
        self.number = 0
        self.position = 0
        self.sentences: list = []

    def close(self) -> None:
        if self.position > 0:
            self.number += 1
        self.position, self.sentences = 0, []

    def advance(self, src, sizes, index: DocumentIndex, context: int) -> None:
        """Go on by the given lines, keeping the last ``context`` sentences."""
        if index.num_documents > 0:
            number = self.number + index.num_documents - 1
            length = int(index.starts[-1] - index.starts[-2])
            if index.num_documents > 1:
                self.position, self.sentences = 0, []
            self.number = number
            self.position += length
            rows = index.rows[index.starts[-2] :].tolist()
            kept = self.sentences + [src[row] for row in rows]
            self.sentences = kept[-context:] if context > 0 else []
        if len(sizes) > 0 and sizes[-1] <= BLANK_SIZE:
            self.close()
