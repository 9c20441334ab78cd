"""Index of the sentences and documents in a text whose documents are separated by blank lines."""

from typing import Iterable, List, Sequence, Tuple

import numpy as np

#: Length of a blank line in a binarised corpus: only ``</s>``.
BLANK_SIZE = 1


class DocumentIndex:
    """Index of the sentences and documents of one side of a corpus.

    Sentences are numbered from 0, and blank lines are not counted.  The line id of a sentence is
    its index in the binarised corpus, where blank lines do count.

    Attributes:
        line_ids: (sentences,) line id of each sentence.
        starts: (documents + 1,) number of the first sentence of each document, followed by the
            total number of sentences.
        document: (sentences,) number of the document that contains each sentence.
        numbers: (documents,) number of each document in the whole corpus.  Documents keep these
            numbers when :meth:`without` removes other documents.
    """

    def __init__(self, line_ids: np.ndarray, starts: np.ndarray, numbers=None):
        self.line_ids = np.asarray(line_ids, dtype=np.int64)
        self.starts = np.asarray(starts, dtype=np.int64)
        self.numbers = np.arange(len(self.starts) - 1) if numbers is None else numbers
        self.document = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], joints: Iterable[int] = ()) -> "DocumentIndex":
        """Build the index of a text from the number of tokens on each line.

        Args:
            sizes: number of tokens of each line, ``</s>`` included; a line of size 1 is blank.
            joints: lines at which a document begins although no blank line precedes them, such as
                the first line of ``train1`` after the last line of ``train``.
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
        """Build an index from the number of sentences in each document.

        The line ids assume one blank line between documents.
        """
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        blanks_before = np.repeat(np.arange(len(lengths)), lengths)
        return cls(np.arange(starts[-1]) + blanks_before, starts)

    @property
    def spans(self) -> List[Tuple[int, int]]:
        """Sentence numbers (first, end) of each document; ``end`` is exclusive."""
        starts = self.starts.tolist()
        return list(zip(starts, starts[1:]))

    @property
    def num_documents(self) -> int:
        """Number of documents in the corpus."""
        return len(self.starts) - 1

    @property
    def num_sentences(self) -> int:
        """Number of sentences in all documents; blank lines are not counted."""
        return len(self.line_ids)

    @property
    def position(self) -> np.ndarray:
        """(sentences,) position of each sentence within its document, counted from 0."""
        return np.arange(self.num_sentences) - self.starts[self.document]

    def without(self, dropped: np.ndarray) -> "DocumentIndex":
        """Return an index without some sentences, and without documents that become empty.

        Args:
            dropped: (sentences,) bool, True for the sentences to remove.
        """
        lengths = np.bincount(self.document[~dropped], minlength=self.num_documents)
        starts = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
        return DocumentIndex(self.line_ids[~dropped], starts, self.numbers[lengths > 0])
