"""Types that describe the batches of the document tasks: their keys, and the shapes of the values.

What a batch row contains depends on the dataset:

* ``DocumentView``: the joined sentences of a window, a document or a part of one;
* ``StreamView``: a sentence; with B lanes (documents read side by side), row r is sentence
  ``r // B`` of lane ``r % B``;
* ``RowsView``: a sentence; the rows of a document follow one another, document after document;
* ``DecodingUnits``: a sentence to translate.

S is the length of the longest source of a batch, and T the length of its longest target.
"""

from typing import Dict, List, Optional, TypedDict

from torch import Tensor

from fairseq_docmt.data.decoding_units import DecodingUnit


class RowGrouping(TypedDict):
    """Division of the rows of a batch into groups of similar length, which need less padding."""

    #: (r,) rows of each group
    rows: List[Tensor]
    #: longest row of each group
    lengths: List[int]
    #: longest of the k-th sentences of all lanes, for each k
    steps: List[int]
    #: whether padding is on the left
    left_padded: bool


class RowGroupings(TypedDict):
    """Divisions of the batch rows into groups of similar source or target length.

    Models compute the groups one by one, with little padding.
    """

    #: sources by their length
    source: RowGrouping
    #: targets by their length
    target: RowGrouping
    #: sources in the groups of their targets
    attended: RowGrouping
    #: (N,) indices of the positions with loss in the flattened targets
    tokens: Tensor


class NetInput(TypedDict, total=False):
    """Part of a batch that the ``forward`` method of a model gets as keyword arguments."""

    # ---- of all batches ------------------------------------------------------------------------

    #: (rows, S) left-padded; the sentences of a span are joined by ``<sep>`` and
    #: followed by ``</s>``; a filler row has ``</s>`` only
    src_tokens: Tensor
    #: (rows,) number of tokens of each source
    src_lengths: Tensor
    #: (rows, T) decoder input, right-padded, begins with ``</s>``; absent in batches to decode
    prev_output_tokens: Tensor

    # ---- StreamView and RowsView ---------------------------------------------------------------

    #: rows by length; None for a small batch
    row_groups: Optional[RowGroupings]

    # ---- StreamView ----------------------------------------------------------------------------

    #: (rows,) True for the first sentence of a document, which gets no document state
    starts: Tensor
    #: number of lanes B
    lanes: int
    #: document state of each lane before the batch, set by the task; None for the first batch
    doc_state: Optional[Dict[str, Tensor]]

    # ---- RowsView ------------------------------------------------------------------------------

    #: (rows,) number of the document of each row, from 0
    documents: Tensor
    #: (rows, U) earlier translations, right-padded, begin with ``</s>``; only with ``--drafts``
    drafts: Tensor
    #: rows by the lengths of the earlier translations; None for a small batch
    draft_groups: Optional[RowGroupings]


class Batch(TypedDict, total=False):
    """Dictionary with a batch, as a dataset passes it to fairseq's trainer and commands."""

    # ---- of all batches ------------------------------------------------------------------------

    net_input: NetInput
    #: (rows, T) references, padding at positions without loss; None for input without references
    target: Optional[Tensor]
    #: (rows,) line of the sentence of each row in the corpus, from 0; -1 for a filler
    id: Tensor
    #: number of batch rows
    nsentences: int
    #: number of target positions, or of source tokens without references
    ntokens: int

    # ---- StreamView ----------------------------------------------------------------------------

    #: number of the batch in its epoch
    step: int

    # ---- DecodingUnits -------------------------------------------------------------------------

    #: spans that are translated together; their sentences are the rows
    units: List[DecodingUnit]
    #: (rows, n) packed constraints of the target; only with ``--constraints``
    constraints: Tensor
