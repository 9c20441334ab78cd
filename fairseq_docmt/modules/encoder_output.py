"""Keys of ``encoder_out``, the dictionary that encoders pass to decoders."""

from typing import Any, Dict, List, TypedDict

from torch import Tensor


class EncoderOutput(TypedDict, total=False):
    """Output of this package's encoders for B batch rows with S source positions.

    As in fairseq, most values are wrapped in a list, which is empty if there is no value. Decoders
    do not modify this dictionary, with one exception: while gradients are off, they store
    intermediate results in ``begun`` and ``remembered``, to use them again later.
    """

    # ---- of fairseq's encoders -----------------------------------------------------------------

    #: [(S, B, C)] source states
    encoder_out: List[Tensor]
    #: [(B, S)] True at padding
    encoder_padding_mask: List[Tensor]
    #: [(B, S, C)] embeddings of the source, empty with groups of rows; not used here
    encoder_embedding: List[Tensor]
    #: states of all layers, if requested
    encoder_states: List[Tensor]
    #: outputs of the feed-forward networks, if requested
    fc_results: List[Any]
    #: source tokens; empty
    src_tokens: List[Tensor]
    #: [(B, 1)] source lengths
    src_lengths: List[Tensor]

    # ---- of all encoders of this package -------------------------------------------------------

    #: decoder rows of each sentence; the beams of a sentence share its encoder output
    beams: int

    # ---- SharedSourceEncoder: all transformers -------------------------------------------------

    #: [(B, S)] True at ``<sep>``
    separators: List[Tensor]

    # ---- GRUEncoder: all recurrent models ------------------------------------------------------

    #: [(B, 2 d)] last forward and first backward state
    summary: List[Tensor]
    #: first decoder state and search trace, reused to compute the document state after a search
    remembered: Dict[str, Any]

    # ---- recurrent models, and models with a document state ------------------------------------

    #: :class:`~fairseq_docmt.modules.stream.Stream`, the documents of the rows and their groups
    stream: Any
    #: document state of the encoder after these sentences
    doc_state: Dict[str, Tensor]
    #: MultiEncoderEncoder: encoded previous source sentences
    #: (:class:`~fairseq_docmt.modules.multi_encoder.EncodedContext`), or empty
    contexts: List[Any]
    #: MemoryTransformerEncoder: decoder memories by layer, reused to compute the document state
    #: after a search
    begun: Dict[int, Any]
    #: ContextGRUEncoder: (B, W, l) states of earlier source sentences and (B, W) True at padding,
    #: the tensors of :class:`~fairseq_docmt.modules.rnn.context.SourceContext`
    context: List[Tensor]
    #: ContextGRUEncoder: document state after these sentences
    next_doc_state: Dict[str, Tensor]

    # ---- MemnetEncoder and searches with document memories -------------------------------------

    #: [(B, 2 d)] cells of the source memory
    source_cells: List[Tensor]
    #: [(B, r)] memory readings of each sentence
    readings: List[Tensor]
