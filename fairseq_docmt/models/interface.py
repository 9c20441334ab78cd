"""Optional attributes and methods of models, and functions that supply their defaults.

Tasks and searches query a model through these functions.  They therefore also work with fairseq's
own models, which have none of the attributes.
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
    """Optional attributes and methods of a model, which tell tasks and searches what it needs.

    Attributes:
        is_document_recurrent: whether the model passes a document state from sentence to sentence.
            If so, ``forward`` and the encoder take ``starts``, ``lanes``, ``doc_state`` and
            ``row_groups`` (:mod:`fairseq_docmt.data.batch`); searches call the encoder without
            ``lanes`` and ``row_groups``.  The extra outputs of the decoder contain the next
            ``doc_state``.  Default: False.
        doc_state_options: names of the options that determine the size of the document state, but
            not the size of any parameter.  They must not change in the middle of an epoch.
            Default: none.
        needed_task: name of the task that gives the model its context.  Default: None, for a model
            whose input sequence already contains the context.
        sentences_back: largest number of previous sentences on which a translation depends, also
            through the states of others.  Default: None, for a model without a limit of its own.
        reads_documents: whether each batch consists of whole documents, with one sentence per row.
            If so, ``forward`` takes ``documents`` (:mod:`fairseq_docmt.data.batch`).
            Default: False.
        remembers_translations: whether the model also reads the translations of the other sentences
            of a document.  Default: False.
        needs_several_sentences: whether the parts that the model adds to a transformer have no
            effect on a sequence of one sentence.  Default: False.
        full_context_alignment: whether the model aligns words only when the whole output is known,
            like fairseq's ``transformer_align``.  Default: False.
    """

    is_document_recurrent: bool
    needed_task: Optional[str]
    doc_state_options: Tuple[str, ...]
    sentences_back: Optional[int]
    reads_documents: bool
    remembers_translations: bool
    needs_several_sentences: bool
    full_context_alignment: bool

    def load_pretrained_parts(self, sentences: Iterable[Tensor], read: Callable) -> None:
        """Load parts of the model that were trained separately, from their checkpoints.

        Args:
            sentences: training sentences as 1-D tensors of tokens, from which statistics can be
                computed.
            read: function that takes the path of a checkpoint and returns its parameters by name.
        """


class DocumentEncoder(Protocol):
    """Optional attributes and methods of an encoder.

    Attributes:
        reach: number of tokens on each side that a token attends to in one layer.  None, the
            default, means that tokens attend to the whole source.  If it is a number, the encoder
            must have ``encode_further``, and its decoder ``independent`` and ``with_source``.  A
            document can then be translated sentence by sentence without being encoded again from
            its beginning.
    """

    reach: Optional[int]

    def encode_further(self, src_tokens: Tensor, before: Optional[Any]) -> Tuple[dict, Any]:
        """Encode sources that have become longer since the last call, reusing earlier results.

        Args:
            src_tokens: (bsz, S) padded sources.  Apart from final symbols such as ``</s>``, each
                begins with the source of the same row in the last call.
            before: second result of the last call; None in the first call.

        Returns:
            The encoder output, and an object to pass as ``before`` in the next call.  The output is
            right-padded; its entry ``encoder_out`` is [(S, bsz, C)].  The object has an attribute
            ``final`` (bsz,), which is the number of leading positions of each source whose output
            stays the same when tokens are appended.  Its method ``of_rows`` selects sources by
            index, as in :class:`~fairseq_docmt.modules.window.window_encoder.GrowingSource`.
        """


class DocumentDecoder(Protocol):
    """Attributes and methods that the document tasks and searches use if a decoder has them.

    A decoder need not inherit from this class.

    Attributes:
        has_attention_weights: whether the decoder returns attention weights while decoding.
            Default: True; decoders based on ``StatefulDecoder`` set it to False.
    """

    has_attention_weights: bool

    def prefill(
        self, new_tokens: Tensor, encoder_out: dict, incremental_state: Dict
    ) -> Tuple[Tensor, dict]:
        """Read several tokens in one pass and update the incremental state in place.

        Args:
            new_tokens: (bsz, n) right-padded tokens that follow those read before.
            encoder_out: encoder output with one row for each row of tokens, or with one row for
                each sentence if several rows translate the same sentence.
            incremental_state: state after the tokens read before; empty if there are none.

        Returns:
            (bsz, n, C) features of the new tokens, and a dict of extra outputs.
        """

    def next_doc_state(self, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
        """Return the document state after a sentence, without computing the decoder's outputs.

        Decoders define this method if it is faster than a complete pass.

        Args:
            prev_output_tokens: (bsz, T) decoder input of the whole sentence, right-padded.
            encoder_out: encoder output of the same rows.
        """

    def independent(
        self, tokens: Tensor, encoder_out: dict, incremental_state: Dict, final: Tensor
    ) -> Tensor:
        """Count the leading tokens of each row that text appended to the source cannot affect.

        Args:
            tokens: (bsz, T) next target tokens, right-padded.
            encoder_out: encoder output of the source so far.
            incremental_state: state before these tokens.
            final: (bsz,) number of leading source positions whose encoder output stays the same
                when the source becomes longer.

        Returns:
            (bsz,) number of leading tokens that attend only to these source positions.
        """

    def with_source(self, incremental_state: Dict, encoder_out: dict, unchanged: int) -> Dict:
        """Return the incremental state for a source that has become longer.

        Args:
            incremental_state: state after target tokens that are all :meth:`independent` of the
                text appended to the source.
            encoder_out: encoder output of the longer source.
            unchanged: number of leading source positions whose encoder output is the same as
                before.
        """


def complete_in_place(cfg, task_cfg) -> None:
    """Fill in the options that the configuration of a new model lacks, in place.

    The checkpoints of the model then contain all options.

    Args:
        cfg: configuration of the model.
        task_cfg: configuration of the task.  As with ``fairseq-train``, it supplies the maximum
            numbers of positions if ``cfg`` lacks them.
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


def sentences_back(model) -> Optional[int]:
    """Return on how many previous sentences a translation depends at most; None for no limit."""
    return getattr(model, "sentences_back", None)


def reads_documents(model) -> bool:
    """Return whether a model reads batches of whole documents, with one sentence per row."""
    return getattr(model, "reads_documents", False)


def needed_task(model) -> Optional[str]:
    """Return the name of the task that gives a model its context.

    The result is None if the model needs no particular task, as its input contains the context.
    """
    return getattr(model, "needed_task", None)


def remembers_translations(model) -> bool:
    """Return whether the context of a model includes translations, not only source sentences."""
    return getattr(model, "remembers_translations", False)


def needs_several_sentences(model) -> bool:
    """Return whether the context options of a model have no effect on single sentences."""
    return getattr(model, "needs_several_sentences", False)


def load_pretrained_parts(model, sentences: Iterable[Tensor]) -> None:
    """Load the parts of a model that were trained separately, if it has such parts.

    Args:
        model: model to complete, in place.
        sentences: training sentences as 1-D tensors of tokens, from which the model can compute
            statistics.

    Raises:
        UserError: the checkpoint of a part cannot be read, or its training has diverged.
    """

    def weights_of(path: str) -> Dict[str, Tensor]:
        file = read_checkpoint(path)
        file.refuse_diverged()
        return file.weights

    load = getattr(model, "load_pretrained_parts", None)
    if load is not None:
        load(sentences, weights_of)


def has_attention_weights(model) -> bool:
    """Return whether the decoder of a model returns attention weights while decoding."""
    return getattr(model.decoder, "has_attention_weights", True)


def aligns_whole_outputs(model) -> bool:
    """Return whether a model can align words only when the whole output is known."""
    return getattr(model, "full_context_alignment", False)


def separate_beams(model) -> None:
    """Undo the effect of ``set_beam_size``, which fairseq's search calls for models such as BART.

    Until it is undone, only fairseq's own search can use the decoder, and the model cannot be
    trained.  Models without ``set_beam_size`` remain unchanged.
    """
    set_beam_size = getattr(model, "set_beam_size", None)
    if set_beam_size is not None:
        set_beam_size(1)
        # Shadows the method of the class, with one that does not reorder.
        model.encoder.__dict__.pop("reorder_encoder_out", None)


def prefill_of(decoder) -> Optional[Callable]:
    """Return the ``prefill`` method of a decoder, which reads several tokens at once.

    The result is None if the decoder has no such method.
    """
    return getattr(decoder, "prefill", None)


def can_grow(model) -> bool:
    """Return whether a model can reuse its encoder and decoder states for a longer source.

    This allows the model to translate a document sentence by sentence without reading its beginning
    again.
    """
    return getattr(model.encoder, "reach", None) is not None


def state_after(model, prev_output_tokens: Tensor, encoder_out: dict) -> DocumentState:
    """Return the document state after the model has read a sentence and its translation.

    Args:
        model: model for which :func:`is_document_recurrent` is true.
        prev_output_tokens: (bsz, T) decoder input of the translation, right-padded.
        encoder_out: encoder output of the sentences, with the same rows.
    """
    next_doc_state = getattr(model.decoder, "next_doc_state", None)
    if next_doc_state is not None:
        return next_doc_state(prev_output_tokens, encoder_out)
    _, extra = model.decoder(prev_output_tokens, encoder_out=encoder_out, features_only=True)
    return extra["doc_state"]
