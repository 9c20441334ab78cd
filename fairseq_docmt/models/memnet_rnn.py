"""RNNSearch with document memories.

Maruf and Haffari (2018), "Document Context Neural Machine Translation with Memory Networks".
"""

import contextlib
import logging
import os
from dataclasses import dataclass, field, fields
from typing import Callable, Iterable, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.models.base import (
    ExtendedModel,
    PackedTargets,
    options_dataclass,
    set_defaults,
)
from fairseq_docmt.models.rnnsearch import RNNSearchConfig, RNNSearchModel, rnnsearch_512
from fairseq_docmt.modules.rnn.memory import (
    DIRECTIONS,
    INSERTIONS,
    MemnetDecoder,
    MemnetEncoder,
    SentenceVectors,
    SourceMemory,
)

logger = logging.getLogger(__name__)

#: parameters that rnnsearch lacks
NEW_PARAMETERS = (".source_memory.", ".target_query.", ".of_memory.")
#: options without effect if there is no source memory
OF_SOURCE = ("memory_dropout", "sentence_lm", "sentence_lm_embed_dim", "sentence_lm_hidden_size")


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class MemnetConfig(FairseqDataclass):
    """Options that ``memnet_rnn`` adds to ``rnnsearch``: memories and sentence encoder."""

    context_side: ChoiceEnum(["source", "target", "both"]) = field(
        default="both", metadata={"help": "sides of the document with a memory"}
    )
    context_integration: ChoiceEnum(INSERTIONS) = field(
        default="context",
        metadata={
            "help": "add memory readings to the gates of the decoder, or to its output logits"
        },
    )
    memory_dropout: float = field(default=0.2, metadata={"help": "dropout of the source memory"})
    sentence_lm: Optional[str] = field(
        default=None,
        metadata={
            "help": "FORWARD:BACKWARD, checkpoints of two language models of the source (--arch "
            "lstm_lm), the second trained on reversed sentences; their last states are the "
            "sentence vectors; needed to train with a source memory"
        },
    )
    sentence_lm_embed_dim: int = field(
        default=512, metadata={"help": "embedding size of the language models", "at_least": 1}
    )
    sentence_lm_hidden_size: int = field(
        default=512, metadata={"help": "state size of the language models", "at_least": 1}
    )


@contextlib.contextmanager
def evaluating(model: nn.Module):
    """Put a model in evaluation mode for the duration of a ``with`` block.

    At the end of the block, each module returns to the mode that it had before.
    """
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def memnet_rnn(args):
    """Set missing options in ``args`` to their defaults, with the sizes of the paper.

    Embeddings and states have size 512, the hidden layer of attention has size 256, and the decoder
    has two layers.
    """
    set_defaults(args, MemnetConfig)
    rnnsearch_512(args)


@register_model(
    "memnet_rnn", dataclass=options_dataclass(memnet_rnn, RNNSearchConfig, MemnetConfig)
)
class MemnetRNNModel(ExtendedModel, PackedTargets, RNNSearchModel):
    """RNNSearch with memories of the other sentences of a document and of their translations.

    A memory has one vector, called a cell, for each sentence. Each batch row is a sentence, and the
    sentences of a document are consecutive rows (:mod:`fairseq_docmt.data.rows_view`).
    """

    new_parameters = NEW_PARAMETERS
    architecture = staticmethod(memnet_rnn)

    reads_documents, needed_task = True, "document_rows_translation"

    @classmethod
    def build_model(cls, args, task):
        """Build a model that remembers the paths given by ``--sentence-lm``.

        The language models themselves are loaded later, by :meth:`load_pretrained_parts`.
        """
        model = super().build_model(args, task)
        model.sentence_lm = args.sentence_lm
        #: options of the source memory that are given
        model.source_options = [
            option.name
            for option in fields(MemnetConfig)
            if option.name in OF_SOURCE and getattr(args, option.name) != option.default
        ]
        return model

    @classmethod
    def build_encoder(cls, args, *parts):
        """Build the encoder, with a source memory unless ``--context-side`` is ``target``."""
        memory = None
        if args.context_side != "target":
            dictionary = parts[0]
            sentences = SentenceVectors(
                len(dictionary),
                dictionary.pad(),
                dictionary.eos(),
                args.sentence_lm_embed_dim,
                args.sentence_lm_hidden_size,
            )
            memory = SourceMemory(sentences, args.encoder_hidden_size, args.memory_dropout)
        return MemnetEncoder(*parts, memory=memory)

    @classmethod
    def build_decoder(cls, args, *parts):
        """Build the decoder, with a target memory unless ``--context-side`` is ``source``."""
        return MemnetDecoder(
            *parts,
            source_size=0 if args.context_side == "target" else 2 * args.encoder_hidden_size,
            target_memory=args.context_side != "source",
            insertion=str(args.context_integration),
        )

    @property
    def remembers_translations(self) -> bool:
        """Whether the model has a target memory, which stores translations."""
        return self.decoder.target_query is not None

    def forward(
        self,
        src_tokens,
        src_lengths,
        prev_output_tokens,
        documents=None,
        drafts=None,
        row_groups=None,
        draft_groups=None,
        **kwargs,
    ):
        """Compute the logits for all sentences of one or more documents.

        Args:
            src_tokens, src_lengths, prev_output_tokens, **kwargs: see fairseq's models.
            documents: (rows,) number of the document to which each row belongs. If None, the
                memories are not used.
            drafts: (rows, U) translations to store in the target memory, right-padded and starting
                with ``</s>``. If None, ``prev_output_tokens`` are stored instead. In this case, the
                query of a sentence to the target memory does not include the cell of the sentence
                itself.
            row_groups: division of the rows into groups of similar length
                (:class:`~fairseq_docmt.data.batch.RowGroupings`); None for a single group.
            draft_groups: division of the rows by the lengths of their drafts, in the same form.

        Returns:
            (rows, T, V) logits of T tokens over V words, and a dict of extra outputs. With
            ``row_groups``, the logits are (1, N, V), only for the N positions that contribute to
            the loss.
        """
        encoder_out = self.encoder(
            src_tokens, src_lengths=src_lengths, documents=documents, row_groups=row_groups
        )
        if documents is not None:
            cells = None
            if self.remembers_translations:
                previous = prev_output_tokens if drafts is None else drafts
                groups = row_groups if drafts is None else draft_groups
                batch = (src_tokens, src_lengths, previous, documents, groups)
                cells = self._target_cells(encoder_out, *batch)
            readings = self.decoder.recall(encoder_out, documents, cells, own=drafts is not None)
            encoder_out = {**encoder_out, "readings": [readings]}
        return self.decoder(
            prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **kwargs
        )

    @torch.no_grad()
    def _target_cells(
        self, encoder_out, src_tokens, src_lengths, previous, documents, groups
    ) -> Tensor:
        """Compute the cells of the target memory, one for each translation.

        Dropout is switched off, even in training.

        Args:
            encoder_out: encoder output of the rows. In training it is computed again without
                dropout.
            src_tokens, src_lengths, documents: see :meth:`forward`.
            previous: (rows, U) translations to store, right-padded and starting with ``</s>``.
            groups: division of the translations into groups of similar length, or None.

        Returns:
            (rows, d) cells, where d is the size of the decoder state.
        """
        if self.training:
            with evaluating(self):
                evaluated = self.encoder(src_tokens, src_lengths=src_lengths, documents=documents)
                batch = (src_tokens, src_lengths, previous, documents, groups)
                return self._target_cells(evaluated, *batch)
        readings = self.decoder.recall_source(encoder_out, documents)
        return self.decoder.target_cells(previous, encoder_out, readings, groups)

    def load_pretrained_parts(self, sentences: Iterable[Tensor], read: Callable) -> None:
        """Load the two source language models given by ``--sentence-lm`` at the start of training.

        Their last states serve as sentence vectors for the source memory. Without a source memory,
        nothing is loaded.

        Args:
            sentences: source sentences of the training set. The mean and standard deviation of
                their vectors are used to standardise all sentence vectors.
            read: function that takes the path of a checkpoint and returns its parameters by name.

        Raises:
            UserError: a language model is not given or not found, is given twice, or does not fit
                the model in architecture, size or vocabulary.
        """
        if self.encoder.source_memory is None:
            if self.source_options:
                names = ", ".join(map(flag, self.source_options))
                logger.warning("no effect with --context-side target: %s", names)
            return
        paths = (self.sentence_lm or "").split(os.pathsep)
        if len(paths) != len(DIRECTIONS):
            raise UserError(
                "--context-side source and both need --sentence-lm FORWARD:BACKWARD, two "
                "language models of the source; examples/maruf2018_memnet/train_sentence_lm.sh "
                "trains them"
            )
        if len({*map(os.path.realpath, paths)}) == 1:
            raise UserError(
                f"--sentence-lm gives {paths[0]} twice, but the second language model must be "
                "trained on reversed sentences"
            )
        for name, path in zip(DIRECTIONS, paths):
            if not os.path.isfile(path):
                raise UserError(f"--sentence-lm: checkpoint {path} not found")
            weights = read(path)
            try:
                self.encoder.source_memory.sentences.load(name, weights)
            except ValueError as error:
                raise UserError(f"--sentence-lm: {path} {error}") from None
        self.encoder.source_memory.sentences.standardise(sentences)
