"""RNNSearch with memories of the whole document.

Maruf and Haffari (2018), "Document Context Neural Machine Translation with Memory Networks".
"""

import contextlib
import os
from dataclasses import dataclass, field
from typing import Iterable, Optional

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from torch import Tensor, nn

from fairseq_docmt.errors import UserError
from fairseq_docmt.models._options import fill_missing, mark_new, set_defaults
from fairseq_docmt.models.rnnsearch import RNNSearchModel, rnnsearch_512
from fairseq_docmt.modules.rnn.document_memory import (
    DIRECTIONS,
    INSERTIONS,
    MemnetDecoder,
    MemnetEncoder,
    SentenceVectors,
    SourceMemory,
)

#: parameters that rnnsearch lacks
NEW_PARAMETERS = (".source_memory.", ".target_query.", ".of_memory.")


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class MemnetConfig(FairseqDataclass):
    memory: ChoiceEnum(["source", "target", "both"]) = field(
        default="both", metadata={"help": "sides of the document that are remembered"}
    )
    memory_to: ChoiceEnum(INSERTIONS) = field(
        default="context",
        metadata={"help": "add what is read to the gates of the decoder, or to its output"},
    )
    memory_dropout: float = field(
        default=0.2, metadata={"help": "dropout of the recurrence over source sentences"}
    )
    sentence_lm: Optional[str] = field(
        default=None,
        metadata={
            "help": "FORWARD:BACKWARD, checkpoints of language models of the source (--arch "
            "lstm_lm), the second of sentences read backward, whose last states are the vectors "
            "of sentences; needed to begin training with a source memory"
        },
    )
    sentence_lm_embed_dim: int = field(
        default=512, metadata={"help": "size of the embeddings of the language models"}
    )
    sentence_lm_hidden_size: int = field(
        default=512, metadata={"help": "size of the states of the language models"}
    )


@contextlib.contextmanager
def evaluating(model: nn.Module):
    """Evaluation mode for a while; each part then goes on in the mode that it was in."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@register_model("memnet_rnn")
class MemnetRNNModel(RNNSearchModel):
    """RNNSearch that knows all other sentences of a document, and how they are translated.

    Rows are sentences, those of a document one after the other (see data/rows_view.py).
    """

    reads_documents = True

    @classmethod
    def add_args(cls, parser):
        """Options of ``rnnsearch`` and of :class:`MemnetConfig`."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, MemnetConfig(), delete_default=True)

    @classmethod
    def build_model(cls, args, task):
        """Build a model.

        Raises:
            UserError: options that make no sense.
        """
        memnet_rnn(args)
        model = super().build_model(args, task)
        model.sentence_lm = args.sentence_lm
        mark_new(model, NEW_PARAMETERS)
        return model

    @classmethod
    def build_encoder(cls, args, *parts):
        """Encoder with the source memory."""
        memory = None
        if args.memory != "target":
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
        """Decoder with the target memory."""
        return MemnetDecoder(
            *parts,
            source_size=0 if args.memory == "target" else 2 * args.encoder_hidden_size,
            target_memory=args.memory != "source",
            insertion=str(args.memory_to),
        )

    @property
    def remembers_translations(self) -> bool:
        """Whether there is a target memory."""
        return self.decoder.target_query is not None

    def forward(
        self, src_tokens, src_lengths, prev_output_tokens, documents=None, drafts=None, **kwargs
    ):
        """As in the stock models, for sentences of whole documents.

        Args:
            documents: (rows,) number of the document of each row; None leaves readings out.
            drafts: (rows, U) translations that fill the target memory, right-padded, beginning with
                ``</s>``; None for ``prev_output_tokens``, of which a sentence then does not see
                its own.

        Returns:
            (rows, T, V) logits, extra outputs.
        """
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths, documents=documents)
        if documents is not None:
            cells = None
            if self.remembers_translations:
                previous = prev_output_tokens if drafts is None else drafts
                batch = (src_tokens, src_lengths, previous, documents)
                cells = self._target_cells(encoder_out, *batch)
            readings = self.decoder.recall(encoder_out, documents, cells, own=drafts is not None)
            encoder_out = {**encoder_out, "readings": [readings]}
        return self.decoder(
            prev_output_tokens, encoder_out=encoder_out, src_lengths=src_lengths, **kwargs
        )

    @torch.no_grad()
    def _target_cells(self, encoder_out, src_tokens, src_lengths, previous, documents) -> Tensor:
        """(rows, d) cells of translations as decoding has them, without dropout in training too."""
        if self.training:
            with evaluating(self):
                again = self.encoder(src_tokens, src_lengths=src_lengths, documents=documents)
                return self._target_cells(again, src_tokens, src_lengths, previous, documents)
        readings = self.decoder.recall_source(encoder_out, documents)
        return self.decoder.target_cells(previous, encoder_out, readings)

    def load_pretrained_parts(self, sentences: Iterable[Tensor]) -> None:
        """Load the language models, at the beginning of training.

        Args:
            sentences: of the source side of the training set, by which vectors are standardised.

        Raises:
            UserError: they are not given, not there or of other sizes.
        """
        if self.encoder.source_memory is None:
            return
        paths = (self.sentence_lm or "").split(os.pathsep)
        if len(paths) != len(DIRECTIONS):
            raise UserError(
                "--memory source and both need --sentence-lm FORWARD:BACKWARD, two language models "
                "of the source; examples/maruf2018_memnet/train_sentence_lm.sh trains them"
            )
        for name, path in zip(DIRECTIONS, paths):
            if not os.path.isfile(path):
                raise UserError(f"--sentence-lm: checkpoint {path} not found")
            state = checkpoint_utils.load_checkpoint_to_cpu(path)
            try:
                self.encoder.source_memory.sentences.load(name, state["model"])
            except ValueError as error:
                raise UserError(f"--sentence-lm: {path} {error}") from None
        self.encoder.source_memory.sentences.standardise(sentences)

    def upgrade_state_dict_named(self, state_dict, name):
        """Let checkpoints of ``rnnsearch`` be the start."""
        super().upgrade_state_dict_named(state_dict, name)
        fill_missing(self, state_dict, NEW_PARAMETERS)


@register_model_architecture("memnet_rnn", "memnet_rnn")
def memnet_rnn(args):
    """Size of the paper: 512, attention 256, two layers in the decoder."""
    set_defaults(args, MemnetConfig)
    rnnsearch_512(args)
