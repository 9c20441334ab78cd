"""Keys of ``encoder_out``, the dictionary that encoders pass to decoders."""

from typing import Any, Dict, List, TypedDict

from torch import Tensor


class EncoderOutput(TypedDict, total=False):
    """What an encoder of this suite returns, for B sentences or spans with S source positions.

    A list holds its only value, as in fairseq, or is empty where there is none.  Decoders read the
    dictionary; only ``begun`` and ``remembered`` are filled by them, while no gradients are taken.
    """

    # ---- of fairseq's encoders -----------------------------------------------------------------

    #: [(S, B, C)] states of the source
    encoder_out: List[Tensor]
    #: [(B, S)] True at padding
    encoder_padding_mask: List[Tensor]
    #: [(B, S, C)] embeddings of the source; not used here
    encoder_embedding: List[Tensor]
    #: states of all layers where they were asked for
    encoder_states: List[Tensor]
    #: outputs of the feed-forward networks where they were asked for
    fc_results: List[Any]
    #: source tokens; empty
    src_tokens: List[Tensor]
    #: [(B, 1)] tokens of each source
    src_lengths: List[Tensor]

    # ---- of all encoders of this suite ---------------------------------------------------------

    #: rows that the decoder has for each sentence: beams share the output of their sentence
    beams: int

    # ---- SharedSourceEncoder: all transformers -------------------------------------------------

    #: [(B, S)] True at ``<sep>``
    separators: List[Tensor]

    # ---- GRUEncoder: all recurrent models ------------------------------------------------------

    #: [(B, 2 d)] last forward and first backward state
    summary: List[Tensor]
    #: first decoder state and search trace, kept for when the result of a search is read
    remembered: Dict[str, Any]

    # ---- models with a state that goes from sentence to sentence -------------------------------

    #: :class:`~fairseq_docmt.modules.shared.stream.Stream`, how the rows follow each other
    stream: Any
    #: MemoryTransformerEncoder: the state that the memories of the encoder leave
    doc_state: Dict[str, Tensor]
    #: MemoryTransformerEncoder: memories of the decoder by layer, kept for when the result of a
    #: search is read
    begun: Dict[int, Any]
    #: ContextEncoder: tensors of :class:`~fairseq_docmt.modules.rnn.contextual_gru.SourceContext`:
    #: (B, W, l) states of earlier source sentences and (B, W) True where there are none
    context: List[Tensor]
    #: ContextEncoder: the state after these sentences
    next_doc_state: Dict[str, Tensor]

    # ---- MemnetEncoder and searches with document memories -------------------------------------

    #: [(B, 2 d)] cells of the source memory
    source_cells: List[Tensor]
    #: [(B, r)] what was read from the memories for each sentence
    readings: List[Tensor]
