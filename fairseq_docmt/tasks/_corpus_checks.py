"""Warnings of text that is probably not what the user means it to be."""

import filecmp
import logging
import os
from typing import Iterable

import numpy as np
from fairseq import utils
from torch import Tensor

from fairseq_docmt.data import DocumentCorpus, DocumentIndex, DocumentView
from fairseq_docmt.data.corpus import parts_of

logger = logging.getLogger(__name__)

#: sentences per document on average above which blank lines are probably missing
MOST_SENTENCES = 2000
#: documents of one sentence each from which on a corpus probably has no documents
SINGLE_SENTENCES = 10


def check_corpus(task, corpus: DocumentCorpus) -> None:
    """Warn of a split whose documents or words are probably not as meant.

    Args:
        task: document task.
        corpus: split.
    """
    if task.reads_context:
        check_documents(corpus.name, corpus.index)
    trains = os.path.basename(corpus.name).startswith(f"{task.cfg.train_subset}.")
    if trains and task.cfg.upsample_primary > 1 and len(list(parts_of(corpus.pairs.src))) == 1:
        logger.warning("%s: no effect without another set, train1: --upsample-primary", corpus.name)
    check_words(corpus, task.src_dict.unk(), task.tgt_dict.unk())


def check_splits(cfg) -> None:
    """Warn if a validation set is the training set under another name.

    Args:
        cfg: options of the task.
    """
    folder, pair = utils.split_paths(cfg.data)[0], f"{cfg.source_lang}-{cfg.target_lang}"

    def text_of(split: str) -> str:
        return os.path.join(folder, f"{split}.{pair}.{cfg.source_lang}.bin")

    train = text_of(cfg.train_subset)
    for split in () if cfg.disable_validation else cfg.valid_subset.split(","):
        path = text_of(split)
        if all(map(os.path.isfile, (path, train))) and filecmp.cmp(path, train, shallow=False):
            logger.warning(
                "%s and %s have the same source text; keep the text of the splits apart",
                path,
                train,
            )


def check_documents(name: str, index: DocumentIndex) -> None:
    """Warn if blank lines seem to be missing, or if each sentence is a document."""
    sentences, documents = index.num_sentences, index.num_documents
    if sentences > MOST_SENTENCES * documents:
        logger.warning(
            "%s: %d sentences form %d document(s); put a blank line between documents, or "
            "sentences get the context of other documents",
            name,
            sentences,
            documents,
        )
    if sentences == documents >= SINGLE_SENTENCES:
        logger.warning(
            "%s: each of the %d documents has one sentence, so that there is no context; put "
            "blank lines between documents only",
            name,
            documents,
        )


def check_words(corpus: DocumentCorpus, *unknown: int, most: float = 0.3, lines: int = 2000):
    """Warn if many tokens of a split are ``<unk>``, as when its sides are swapped.

    Args:
        corpus: split.
        unknown: index of ``<unk>`` of source and target.
        most: share of ``<unk>`` that is not too much.
        lines: number of sentences that are looked at, evenly spaced.
    """
    ids = corpus.index.line_ids
    ids = ids[:: max(1, len(ids) // lines)].tolist()
    for side, text, unk in zip(("source", "target"), (corpus.pairs.src, corpus.pairs.tgt), unknown):
        share = _share_of(unk, (text[line] for line in ids)) if text is not None else 0
        if share > most:
            logger.warning(
                "%s: %.0f %% of the %s tokens are not in the dictionary; look whether the sides "
                "are swapped, and prepare the text as that of training",
                corpus.name,
                100 * share,
                side,
            )


def _share_of(unk: int, lines: Iterable[Tensor]) -> float:
    counts = [(int(line.eq(unk).sum()), len(line) - 1) for line in lines]
    unknown, tokens = np.sum(counts, axis=0)
    return unknown / tokens


def check_examples(view: DocumentView) -> None:
    """Warn if no example has context although there are documents of several sentences."""
    longest = max(np.diff(spans).max(initial=0) for spans in (view.spans, view.source_spans))
    if longest == 1 and view.index.num_documents < view.index.num_sentences:
        logger.warning(
            "%s: no example has more than one sentence, so that there is no context; allow longer "
            "ones (--max-tokens, --max-source-positions, --max-target-positions, "
            "--max-document-tokens)",
            view.corpus.name,
        )


class TypedText:
    """Warnings of input lines, each given once.

    Args:
        unk: index of ``<unk>``.
    """

    #: number of tokens read, and the share of ``<unk>`` among them that is too much
    LIMITS = ((10, 0.5), (50, 0.1))

    def __init__(self, unk: int):
        self.unk = unk
        self.tokens, self.unknown = 0, 0
        self.words_known, self.documents_known = False, False

    def read(self, lines: Iterable[Tensor]) -> None:
        """Warn if many of the first tokens are ``<unk>``.

        The text is in another form than that of training, or in another language.
        """
        if self.words_known:
            return
        for line in lines:
            self.tokens += len(line) - 1
            self.unknown += int(line.eq(self.unk).sum())
        too_much = any(
            self.tokens >= enough and self.unknown > most * self.tokens
            for enough, most in self.LIMITS
        )
        self.words_known = too_much or self.tokens >= self.LIMITS[-1][0]
        if too_much:
            logger.warning(
                "%d of the first %d tokens of the input are not in the dictionary; give text in "
                "the source language and in the form of the training data, or --tokenizer and "
                "--bpe as in training",
                self.unknown,
                self.tokens,
            )

    def read_documents(self, index: DocumentIndex, number: int, position: int) -> None:
        """Warn of the first document that is so long that blank lines are probably missing.

        Args:
            index: documents of some lines.
            number: number of documents before the first one, which may have begun before.
            position: number of the sentences that the first one had before.
        """
        lengths = np.diff(index.starts)
        lengths[:1] += position
        found = np.flatnonzero(lengths > MOST_SENTENCES)
        if self.documents_known or len(found) == 0:
            return
        self.documents_known = True
        logger.warning(
            "document %d of the input has more than %d sentences; put a blank line between "
            "documents, or sentences get the context of other documents",
            number + int(index.numbers[found[0]]) + 1,
            MOST_SENTENCES,
        )
