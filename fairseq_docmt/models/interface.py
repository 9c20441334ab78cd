"""Optional attributes and methods of models, and functions that supply their defaults.

The tasks and searches use these functions, so fairseq's own models need none of the attributes.
"""

import contextlib
from typing import Any, Callable, Dict, Iterable, Optional, Protocol, Tuple

from fairseq.models import (
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)
from omegaconf import OmegaConf, open_dict
from torch import Tensor

from fairseq_docmt.checkpoint_file import read_checkpoint
from fairseq_docmt.models.base import POSITIONS, name_of, with_defaults
from fairseq_docmt.modules.stream import DocumentState


class DocumentModel(Protocol):
    """Attributes and methods that a model may have.

    Attributes:
        is_document_recurrent: the model passes a document state from sentence to sentence.
            ``forward`` and the encoder take ``starts``, ``lanes``, ``doc_state`` and ``row_groups``
            (:mod:`fairseq_docmt.data.batch`); searches call the encoder without ``lanes`` and
            ``row_groups``.  The extra outputs of the decoder contain the next ``doc_state``.
            Default: False.
        doc_state_options: names of options that determine the size of the document state, but not
            the size of parameters.  They cannot be changed within an epoch.  Default: none.
        needed_task: name of the task that gives the model its context.  Default: None, for a model
            whose context is part of its input sequence.
        reads_documents: the rows of a batch are the sentences of whole documents, and ``forward``
            takes ``documents`` (:mod:`fairseq_docmt.data.batch`).  Default: False.
        remembers_translations: the model also reads translations of the other sentences of a
            document.  Default: False.
        needs_several_sentences: what the model adds to a transformer has no effect on a sequence
            of one sentence.  Default: False.
        full_context_alignment: the model aligns words only after the whole output is known
            (fairseq's ``transformer_align``).  Default: False.
    """

    is_document_recurrent: bool
    needed_task: Optional[str]
    doc_state_options: Tuple[str, ...]
    reads_documents: bool
    remembers_translations: bool
    needs_several_sentences: bool
    full_context_alignment: bool

    def load_pretrained_parts(self, sentences: Iterable[Tensor], read: Callable) -> None:
        """Load parts of the model that were trained separately, from their checkpoints.

        Args:
            sentences: sentences of the training set, 1-D tensors, to compute statistics from.
            read: function from the path of a checkpoint to its parameters by name.
        """


class DocumentEncoder(Protocol):
    """Attributes and methods that an encoder may have.

    Attributes:
        reach: number of tokens on each side that a token attends to in one layer.  An encoder with
            a ``reach`` has ``encode_further``, and its decoder has ``independent`` and
            ``with_source``.  None, the default, for an encoder that attends to the whole source.
    """

    reach: Optional[int]

    def encode_further(self, src_tokens: Tensor, before: Optional[Any]) -> Tuple[dict, Any]:
        """Encode sources that have grown since the last call.

        Args:
            src_tokens: (bsz, S) padded sources, which begin with those of the last call.
            before: second result of the last call; None in the first call.

        Returns:
            The encoder output, whose ``encoder_out`` is [(S, bsz, C)] for S tokens and C channels,
            right-padded; and the object to pass as ``before`` in the next call.  Its attribute
            ``final`` (bsz,) is the number of leading output positions of each source that further
            tokens cannot change; its method ``of_rows`` selects sources by index, like that of
            :class:`~fairseq_docmt.modules.window.window_encoder.GrowingSource`.
        """


class DocumentDecoder(Protocol):
    """Attributes and methods that a decoder may have.

    Attributes:
        has_attention_weights: the decoder gives attention weights while decoding.  Default: True,
            but False for decoders based on ``StatefulDecoder``.
    """

    has_attention_weights: bool

    def prefill(
        self, new_tokens: Tensor, encoder_out: dict, incremental_state: Dict
    ) -> Tuple[Tensor, dict]:
        """Read several tokens in one pass and update the incremental state in place.

        Args:
            new_tokens: (bsz, n) right-padded tokens that follow those read before.
            encoder_out: encoder output of the same rows, or of fewer sentences, each shared by
                several rows.
            incremental_state: state after the tokens read before; empty if there are none.

        Returns:
            (bsz, n, C) features of the new tokens, and extra outputs.
        """

    def next_doc_state(self, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
        """Return the document state after a sentence, without computing its outputs.

        Args:
            prev_output_tokens: (bsz, T) right-padded decoder input, the whole sentence.
            encoder_out: encoder output of the same rows.
        """

    def independent(
        self, tokens: Tensor, encoder_out: dict, incremental_state: Dict, final: Tensor
    ) -> Tensor:
        """Count the leading tokens of each row that do not depend on sentences still to come.

        They attend only to the first ``final`` (bsz,) source columns, which stay the same when the
        source grows.  ``tokens`` are (bsz, T), right-padded.
        """

    def with_source(self, incremental_state: Dict, encoder_out: dict, unchanged: int) -> Dict:
        """Return the incremental state for a longer source.

        Args:
            incremental_state: state after tokens that are :meth:`independent` of the added source.
            encoder_out: encoder output of the longer source.
            unchanged: number of leading source columns that are the same.
        """


def complete_in_place(cfg, task_cfg) -> None:
    """Fill in the options that the configuration of a new model lacks.

    The model's checkpoints then contain all options.  The maximum numbers of positions default to
    those of the task, as with ``fairseq-train``.
    """
    name = name_of(cfg)
    model = ARCH_MODEL_REGISTRY.get(name)
    config = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name))
    typed = OmegaConf.is_config(cfg)
    with open_dict(cfg) if typed else contextlib.nullcontext():
        for option in POSITIONS:
            has_it = config is None or option in config.__dataclass_fields__
            if has_it and getattr(cfg, option, None) is None:
                setattr(cfg, option, getattr(task_cfg, option))
        if typed and hasattr(model, "architecture"):
            for option, value in vars(with_defaults(cfg, model.architecture)).items():
                cfg[option] = value


def is_document_recurrent(model) -> bool:
    """Return whether a model passes a document state from sentence to sentence."""
    return getattr(model, "is_document_recurrent", False)


def doc_state_options(model) -> Tuple[str, ...]:
    """Return the names of options that determine the size of a model's document state."""
    return getattr(model, "doc_state_options", ())


def reads_documents(model) -> bool:
    """Return whether the rows of a model's batches are the sentences of whole documents."""
    return getattr(model, "reads_documents", False)


def needed_task(model) -> Optional[str]:
    """Return the task that gives a model its context; None if the input sequence contains it."""
    return getattr(model, "needed_task", None)


def remembers_translations(model) -> bool:
    """Return whether a model reads translations of the other sentences of a document."""
    return getattr(model, "remembers_translations", False)


def needs_several_sentences(model) -> bool:
    """Return whether the context options of a model have no effect on single sentences."""
    return getattr(model, "needs_several_sentences", False)


def load_pretrained_parts(model, sentences: Iterable[Tensor]) -> None:
    """Load the parts of a model that were trained separately, if it has such parts.

    Args:
        model: the model.
        sentences: see :meth:`DocumentModel.load_pretrained_parts`.
    """
    load = getattr(model, "load_pretrained_parts", None)
    if load is not None:
        load(sentences, lambda path: read_checkpoint(path).weights)


def has_attention_weights(model) -> bool:
    """Return whether the decoder of a model gives attention weights while decoding."""
    return getattr(model.decoder, "has_attention_weights", True)


def aligns_whole_outputs(model) -> bool:
    """Return whether a model aligns words only after the whole output is known."""
    return getattr(model, "full_context_alignment", False)


def separate_beams(model) -> None:
    """Undo ``set_beam_size`` of fairseq's BART; do nothing for models without this method.

    After ``set_beam_size``, only fairseq's own search can use the decoder, and the model can no
    longer be trained.
    """
    set_beam_size = getattr(model, "set_beam_size", None)
    if set_beam_size is not None:
        set_beam_size(1)
        # Shadows the method of the class, with one that does not reorder.
        model.encoder.__dict__.pop("reorder_encoder_out", None)


def prefill_of(decoder) -> Optional[Callable]:
    """Return the ``prefill`` method of a decoder; None if it has none."""
    return getattr(decoder, "prefill", None)


def can_grow(model) -> bool:
    """Return whether encoder outputs and decoder states can be reused when the source grows."""
    return getattr(model.encoder, "reach", None) is not None


def state_after(model, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
    """Return the document state after the decoder has read a sentence.

    Args:
        model: model for which :func:`is_document_recurrent` is true.
        prev_output_tokens: (bsz, T) decoder input, right-padded.
        encoder_out: encoder output of the same rows.
    """
    next_doc_state = getattr(model.decoder, "next_doc_state", None)
    if next_doc_state is not None:
        return next_doc_state(prev_output_tokens, encoder_out)
    _, extra = model.decoder(prev_output_tokens, encoder_out=encoder_out, features_only=True)
    return extra["doc_state"]
