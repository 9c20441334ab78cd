"""``--task sliding_window_translation``: translate sentences with preceding ones as context."""

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_docmt.data import (
    DocumentCorpus,
    DocumentIndex,
    stride_spans,
    window_spans,
    with_next_sentences,
)
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.decodings import Decoding, decoding_option
from fairseq_docmt.spans import Limit, Spans
from fairseq_docmt.tasks import _text_folders, _training_examples
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks._config import JoinedTranslationConfig
from fairseq_docmt.tasks._stored_options import plain

logger = logging.getLogger(__name__)


@dataclass
class SlidingWindowTranslationConfig(JoinedTranslationConfig):
    """Options of ``sliding_window_translation``: windows, loss, word dropout, decoding."""

    decoding: Decoding = decoding_option("sliding_window_translation")
    window_size: Optional[int] = field(
        default=None,
        metadata={
            "help": "number of sentences of a window, the current one included; 1 = sentence level "
            "(default: 4; taken from the checkpoint when decoding)",
            "at_least": 1,
        },
    )
    loss_on: Optional[ChoiceEnum(["window", "last"])] = field(
        default=None,
        metadata={
            "help": "sentences of a window with loss: all (window) or the last one (default: "
            "window)"
        },
    )
    next_sentences: Optional[int] = field(
        default=None,
        metadata={
            "help": "number of sentences after the window that are read on the source side only, "
            "within the document (default: 0; taken from the checkpoint when decoding)",
            "at_least": 0,
        },
    )
    window_stride: int = field(
        default=1,
        metadata={
            "help": "in training, number of sentences by which windows advance: with 1 there is a "
            "window for each sentence; with --window-size windows do not overlap. The number of "
            "new sentences of the first window of a document is drawn anew for each epoch"
        },
    )
    sample_window_size: bool = field(
        default=False,
        metadata={
            "help": "in training, draw the number of sentences of each window from --window-stride "
            "to --window-size, anew for each epoch"
        },
    )
    coword_dropout: float = field(
        default=0.0,
        metadata={
            "help": "in training, probability of replacing a word of the last source sentence of a "
            "window by <unk>, so that the model learns to use its context; words of the context "
            "stay (Fernandes et al., 2021)"
        },
    )


@register_task("sliding_window_translation", dataclass=SlidingWindowTranslationConfig)
class SlidingWindowTranslationTask(DocumentTranslationTask):
    """Translation with windows of ``--window-size`` sentences, one window for each sentence.

    This is the concatenation model of Wu et al. (2022), section 3.  It supports their sliding
    window decoding (``--decoding window``, Figure 1) and the decoding of their published results
    (``--decoding sequential``).
    """

    task_name = "sliding_window_translation"
    decoding_of_references = "window"
    stored_defaults = {
        "window_size": 4,
        "loss_on": "window",
        "next_sentences": 0,
        "restart_positions": False,
    }
    sentence_level = {"window_size": 1}

    @property
    def reads_context(self) -> bool:
        """Whether windows have sentences besides the current one (see ``--next-sentences``)."""
        return self.options["window_size"] > 1 or self.options["next_sentences"] > 0

    def check_training_options(self) -> None:
        """Check the training options, such as window sizes; raise UserError if one is invalid."""
        super().check_training_options()
        _text_folders.refuse_training_set_in_validation(self.cfg)
        size, stride = self.options["window_size"], self.cfg.window_stride
        if not 1 <= stride <= size:
            raise UserError(
                f"--window-stride must be from 1 to --window-size {size}, got {stride}; a larger "
                "one would leave sentences out"
            )
        if stride > 1 and self.options["loss_on"] == "last":
            raise UserError(
                f"--window-stride {stride} with --loss-on last would train on one sentence in "
                f"{stride} only; leave one of them out"
            )
        _training_examples.check_probability(self.cfg, "coword_dropout")
        self._report_context_options()
        self._report_validation()
        if self.cfg.sample_window_size and stride == size:
            raise UserError(
                "--sample-window-size draws sizes from --window-stride to --window-size, which are "
                f"both {size}; give a larger --window-size or leave it out"
            )

    def _report_context_options(self) -> None:
        """Warn about context options that have no effect because examples are single sentences."""
        given = {
            "--restart-positions": self.options["restart_positions"],
            "--coword-dropout": self.cfg.coword_dropout,
            "--loss-on last": self.options["loss_on"] == "last",
        }
        names = [name for name, value in given.items() if value]
        if names and not self.reads_context:
            logger.warning(
                "made for several sentences, but --window-size is 1: %s", ", ".join(names)
            )

    def _report_validation(self) -> None:
        """Warn if validation BLEU (``--eval-bleu``) is not that of the chosen ``--decoding``.

        Validation decodes windows one by one.  Therefore ``sequential`` decoding gets the
        references of previous sentences as target context instead of their translations, and
        ``overlap`` and ``segment`` decoding give the BLEU of ``window`` decoding.
        """
        if not self.cfg.eval_bleu or self.options["window_size"] == 1:
            return
        decoding = str(plain(self.cfg.decoding) or "sequential")
        if decoding == "sequential" and not self.cfg.gold_context:
            logger.warning(
                "validation decodes each sentence with the references before it, as --gold-context "
                "does; BLEU of translated documents is often lower (--decoding window has none)"
            )
        elif decoding in ("overlap", "segment"):
            logger.warning(
                "validation reads windows one by one: its BLEU is of --decoding window, not of %s",
                decoding,
            )

    def examples_decided_by(self) -> dict:
        """Return the options that determine an epoch's examples, such as ``--window-size``."""
        return {
            **super().examples_decided_by(),
            "--window-size": self.options["window_size"],
            "--loss-on": self.options["loss_on"],
            "--next-sentences": self.options["next_sentences"],
            "--window-stride": self.cfg.window_stride,
            "--sample-window-size": self.cfg.sample_window_size,
            "--coword-dropout": self.cfg.coword_dropout,
        }

    def view_options(self, trains: bool) -> dict:
        """Return the keyword arguments of :class:`DocumentView` that depend on the task.

        A ``DocumentView`` is the dataset of training or validation examples.  The arguments follow
        from ``--loss-on`` and, for training, ``--coword-dropout``.
        """
        return {
            "loss_on_last": self.options["loss_on"] == "last",
            "coword_dropout": self.cfg.coword_dropout if trains else 0.0,
        }

    def training_spans(self, corpus: DocumentCorpus, trains: bool) -> Spans:
        """Return the (windows, 2) sentence spans of the training or validation windows.

        If training has a ``--window-stride`` above 1 or ``--sample-window-size``, a function that
        draws the windows of an epoch is returned instead.
        """
        limits = self.limits(corpus.src_sizes, corpus.tgt_sizes)
        cut = partial(window_spans, corpus.index, self.options["window_size"])
        windows = cut(limits)
        shortened = int((windows[:, 0] > cut([])[:, 0]).sum())
        if shortened > 0:
            logger.info(
                "%s: %d of %d windows have fewer than %d sentences, because they would exceed "
                "--max-tokens, --max-source-positions or --max-target-positions",
                corpus.name,
                shortened,
                len(windows),
                self.options["window_size"],
            )
        stride, sample_size = self.cfg.window_stride, self.cfg.sample_window_size
        if not trains or (stride == 1 and not sample_size):
            return windows
        return partial(cut, limits, stride=stride, sample_size=sample_size)

    def source_spans(self, index: DocumentIndex, src_sizes, tgt_sizes=None):
        """Return a function that extends source spans by the next sentences, or None.

        The function adds up to ``--next-sentences`` sentences, within the token limit.  None is
        returned if this number is 0.

        Args:
            index: documents of the spans.
            src_sizes, tgt_sizes: (sentences,) number of tokens; tgt_sizes is None in decoding.
        """
        number = self.options["next_sentences"]
        if number == 0:
            return None
        limit = self.limits(src_sizes, tgt_sizes)[0]
        return partial(_with_next_sentences, index=index, number=number, limit=limit)

    def parts(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        """Cut documents into windows without overlap, and return (windows, 2) sentence spans."""
        cut = partial(stride_spans, index, self.options["window_size"])
        windows, wanted = cut(self.limits(src_sizes)), cut([])
        if len(windows) > len(wanted):
            logger.warning(
                "%d windows are cut into %d, because they would exceed the source positions of the "
                "model (--max-source-positions)",
                len(wanted),
                len(windows),
            )
        return windows


def _with_next_sentences(spans, index: DocumentIndex, number: int, limit: Limit) -> np.ndarray:
    """Extend spans by the next sentences, and log how many spans have no room for all of them."""
    found = with_next_sentences(spans, index, number, limit)
    fewer = int(
        (found < with_next_sentences(spans, index, number, (limit[0], np.inf))).any(1).sum()
    )
    if fewer > 0:
        logger.info(
            "%d of %d windows are read with fewer than --next-sentences %d, because they would "
            "exceed --max-tokens or --max-source-positions",
            *(fewer, len(spans), number),
        )
    return found
