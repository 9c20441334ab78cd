"""Which sentence belongs to which document, read from the blank lines of a corpus."""

from typing import Iterable, Sequence

import numpy as np

#: Length of a blank line in a binarised corpus: nothing but ``</s>``.
BLANK_SIZE = 1


class DocumentIndex:
    """Sentences and documents of one corpus side.

    Sentences are numbered from 0 without the blank lines; a *row* is the place of a sentence in
    the binarised corpus, blank lines included, which is also its line number from 0 in the text.

    Attributes:
        rows: (sentences,) row of each sentence.
        starts: (documents + 1,) first sentence of each document, then the number of sentences.
        document: (sentences,) document of each sentence.
    """

    def __init__(self, rows: np.ndarray, starts: np.ndarray):
        self.rows = np.asarray(rows, dtype=np.int64)
        self.starts = np.asarray(starts, dtype=np.int64)
        self.document = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @classmethod
    def from_sizes(cls, sizes: Sequence[int], joints: Iterable[int] = ()) -> "DocumentIndex":
        """Read documents from line sizes.

        Args:
            sizes: tokens of each line, ``</s>`` included; a line of size 1 is blank.
            joints: rows at which a document begins even without a blank line before, as where
                ``train`` and ``train1`` were put together.
        """
        sizes = np.asarray(sizes)
        rows = np.flatnonzero(sizes > BLANK_SIZE)
        if len(rows) == 0:
            return cls(rows, np.zeros(1, dtype=np.int64))
        # A sentence opens a document when a blank line or a joint lies after its predecessor.
        opens = np.diff(rows, prepend=-2) > 1
        opens[0] = True
        first_after_joint = np.searchsorted(rows, np.asarray(list(joints), dtype=np.int64))
        opens[first_after_joint[first_after_joint < len(rows)]] = True
        return cls(rows, np.append(np.flatnonzero(opens), len(rows)))

    @classmethod
    def from_lengths(cls, lengths: Sequence[int]) -> "DocumentIndex":
        """Documents of the given numbers of sentences, one blank line between them."""
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        blanks_before = np.repeat(np.arange(len(lengths)), lengths)
        return cls(np.arange(starts[-1]) + blanks_before, starts)

    @property
    def num_documents(self) -> int:
        return len(self.starts) - 1

    @property
    def num_sentences(self) -> int:
        return len(self.rows)

    @property
    def position(self) -> np.ndarray:
        """(sentences,) place of each sentence in its document, from 0."""
        return np.arange(self.num_sentences) - self.starts[self.document]

    def without(self, dropped: np.ndarray) -> "DocumentIndex":
        """The index without some sentences; documents left empty disappear.

        Args:
            dropped: (sentences,) bool.
        """
        lengths = np.bincount(self.document[~dropped], minlength=self.num_documents)
        starts = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
        return DocumentIndex(self.rows[~dropped], starts)
