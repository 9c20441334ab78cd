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
        """Append lines and keep the last ``context`` sentences.

        Args:
            src: the lines.
            sizes: (lines,) number of their tokens.
            index: their documents, without sentences that are too long.
            context: number of sentences to keep.
        """
        end = 0
        if index.num_documents > 0:
            end = int(index.line_ids[-1]) + 1
            number = int(index.numbers[-1])
            if number > 0:
                self.position, self.sentences = 0, []
            self.number += number
            self.position += int(index.starts[-1] - index.starts[-2])
            line_ids = index.line_ids[index.starts[-2] :].tolist()
            kept = self.sentences + [src[line_id] for line_id in line_ids]
            self.sentences = kept[-context:] if context > 0 else []
        if any(size <= BLANK_SIZE for size in sizes[end:]):
            self.close()
