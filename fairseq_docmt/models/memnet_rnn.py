"""RNNSearch with document memories.

Maruf and Haffari (2018), "Document Context Neural Machine Translation with Memory Networks".
"""

import contextlib
import logging
import os
from dataclasses import dataclass, field
from typing import Callable, Iterable, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import register_model
from torch import Tensor, nn

from fairseq_docmt.errors import UserError
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


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class MemnetConfig(FairseqDataclass):
    """Options that ``memnet_rnn`` adds to ``rnnsearch``: memories and sentence language models."""

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
            "sentence vectors; needed to start training with a source memory"
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
    """Use evaluation mode inside a ``with`` block, then restore the mode of each module."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def memnet_rnn(args):
    """Default to the sizes of the paper: width 512, attention 256, two decoder layers."""
    set_defaults(args, MemnetConfig)
    rnnsearch_512(args)


@register_model(
    "memnet_rnn", dataclass=options_dataclass(memnet_rnn, RNNSearchConfig, MemnetConfig)
)
class MemnetRNNModel(ExtendedModel, PackedTargets, RNNSearchModel):
    """RNNSearch with memories of the other sentences of a document and their translations.

    Batch rows are sentences; the sentences of a document are consecutive (see data/rows_view.py).
    """

    new_parameters = NEW_PARAMETERS
    architecture = staticmethod(memnet_rnn)

    reads_documents, needed_task = True, "document_rows_translation"

    @classmethod
    def build_model(cls, args, task):
        """Build a model that stores the paths of ``--sentence-lm``; the files are loaded later."""
        model = super().build_model(args, task)
        model.sentence_lm = args.sentence_lm
        return model

    @classmethod
    def build_encoder(cls, args, *parts):
        """Build the encoder, with the source memory if ``--context-side`` includes it."""
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
        """Build the decoder, with the target memory if ``--context-side`` includes it."""
        return MemnetDecoder(
            *parts,
            source_size=0 if args.context_side == "target" else 2 * args.encoder_hidden_size,
            target_memory=args.context_side != "source",
            insertion=str(args.context_integration),
        )

    @property
    def remembers_translations(self) -> bool:
        """Whether the model has a target memory."""
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
        """Compute the logits of the sentences of whole documents.

        Args:
            src_tokens, src_lengths, prev_output_tokens, **kwargs: see fairseq's models.
            documents: (rows,) document number of each row; None to leave out the memories.
            drafts: (rows, U) translations for the target memory, right-padded and starting with
                ``</s>``. If None, ``prev_output_tokens`` are stored, and a sentence's own memory
                cell is not added to its query to the memory.
            row_groups: groups of rows of similar length, or None.
            draft_groups: the same, grouped by the lengths of the drafts.

        Returns:
            (rows, T, V) logits of T tokens over V words, or with ``row_groups`` (1, N, V) logits of
            the N positions that contribute to the loss; and extra outputs.
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
        """Compute the (rows, d) cells of the target memory without dropout, even in training.

        ``previous`` (rows, U) are the translations to store, right-padded and starting with
        ``</s>``.
        """
        if self.training:
            with evaluating(self):
                evaluated = self.encoder(src_tokens, src_lengths=src_lengths, documents=documents)
                batch = (src_tokens, src_lengths, previous, documents, groups)
                return self._target_cells(evaluated, *batch)
        readings = self.decoder.recall_source(encoder_out, documents)
        return self.decoder.target_cells(previous, encoder_out, readings, groups)

    def load_pretrained_parts(self, sentences: Iterable[Tensor], read: Callable) -> None:
        """Load the language models at the start of training.

        Args:
            sentences: source sentences of the training set, used to standardise sentence vectors.
            read: function from the path of a checkpoint to its parameters by name.

        Raises:
            UserError: a language model is not given or not found, or does not fit the model in
                architecture, size or vocabulary.
        """
        if self.encoder.source_memory is None:
            if self.sentence_lm:
                logger.warning("no effect with --context-side target: --sentence-lm")
            return
        paths = (self.sentence_lm or "").split(os.pathsep)
        if len(paths) != len(DIRECTIONS):
            raise UserError(
                "--context-side source and both need --sentence-lm FORWARD:BACKWARD, two "
                "language models of the source; examples/maruf2018_memnet/train_sentence_lm.sh "
                "trains them"
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
