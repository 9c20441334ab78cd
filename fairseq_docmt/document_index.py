"""Index of the sentences and documents of a text with blank lines between documents."""

from typing import Iterable, List, Sequence, Tuple

import numpy as np

#: Length of a blank line in a binarised corpus: only ``</s>``.
BLANK_SIZE = 1


class DocumentIndex:
    """Index of the sentences and documents of one side of a corpus.

    Sentences are numbered from 0, not counting blank lines.  The line id of a sentence is its line
    number from 0, counting blank lines, which is its index in the binarised corpus.

    Attributes:
        line_ids: (sentences,) line id of each sentence.
        starts: (documents + 1,) first sentence of each document, followed by the number of
            sentences.
        document: (sentences,) number of the document of each sentence.
        numbers: (documents,) number of each document in the whole corpus; :meth:`without` removes
            documents but keeps these numbers.
    """

    def __init__(self, line_ids: np.ndarray, starts: np.ndarray, numbers=None):
        self.line_ids = np.asarray(line_ids, dtype=np.int64)
        self.starts = np.asarray(starts, dtype=np.int64)
        self.numbers = np.arange(len(self.starts) - 1) if numbers is None else numbers
        self.document = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], joints: Iterable[int] = ()) -> "DocumentIndex":
        """Build the index of a text from the lengths of its lines.

        Args:
            sizes: number of tokens of each line, ``</s>`` included; a line of size 1 is blank.
            joints: lines at which a document begins even without a preceding blank line, such as
                the first line of ``train1`` after ``train``.
        """
        sizes = np.asarray(sizes)
        line_ids = np.flatnonzero(sizes > BLANK_SIZE)
        if len(line_ids) == 0:
            return cls(line_ids, np.zeros(1, dtype=np.int64))
        # A sentence begins a document if a blank line or a joint precedes it.
        opens = np.diff(line_ids, prepend=-2) > 1
        opens[0] = True
        first_after_joint = np.searchsorted(line_ids, np.asarray(list(joints), dtype=np.int64))
        opens[first_after_joint[first_after_joint < len(line_ids)]] = True
        return cls(line_ids, np.append(np.flatnonzero(opens), len(line_ids)))

    @classmethod
    def from_lengths(cls, lengths: Sequence[int]) -> "DocumentIndex":
        """Build an index from document lengths in sentences.

        Line ids are those of a text with one blank line between documents.
        """
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        blanks_before = np.repeat(np.arange(len(lengths)), lengths)
        return cls(np.arange(starts[-1]) + blanks_before, starts)

    @property
    def spans(self) -> List[Tuple[int, int]]:
        """Sentence indices (first, end) of each document, end excluded."""
        starts = self.starts.tolist()
        return list(zip(starts, starts[1:]))

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.starts) - 1

    @property
    def num_sentences(self) -> int:
        """Number of sentences in all documents, without the blank lines."""
        return len(self.line_ids)

    @property
    def position(self) -> np.ndarray:
        """(sentences,) position of each sentence in its document, from 0."""
        return np.arange(self.num_sentences) - self.starts[self.document]

    def without(self, dropped: np.ndarray) -> "DocumentIndex":
        """Return the index after removing sentences, and documents that become empty.

        Args:
            dropped: (sentences,) bool, True for the sentences to remove.
        """
        lengths = np.bincount(self.document[~dropped], minlength=self.num_documents)
        starts = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
        return DocumentIndex(self.line_ids[~dropped], starts, self.numbers[lengths > 0])
