"""``--task full_document_translation``: whole documents in one sequence."""

from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from fairseq.tasks import register_task

from fairseq_docmt.data import DocumentCorpus, DocumentIndex, part_spans, target_ratio
from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks._base import DocumentTranslationConfig, DocumentTranslationTask


@dataclass
class FullDocumentTranslationConfig(DocumentTranslationConfig):
    max_document_tokens: Optional[int] = field(
        default=None,
        metadata={
            "help": "target tokens above which a document is cut at sentence ends into parts of "
            "roughly equal length (default: 1000; taken from the checkpoint when decoding)"
        },
    )


@register_task("full_document_translation", dataclass=FullDocumentTranslationConfig)
class FullDocumentTranslationTask(DocumentTranslationTask):
    """Documents as single sequences, long ones in parts (Herold and Ney, 2023, section 3.1).

    When decoding, the target length is not known: it is estimated from the source by the ratio of
    the training corpus, which the checkpoint remembers.
    """

    task_name = "full_document_translation"
    decodings = ["segment", "sequential"]
    stored_defaults = {"max_document_tokens": 1000}
    learned_defaults = {"target_ratio": 1.0}

    def check_options(self) -> None:
        if self.options["max_document_tokens"] < 1:
            raise UserError(
                "--max-document-tokens must be at least 1 token, got "
                f"{self.options['max_document_tokens']}"
            )

    def learn_from(self, corpus: DocumentCorpus, split: str) -> None:
        if split == self.cfg.train_subset:
            self.options["target_ratio"] = target_ratio(corpus)

    def view_options(self) -> dict:
        return {"id_of_last": False}

    def training_spans(self, corpus: DocumentCorpus) -> np.ndarray:
        length = (corpus.tgt_sizes, self.options["max_document_tokens"])
        return part_spans(corpus.index, length, self.limits(corpus.src_sizes, corpus.tgt_sizes))

    def decoding_spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        estimated = src_sizes * self.options["target_ratio"]
        length = (estimated, self.options["max_document_tokens"])
        return part_spans(index, length, self.limits(src_sizes))

    def window_to_decode(self) -> int:
        return 0
