"""``--task full_document_translation``: translate whole documents, each as one sequence."""

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Optional

import numpy as np
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import register_task

from fairseq_docmt.data import (
    DocumentCorpus,
    DocumentIndex,
    part_spans,
    spans_of_sampled_lengths,
    spans_of_several_lengths,
    target_ratio,
)
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.decodings import Decoding, decoding_option
from fairseq_docmt.spans import Spans
from fairseq_docmt.tasks import _text_folders
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks._config import JoinedTranslationConfig

logger = logging.getLogger(__name__)


# fairseq reads these annotations at run time: keep typing.Optional here.
@dataclass
class DocumentPartsConfig(FairseqDataclass):
    """Options for cutting documents into parts: the maximum length and the number of parts."""

    max_document_tokens: Optional[int] = field(
        default=None,
        metadata={
            "help": "maximum number of target tokens of a document; longer documents are cut at "
            "sentence ends into parts of similar length (default: 1000; taken from the checkpoint "
            "when decoding)",
            "at_least": 1,
        },
    )
    document_parts: str = field(
        default="1",
        metadata={
            "help": "in training, numbers of parts of similar length, such as 1,2,4,8: an epoch "
            "reads every document once for each number, cut into so many parts (Sun et al., 2022); "
            "cuts that come out equal, as of short or very long documents, are read once"
        },
    )
    sample_document_parts: bool = field(
        default=False,
        metadata={
            "help": "in training, cut each document into only one of the numbers of "
            "--document-parts, drawn anew for each epoch"
        },
    )


@dataclass
class FullDocumentTranslationConfig(DocumentPartsConfig, JoinedTranslationConfig):
    """Options of ``full_document_translation``: document parts, token positions, decoding."""

    decoding: Decoding = decoding_option("full_document_translation")


@register_task("full_document_translation", dataclass=FullDocumentTranslationConfig)
class FullDocumentTranslationTask(DocumentTranslationTask):
    """Translation of each document as one sequence (Herold and Ney, 2023, section 3.1).

    Long documents are cut into parts of similar length.  The length of a part is that of its
    target, which is unknown in decoding.  It is then estimated as the source length times the
    length ratio of the training corpus, which is stored in the checkpoint.
    """

    task_name = "full_document_translation"
    stored_defaults = {"max_document_tokens": 1000, "restart_positions": False}
    learned_defaults = {"target_ratio": 1.0}

    def check_training_options(self) -> None:
        """Check the training options, such as document parts; raise UserError if one is invalid."""
        super().check_training_options()
        _text_folders.refuse_training_set_in_validation(self.cfg)
        if self.cfg.sample_document_parts and len(self._numbers_of_parts()) == 1:
            raise UserError(
                "--sample-document-parts needs several numbers to draw from; give "
                "--document-parts 1,2,4,8, for example"
            )

    def _numbers_of_parts(self) -> list:
        try:
            numbers = sorted(int(number) for number in self.cfg.document_parts.split(","))
        except ValueError:
            numbers = [0]
        if numbers[0] < 1:
            raise UserError(
                "--document-parts must be numbers of at least 1, such as 1,2,4,8; got "
                f"{self.cfg.document_parts}"
            )
        if len(set(numbers)) < len(numbers):
            raise UserError(
                f"--document-parts {self.cfg.document_parts} names a number twice; give each once"
            )
        return numbers

    def examples_decided_by(self) -> dict:
        """Return the options that determine an epoch's examples, such as ``--document-parts``."""
        return {
            **super().examples_decided_by(),
            "--max-document-tokens": self.options["max_document_tokens"],
            "--document-parts": self.cfg.document_parts,
            "--sample-document-parts": self.cfg.sample_document_parts,
        }

    # ---- data ----------------------------------------------------------------------------------

    def learn_from(self, corpus: DocumentCorpus) -> None:
        """Compute the ratio of target to source tokens, to estimate target lengths in decoding."""
        self.options["target_ratio"] = target_ratio(corpus)

    def view_options(self, trains: bool) -> dict:
        """Return the keyword arguments of :class:`DocumentView` that depend on the task.

        A ``DocumentView`` is the dataset of training or validation examples.  Here the ``id`` of an
        example is the line id of its first sentence.

        Args:
            trains: unused; the arguments are the same for training and validation.
        """
        return {"id_of_last": False}

    def training_spans(self, corpus: DocumentCorpus, trains: bool) -> Spans:
        """Return the (examples, 2) sentence spans of the training or validation examples.

        For training, each document is cut once for each number of parts in ``--document-parts``.
        With ``--sample-document-parts``, a function that draws the spans of an epoch is returned
        instead.
        """
        length = (corpus.tgt_sizes, self.options["max_document_tokens"])
        given = (corpus.index, length, self.limits(corpus.src_sizes, corpus.tgt_sizes))
        parts = part_spans(*given)
        limits = "--max-document-tokens, --max-tokens and the maximum positions"
        _report_parts(f"{corpus.name}: ", corpus.index.num_documents, len(parts), limits)
        if not trains:
            return parts
        numbers = self._numbers_of_parts()
        if self.cfg.sample_document_parts:
            return partial(spans_of_sampled_lengths, *given, numbers)
        return spans_of_several_lengths(*given, numbers)

    def parts(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        """Cut long documents into parts of similar length, and return (parts, 2) sentence spans."""
        estimated = src_sizes * self.options["target_ratio"]
        length = (estimated, self.options["max_document_tokens"])
        parts = part_spans(index, length, self.limits(src_sizes))
        limits = "--max-document-tokens and --max-source-positions"
        _report_parts("", index.num_documents, len(parts), limits)
        return parts


def _report_parts(start: str, documents: int, parts: int, limits: str) -> None:
    if parts > documents:
        logger.info(
            "%s%d documents are cut into %d parts, to keep to %s",
            *(start, documents, parts, limits),
        )
