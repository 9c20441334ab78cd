"""``--task document_rows_translation``: translate documents, with a batch row for each sentence.

It is for models that translate a sentence given memories of all other sentences of its document
(Maruf and Haffari, 2018).
"""

from dataclasses import dataclass, field
from typing import Iterable, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_docmt.data import DocumentCorpus
from fairseq_docmt.data.rows_view import RowsView, name_of_drafts, open_drafts
from fairseq_docmt.data.text_checks import Symbols
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.generation.decodings import Decoding, decoding_option
from fairseq_docmt.generation.iterative import ORDERS
from fairseq_docmt.models.interface import remembers_translations
from fairseq_docmt.tasks._config import DocumentTranslationConfig
from fairseq_docmt.tasks._validation_bleu import units_of_documents
from fairseq_docmt.tasks.full_document_translation import (
    DocumentPartsConfig,
    FullDocumentTranslationTask,
)


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class DocumentRowsTranslationConfig(DocumentPartsConfig, DocumentTranslationConfig):
    """Options of ``document_rows_translation``: document parts, drafts, iterative decoding."""

    decoding: Decoding = decoding_option("document_rows_translation")
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
            "do not read any memory",
            "at_least": 0,
        },
    )
    decode_order: ChoiceEnum(ORDERS) = field(
        default="together",
        metadata={
            "help": "iterative decoding: in a pass, translate all sentences of a document "
            "together, or in turn, each given the newest translations of the others"
        },
    )


@register_task("document_rows_translation", dataclass=DocumentRowsTranslationConfig)
class DocumentRowsTranslationTask(FullDocumentTranslationTask):
    """Translation of whole documents by models that read each sentence as a batch row.

    Long documents are cut into parts.  The maximum positions of the model apply to single
    sentences.
    """

    task_name = "document_rows_translation"
    rows_are_sentences = True
    stored_defaults = {"max_document_tokens": 1000}

    def check_options(self) -> None:
        """Refuse options that contradict each other or that this task does not support."""
        if self.cfg.drafts and self.cfg.gold_drafts:
            raise UserError("--drafts and --gold-drafts exclude each other; leave one out")
        if self.cfg.sentence_data:
            raise UserError(
                "--sentence-data is not for --task document_rows_translation, whose memories are "
                "of documents; start from a model trained on sentence pairs instead "
                "(--finetune-from-model)"
            )
        if self.cfg.word_dropout:
            raise UserError(
                "--word-dropout is not for --task document_rows_translation; leave it out"
            )

    def build_model(self, cfg, from_checkpoint=False):
        """Build a model; check that drafts are given if and only if it has a target memory.

        Drafts are translations that fill the target memory in training.  They are read from files
        (``--drafts``) or are the references (``--gold-drafts``).

        Raises:
            UserError: the model needs batches of another task, or drafts are missing or have no
                effect.
        """
        model = super().build_model(cfg, from_checkpoint)
        if from_checkpoint:
            return model
        if not remembers_translations(model):
            self._refuse_given(("drafts", "gold_drafts"))
        elif not (self.cfg.drafts or self.cfg.gold_drafts):
            raise UserError(
                "a target memory needs --drafts, translations of the training and validation "
                "sets (examples/maruf2018_memnet/make_drafts.sh), or --gold-drafts"
            )
        return model

    def _refuse_given(self, names: Iterable[str]) -> None:
        for name in names:
            if getattr(self.cfg, name):
                raise UserError(
                    f"{flag(name)} is for a target memory, not for the source; leave it out"
                )

    # ---- data ----------------------------------------------------------------------------------

    def limits(self, src_sizes, tgt_sizes=None) -> list:
        """Return the token limits of a span, as a list of pairs (sentence sizes, maximum).

        Each pair means that the sizes of the sentences of a span may add up to at most the maximum,
        which is the token limit of a batch.  In training, there is a pair for the source and one
        for the target.  The list is empty in decoding, and in training without a token limit.

        Args:
            src_sizes, tgt_sizes: (sentences,) number of tokens; tgt_sizes is None in decoding.
        """
        batch = self.most_batch_tokens if tgt_sizes is not None else None
        return [(sizes, batch) for sizes in (src_sizes, tgt_sizes)] if batch else []

    def training_view(self, corpus: DocumentCorpus, trains: bool) -> RowsView:
        """Return the dataset of training or validation documents, with a row for each sentence."""
        fits = corpus.within(self.most_tokens)
        read = corpus.without(~fits)
        drafts = self.drafts_of(corpus)
        if drafts is not None:
            name = name_of_drafts(self.cfg.drafts, corpus.split, self.cfg.target_lang)
            self.remember_files("--drafts", [f"{name}.bin"])
        return RowsView(
            read,
            self.training_spans(read, trains),
            drafts,
            self.formats,
            self.cfg.seed,
            corpus.index.line_ids[~fits].tolist(),
        )

    def drafts_of(self, corpus: DocumentCorpus):
        """Return the draft translation of each line of a corpus; None without ``--drafts``."""
        symbols = Symbols.of_task(self, self.tgt_dict)
        return open_drafts(self.cfg.drafts, corpus.split, self.cfg.target_lang, corpus, symbols)

    def validation_units(self, sample) -> dict:
        """Convert a validation batch into a sample that is decoded document by document."""
        return units_of_documents(sample, self)
