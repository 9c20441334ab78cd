"""Keys of the batches of all document tasks.

Rows are examples: windows or documents (``DocumentView``), sentences of K steps in B lanes, row r
being sentence ``r // B`` of lane ``r % B`` (``StreamView``), sentences of some documents, one
document after the other (``RowsView``), or the original sentences to translate
(``DecodingUnits``).  S is the longest source, T the longest target of a batch.
"""

from typing import Dict, List, Optional, TypedDict

from torch import Tensor

from fairseq_docmt.data.decoding_units import DecodingUnit


class NetInput(TypedDict, total=False):
    """Arguments of a model's ``forward``."""

    # ---- of all batches ------------------------------------------------------------------------

    #: (rows, S) left-padded unless ``--left-pad-source False``; sentences of a span are joined by
    #: ``<sep>``, ``</s>`` comes last; a filler is ``</s>`` alone
    src_tokens: Tensor
    #: (rows,) tokens of each source
    src_lengths: Tensor
    #: (rows, T) right-padded, begins with ``</s>``; not in batches to decode
    prev_output_tokens: Tensor

    # ---- StreamView ----------------------------------------------------------------------------

    #: (rows,) True where a document begins, so that no state goes into the row
    starts: Tensor
    #: B
    lanes: int
    #: state of each lane before the batch, None before the first; put in by the task
    doc_state: Optional[Dict[str, Tensor]]

    # ---- RowsView ------------------------------------------------------------------------------

    #: (rows,) number of the document of each row, from 0
    documents: Tensor
    #: (rows, U) earlier translations, right-padded, begin with ``</s>``; with ``--drafts`` alone
    drafts: Tensor


class Batch(TypedDict, total=False):
    """A batch as the trainer and the stock commands get it."""

    # ---- of all batches ------------------------------------------------------------------------

    net_input: NetInput
    #: (rows, T) padding where no loss is taken; None in input without references
    target: Optional[Tensor]
    #: (rows,) line of the sentence that a row stands for, -1 for a filler
    id: Tensor
    #: number of rows
    nsentences: int
    #: number of target positions, or of source tokens without references
    ntokens: int

    # ---- StreamView ----------------------------------------------------------------------------

    #: number of the batch in its epoch
    step: int

    # ---- DecodingUnits -------------------------------------------------------------------------

    #: what is translated together; their sentences are the rows
    units: List[DecodingUnit]
    #: (rows, n) packed constraints of the target, with ``--constraints`` alone
    constraints: Tensor
