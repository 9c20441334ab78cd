"""``--task sliding_window_translation``: a sentence with those before it, on both sides."""

from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_docmt.data import DocumentCorpus, DocumentIndex, stride_spans, window_spans
from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks._config import DocumentTranslationConfig


@dataclass
class SlidingWindowTranslationConfig(DocumentTranslationConfig):
    window_size: Optional[int] = field(
        default=None,
        metadata={
            "help": "sentences of a window, the current one included; 1 = sentence level "
            "(default: 4; taken from the checkpoint when decoding)"
        },
    )
    loss_on: Optional[ChoiceEnum(["window", "last"])] = field(
        default=None,
        metadata={
            "help": "train on all sentences of a window or on the last one only (default: window)"
        },
    )


@register_task("sliding_window_translation", dataclass=SlidingWindowTranslationConfig)
class SlidingWindowTranslationTask(DocumentTranslationTask):
    """Windows of ``--window-size`` sentences, one for every sentence of the corpus.

    The concatenation model of Wu et al. (2022), section 3, with their sliding window decoding
    (``--decoding window``, Figure 1) and that of their published figures (``sequential``).
    """

    task_name = "sliding_window_translation"
    decodings = ["sequential", "window", "segment"]
    stored_defaults = {"window_size": 4, "loss_on": "window"}
    sentence_level = {"window_size": 1}

    def check_options(self) -> None:
        if self.options["window_size"] < 1:
            raise UserError(
                f"--window-size must be at least 1 sentence, got {self.options['window_size']}; "
                "1 translates without context"
            )

    def view_options(self) -> dict:
        return {"loss_on_last": self.options["loss_on"] == "last"}

    def training_spans(self, corpus: DocumentCorpus) -> np.ndarray:
        limits = self.limits(corpus.src_sizes, corpus.tgt_sizes)
        return window_spans(corpus.index, self.options["window_size"], limits)

    def decoding_spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        cut = stride_spans if self.decoding == "segment" else window_spans
        return cut(index, self.options["window_size"], self.limits(src_sizes))

    def window_to_decode(self) -> int:
        return 0 if self.decoding == "segment" else self.options["window_size"]
