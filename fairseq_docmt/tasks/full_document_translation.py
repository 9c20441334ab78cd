"""``--task full_document_translation``: whole documents, as one sequence or as rows."""

from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_docmt.data import DocumentCorpus, DocumentIndex, part_spans, target_ratio
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import SEARCHES
from fairseq_docmt.generation.iterative import ORDERS
from fairseq_docmt.models.interface import reads_documents
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks._config import DocumentTranslationConfig
from fairseq_docmt.tasks._document_rows import DocumentRows


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class FullDocumentTranslationConfig(DocumentTranslationConfig):
    decoding: Optional[
        ChoiceEnum(["window", "segment", "sequential", "sequential-full-source", "iterative"])
    ] = field(
        default=None,
        metadata={
            "help": "segment (stretches of a document whole, split at <sep>; default), sequential "
            "(sentence by sentence after the model's own previous output, from the source up to "
            "the sentence), sequential-full-source (the same from the source of the whole "
            "stretch), iterative (sentences alone, then again knowing how the others were "
            "translated; for memnet_rnn)"
        },
    )
    max_document_tokens: Optional[int] = field(
        default=None,
        metadata={
            "help": "target tokens above which a document is cut at sentence ends into parts of "
            "roughly equal length (default: 1000; taken from the checkpoint when decoding)"
        },
    )
    drafts: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder of binarised translations, line by line those of the corpus: what a "
            "target memory holds in training, and what iterative decoding begins with instead of "
            "translations without context"
        },
    )
    gold_drafts: bool = field(
        default=False,
        metadata={"help": "fill the target memory with references in training, without --drafts"},
    )
    decode_passes: int = field(
        default=1,
        metadata={
            "help": "iterative decoding: times that all sentences are translated again, knowing "
            "translations of the others (a source memory alone needs no second time); 0: no memory "
            "is read"
        },
    )
    decode_order: ChoiceEnum(ORDERS) = field(
        default="together",
        metadata={
            "help": "iterative decoding: translate all sentences of a document again together, or "
            "one after the other, each with the newest translations of the others"
        },
    )


@register_task("full_document_translation", dataclass=FullDocumentTranslationConfig)
class FullDocumentTranslationTask(DocumentTranslationTask):
    """Whole documents, long ones in parts.

    Most architectures read a document as one sequence (Herold and Ney, 2023, section 3.1); one
    that ``reads_documents`` gets its sentences as rows (Maruf and Haffari, 2018).

    When decoding, the target length is not known: it is estimated from the source by the ratio of
    the training corpus, which the checkpoint remembers.
    """

    task_name = "full_document_translation"
    decodings = ["segment", "sequential", "sequential-full-source", "iterative"]
    stored_defaults = {"max_document_tokens": 1000}
    learned_defaults = {"target_ratio": 1.0}
    #: for models whose rows are sentences; known when the model is built, before data is loaded
    rows: Optional[DocumentRows] = None

    def check_options(self) -> None:
        if self.options["max_document_tokens"] < 1:
            raise UserError(
                "--max-document-tokens must be at least 1 token, got "
                f"{self.options['max_document_tokens']}"
            )
        if self.cfg.decode_passes < 0:
            raise UserError(f"--decode-passes must not be negative, as {self.cfg.decode_passes}")
        if self.cfg.drafts and self.cfg.gold_drafts:
            raise UserError("give either --drafts or --gold-drafts")

    def build_model(self, cfg, from_checkpoint=False):
        """Build a model and find out how it reads documents.

        Raises:
            UserError: the way of decoding is not for it, or its target memory has nothing to hold.
        """
        model = super().build_model(cfg, from_checkpoint)
        as_rows = reads_documents(model)
        iterative = self.cfg.decoding == "iterative"
        if self.cfg.decoding and iterative != as_rows:
            arch = type(model).__name__
            others = "segment or sequential" if iterative else "iterative"
            raise UserError(f"{arch} is decoded by --decoding {others}, not {self.decoding}")
        if as_rows:
            self.rows = DocumentRows(self)
            self.decoding, self.search = "iterative", SEARCHES["iterative"](self)
            wanted = not from_checkpoint and model.remembers_translations
            if wanted and not (self.cfg.drafts or self.cfg.gold_drafts):
                raise UserError(
                    "a target memory needs --drafts, translations of the training and validation "
                    "sets (examples/maruf2018_memnet/make_drafts.sh), or --gold-drafts"
                )
        return model

    # ---- data ----------------------------------------------------------------------------------

    def learn_from(self, corpus: DocumentCorpus, split: str) -> None:
        if split == self.cfg.train_subset:
            self.options["target_ratio"] = target_ratio(corpus)

    def view_options(self) -> dict:
        return {"id_of_last": False}

    def limits(self, src_sizes, tgt_sizes=None) -> list:
        return (self.rows or super()).limits(src_sizes, tgt_sizes)

    def training_view(self, corpus: DocumentCorpus):
        return (self.rows or super()).training_view(corpus)

    def decoding_options(self, corpus: DocumentCorpus) -> dict:
        return (self.rows or super()).decoding_options(corpus)

    def validation_units(self, sample) -> dict:
        return (self.rows or super()).validation_units(sample)

    def training_spans(self, corpus: DocumentCorpus) -> np.ndarray:
        length = (corpus.tgt_sizes, self.options["max_document_tokens"])
        return part_spans(corpus.index, length, self.limits(corpus.src_sizes, corpus.tgt_sizes))

    def decoding_spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        estimated = src_sizes * self.options["target_ratio"]
        length = (estimated, self.options["max_document_tokens"])
        return part_spans(index, length, self.limits(src_sizes))

    def window_to_decode(self) -> int:
        return 0
