"""A document that continues from one buffer of input lines to the next."""

import numpy as np
import pytest

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.tasks._open_document import OpenDocument

BLANK, LONG = "", "long"


def read(opened, *buffers, context=2):
    """Read buffers of lines; a line of size 1 is blank, one of size 9 is too long."""
    for lines in buffers:
        sizes = np.array([{BLANK: 1, LONG: 9}.get(line, 2) for line in lines])
        index = DocumentIndex.from_sizes(sizes)
        opened.advance(lines, sizes, index.without(sizes[index.line_ids] == 9), context)
    return opened.number, opened.position, opened.sentences


@pytest.mark.parametrize(
    "buffers, want",
    [
        ([], (0, 0, [])),
        ([["a"]], (0, 1, ["a"])),
        ([["a", "b", "c"]], (0, 3, ["b", "c"])),
        ([["a"], ["b"], ["c"]], (0, 3, ["b", "c"])),
        ([["a"], ["b", BLANK]], (1, 0, [])),  # the blank line ends the document
        ([["a", BLANK, "b"]], (1, 1, ["b"])),
        ([["a"], ["b", BLANK, "c"], ["d"]], (1, 2, ["c", "d"])),
        ([[BLANK]], (0, 0, [])),  # no document to end
        ([["a", BLANK], [BLANK], ["b"]], (1, 1, ["b"])),
        # Sentences that are too long are in no document, but the blank lines around them count.
        ([["a", LONG], ["b"]], (0, 2, ["a", "b"])),
        ([["a", BLANK, LONG], ["b"]], (1, 1, ["b"])),
        ([["a"], [LONG, BLANK, "b"]], (1, 1, ["b"])),
        ([["a", LONG], [LONG], ["b"]], (0, 2, ["a", "b"])),
        ([["a"], [LONG, "b"]], (0, 2, ["a", "b"])),
        ([["a", BLANK, LONG]], (1, 0, [])),
        ([["a"], [LONG, BLANK, LONG]], (1, 0, [])),
        ([["a"], [LONG, BLANK, LONG], ["b"]], (1, 1, ["b"])),
        ([["a"], [LONG, BLANK, "b", BLANK, LONG], ["c"]], (2, 1, ["c"])),
        ([[LONG, BLANK, LONG]], (0, 0, [])),
        ([["a", BLANK, LONG, BLANK, "b"]], (2, 1, ["b"])),
    ],
)
def test_number_position_and_context_by_hand(buffers, want):
    assert read(OpenDocument(), *buffers) == want


def test_without_context_no_sentences_are_kept():
    assert read(OpenDocument(), ["a", "b"], context=0) == (0, 2, [])
