"""Optional attributes and methods of models, with defaults for models without them.

Models of fairseq have none of these.
"""

from typing import Dict, Iterable, Optional, Protocol, Tuple

from torch import Tensor

from fairseq_docmt.modules.shared.document_state import DocumentState


class DocumentModel(Protocol):
    """Optional attributes and methods of models.

    Attributes:
        is_document_recurrent: whether the model has a document state. ``forward`` then takes
            ``starts``, ``lanes`` and ``doc_state`` (:mod:`fairseq_docmt.data.stream_view`), and the
            extra outputs of the decoder include ``doc_state``. Default: False.
        reads_documents: whether batches contain all sentences of a document as rows. ``forward``
            then takes ``documents`` (:mod:`fairseq_docmt.data.rows_view`). Default: False.
        remembers_translations: whether such a model also reads translations of the other sentences.
            Default: False.
        full_context_alignment: whether alignments need the whole output (fairseq's
            ``transformer_align``). Default: False.
    """

    is_document_recurrent: bool
    reads_documents: bool
    remembers_translations: bool
    full_context_alignment: bool

    def load_pretrained_parts(self, sentences: Iterable[Tensor]) -> None:
        """Load pre-trained parts, given source sentences of the training set."""


class DocumentDecoder(Protocol):
    """Optional attributes and methods of decoders.

    Attributes:
        has_attention_weights: whether decoding steps return attention weights. Default: True.
    """

    has_attention_weights: bool

    def prefill(
        self, new_tokens: Tensor, encoder_out: dict, incremental_state: Dict
    ) -> Tuple[Tensor, dict]:
        """Continue the incremental state by (bsz, n) right-padded tokens in one pass."""

    def next_doc_state(self, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
        """Return the document state after a sentence, without computing its outputs."""


def is_document_recurrent(model) -> bool:
    """Return whether a model has a document state."""
    return getattr(model, "is_document_recurrent", False)


def reads_documents(model) -> bool:
    """Return whether batches contain all sentences of a document as rows."""
    return getattr(model, "reads_documents", False)


def load_pretrained_parts(model, sentences: Iterable[Tensor]) -> None:
    """Load the pre-trained parts of a model, if it has any."""
    load = getattr(model, "load_pretrained_parts", None)
    if load is not None:
        load(sentences)


def has_attention_weights(model) -> bool:
    """Return whether decoding steps of a model return attention weights."""
    return getattr(model.decoder, "has_attention_weights", True)


def aligns_whole_outputs(model) -> bool:
    """Return whether the alignments of a model need the whole output."""
    return getattr(model, "full_context_alignment", False)


def prefill_of(decoder) -> Optional[object]:
    """Return the ``prefill`` method of a decoder, or None."""
    return getattr(decoder, "prefill", None)


def state_after(model, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
    """Return the document state after the decoder has read a sentence.

    Args:
        model: model for which :func:`is_document_recurrent` holds.
        prev_output_tokens: (bsz, T) right-padded decoder input.
        encoder_out: encoder output of the same rows.
    """
    next_doc_state = getattr(model.decoder, "next_doc_state", None)
    if next_doc_state is not None:
        return next_doc_state(prev_output_tokens, encoder_out)
    _, extra = model.decoder(prev_output_tokens, encoder_out=encoder_out, features_only=True)
    return extra["doc_state"]
