"""``--task full_document_translation``: whole documents, as one sequence or as batch rows."""

import json
from argparse import Namespace
from dataclasses import dataclass, field
from functools import partial
from typing import Iterable, Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_docmt.data import (
    DocumentCorpus,
    DocumentIndex,
    part_spans,
    spans_of_sampled_lengths,
    spans_of_several_lengths,
    target_ratio,
)
from fairseq_docmt.data.spans import Spans
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.generation.decodings import Decoding, decoding_option
from fairseq_docmt.generation.iterative import ORDERS
from fairseq_docmt.models.interface import reads_documents, remembers_translations
from fairseq_docmt.tasks import _text_folders
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks._config import JoinedTranslationConfig
from fairseq_docmt.tasks._document_rows import DocumentRows


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class FullDocumentTranslationConfig(JoinedTranslationConfig):
    """Options of ``full_document_translation``."""

    decoding: Decoding = decoding_option("full_document_translation")
    max_document_tokens: Optional[int] = field(
        default=None,
        metadata={
            "help": "maximum number of target tokens of a document; longer documents are cut at "
            "sentence ends into parts of similar length (default: 1000; taken from the checkpoint "
            "when decoding)"
        },
    )
    document_parts: str = field(
        default="1",
        metadata={
            "help": "in training, numbers of parts of similar length, such as 1,2,4,8: an epoch "
            "reads every document once for each number, cut into so many parts; a number above "
            "that of its sentences gives single sentences (Sun et al., 2022)"
        },
    )
    sample_document_parts: bool = field(
        default=False,
        metadata={
            "help": "in training, cut each document into only one of the numbers of "
            "--document-parts, drawn anew for each epoch"
        },
    )
    drafts: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder of drafts: binarised translations of the corpus, line by line. They "
            "fill the target memory in training, and iterative decoding starts from them"
        },
    )
    gold_drafts: bool = field(
        default=False,
        metadata={"help": "fill the target memory with references in training, without --drafts"},
    )
    decode_passes: int = field(
        default=1,
        metadata={
            "help": "iterative decoding: number of passes that translate all sentences again "
            "given the translations of the others (models with only a source memory do none); 0: "
            "do not read any memory"
        },
    )
    decode_order: ChoiceEnum(ORDERS) = field(
        default="together",
        metadata={
            "help": "iterative decoding: in a pass, translate all sentences of a document "
            "together, or in turn, each given the newest translations of the others"
        },
    )


@register_task("full_document_translation", dataclass=FullDocumentTranslationConfig)
class FullDocumentTranslationTask(DocumentTranslationTask):
    """Translation of whole documents, long ones in parts.

    Most architectures read a document as one sequence (Herold and Ney, 2023, section 3.1); those
    that ``reads_documents`` get its sentences as batch rows (Maruf and Haffari, 2018).

    In decoding, the unknown target length is estimated as the source length times the length ratio
    of the training corpus, which is stored in the checkpoint.
    """

    task_name = "full_document_translation"
    stored_defaults = {"max_document_tokens": 1000, "restart_positions": False}
    learned_defaults = {"target_ratio": 1.0}
    #: data of models whose batch rows are sentences; set when the model is built, before loading
    document_rows: Optional[DocumentRows] = None

    def check_options(self) -> None:
        """See the base class."""
        if self.options["max_document_tokens"] < 1:
            raise UserError(
                "--max-document-tokens must be at least 1 token, got "
                f"{self.options['max_document_tokens']}"
            )
        if self.cfg.decode_passes < 0:
            raise UserError(f"--decode-passes must not be negative, got {self.cfg.decode_passes}")
        if self.cfg.drafts and self.cfg.gold_drafts:
            raise UserError("--drafts and --gold-drafts exclude each other; leave one out")

    def check_training_options(self) -> None:
        """See the base class."""
        super().check_training_options()
        _text_folders.refuse_training_set_in_validation(self.cfg)
        if self.cfg.sample_document_parts and len(self._numbers_of_parts()) == 1:
            raise UserError(
                "--sample-document-parts needs several numbers to draw from; give "
                "--document-parts 1,2,4,8, for example"
            )

    def _numbers_of_parts(self) -> list:
        try:
            numbers = sorted({int(number) for number in self.cfg.document_parts.split(",")})
        except ValueError:
            numbers = [0]
        if numbers[0] < 1:
            raise UserError(
                "--document-parts must be numbers of at least 1, such as 1,2,4,8; got "
                f"{self.cfg.document_parts}"
            )
        return numbers

    def examples_decided_by(self) -> dict:
        """See the base class."""
        return {
            **super().examples_decided_by(),
            "--max-document-tokens": self.options["max_document_tokens"],
            "--document-parts": self.cfg.document_parts,
            "--sample-document-parts": self.cfg.sample_document_parts,
        }

    def build_model(self, cfg, from_checkpoint=False):
        """Build a model and choose the data and decoding that it needs.

        Raises:
            UserError: the model does not support ``--decoding``, or its target memory has no
                translations.
        """
        model = super().build_model(cfg, from_checkpoint)
        as_rows = reads_documents(model)
        if self.cfg.decoding and self.search.reads_memories != as_rows:
            arch, others = type(model).__name__, "iterative" if as_rows else "segment or sequential"
            raise UserError(f"{arch} is decoded by --decoding {others}, not {self.cfg.decoding}")
        if not as_rows:
            memories = ("drafts", "gold_drafts", "decode_passes", "decode_order")
            self._refuse_given(memories, f"memnet_rnn, not for {type(model).__name__}")
        else:
            if self.cfg.sentence_data:
                raise UserError(
                    f"--sentence-data is not for {type(model).__name__}, whose memories are of "
                    "documents; start from a model trained on sentence pairs instead "
                    "(--finetune-from-model)"
                )
            if self.cfg.word_dropout:
                raise UserError(f"--word-dropout is not for {type(model).__name__}; leave it out")
            self.document_rows = DocumentRows(self)
            self.use_decoding("iterative")
            remembers = remembers_translations(model)
            if not from_checkpoint and not remembers:
                self._refuse_given(("drafts", "gold_drafts"), "a target memory, not for the source")
            if not from_checkpoint and remembers and not (self.cfg.drafts or self.cfg.gold_drafts):
                raise UserError(
                    "a target memory needs --drafts, translations of the training and validation "
                    "sets (examples/maruf2018_memnet/make_drafts.sh), or --gold-drafts"
                )
            if self.cfg.eval_bleu:  # fairseq has built a generator for another search
                given = Namespace(**json.loads(self.cfg.eval_bleu_args))
                self.sequence_generator = self.build_generator([model], given)
        return model

    def _refuse_given(self, names: Iterable[str], purpose: str) -> None:
        """Refuse options that the model would ignore; ``purpose`` says what they are for."""
        config = FullDocumentTranslationConfig
        for name in names:
            if getattr(self.cfg, name) != getattr(config, name):
                raise UserError(f"{flag(name)} is for {purpose}; leave it out")

    # ---- data ----------------------------------------------------------------------------------

    def learn_from(self, corpus: DocumentCorpus) -> None:
        """See the base class."""
        self.options["target_ratio"] = target_ratio(corpus)

    def view_options(self, trains: bool) -> dict:
        """See the base class."""
        return {"id_of_last": False}

    def limits(self, src_sizes, tgt_sizes=None) -> list:
        """See the base class."""
        return (self.document_rows or super()).limits(src_sizes, tgt_sizes)

    def training_view(self, corpus: DocumentCorpus, trains: bool):
        """See the base class."""
        return (self.document_rows or super()).training_view(corpus, trains)

    def drafts_of(self, corpus: DocumentCorpus):
        """See the base class."""
        return (self.document_rows or super()).drafts_of(corpus)

    def validation_units(self, sample) -> dict:
        """See the base class."""
        return (self.document_rows or super()).validation_units(sample)

    def training_spans(self, corpus: DocumentCorpus, trains: bool) -> Spans:
        """See the base class."""
        length = (corpus.tgt_sizes, self.options["max_document_tokens"])
        given = (corpus.index, length, self.limits(corpus.src_sizes, corpus.tgt_sizes))
        if not trains:
            return part_spans(*given)
        numbers = self._numbers_of_parts()
        if self.cfg.sample_document_parts:
            return partial(spans_of_sampled_lengths, *given, numbers)
        return spans_of_several_lengths(*given, numbers)

    def parts(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        """See the base class."""
        estimated = src_sizes * self.options["target_ratio"]
        length = (estimated, self.options["max_document_tokens"])
        return part_spans(index, length, self.limits(src_sizes))
