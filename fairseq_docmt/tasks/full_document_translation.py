"""``--task full_document_translation``: whole documents, as one sequence or as rows."""

from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_docmt.data import DocumentCorpus, DocumentIndex, part_spans, target_ratio
from fairseq_docmt.data.rows_view import RowsView, open_drafts
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.iterative_decoder import ORDERS, IterativeDecoder
from fairseq_docmt.generation.view_rows import rows_of_documents
from fairseq_docmt.tasks._base import DocumentTranslationConfig, DocumentTranslationTask


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
    #: whether sentences are rows; known when the model is built, before data is loaded
    sentences_as_rows = False

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
        self.sentences_as_rows = getattr(model, "reads_documents", False)
        iterative = self.cfg.decoding == "iterative"
        if self.cfg.decoding and iterative != self.sentences_as_rows:
            arch = type(model).__name__
            others = "segment or sequential" if iterative else "iterative"
            raise UserError(f"{arch} is decoded by --decoding {others}, not {self.decoding}")
        if self.sentences_as_rows:
            self.decoding, self.decoder = "iterative", IterativeDecoder(self)
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
        if not self.sentences_as_rows:
            return super().limits(src_sizes, tgt_sizes)
        # Positions are those of sentences, which are too short to exceed them.
        batch = self.cfg.max_batch_tokens if tgt_sizes is not None else None
        return [(sizes, batch) for sizes in (src_sizes, tgt_sizes)] if batch else []

    def training_view(self, corpus: DocumentCorpus):
        if not self.sentences_as_rows:
            return super().training_view(corpus)
        spans, mark = self.training_spans(corpus), self.options["mark_document_start"]
        return RowsView(corpus, spans, self._drafts(corpus), mark)

    def _drafts(self, corpus: DocumentCorpus):
        split = corpus.name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        return open_drafts(self.cfg.drafts, split, self.cfg.target_lang, corpus.index)

    def training_spans(self, corpus: DocumentCorpus) -> np.ndarray:
        length = (corpus.tgt_sizes, self.options["max_document_tokens"])
        return part_spans(corpus.index, length, self.limits(corpus.src_sizes, corpus.tgt_sizes))

    def decoding_spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        estimated = src_sizes * self.options["target_ratio"]
        length = (estimated, self.options["max_document_tokens"])
        return part_spans(index, length, self.limits(src_sizes))

    def window_to_decode(self) -> int:
        return 0

    def _units_of_corpus(self, corpus: DocumentCorpus):
        units = super()._units_of_corpus(corpus)
        if self.sentences_as_rows:
            units.drafts = self._drafts(corpus)
        return units

    def rows_to_translate(self, sample) -> dict:
        if self.sentences_as_rows:
            return rows_of_documents(sample, self)
        return super().rows_to_translate(sample)
