"""Checks of data folders and of the text in them, before training and decoding."""

import filecmp
import itertools
import logging
import os
from pathlib import Path
from typing import Iterable, Iterator

import numpy as np
from fairseq import utils
from fairseq.data import data_utils
from torch import Tensor

from fairseq_docmt.data import DocumentCorpus, DocumentIndex, DocumentView
from fairseq_docmt.data.corpus import open_side, parts_of
from fairseq_docmt.data.text_checks import check_split
from fairseq_docmt.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.readers.files import decoded

logger = logging.getLogger(__name__)


def check(cfg) -> None:
    """Check that the data directories exist and that both languages can be determined.

    Raises:
        UserError: a directory is missing, or the languages are unclear or contradict the data.
    """
    if not cfg.data:
        raise UserError("no data directory given; give the folder of fairseq-preprocess")
    for path in utils.split_paths(cfg.data):
        if not os.path.isdir(path):
            raise UserError(
                f"data directory {path} not found; give the folder of fairseq-preprocess"
            )
    _check_languages(cfg)


def check_input(path: str) -> None:
    """Check that fairseq-interactive can read its input, a file or standard input (``-``).

    Raises:
        UserError: the file does not exist or is a folder, or a line is not UTF-8.
    """
    if path != "-" and not os.path.exists(path):
        raise UserError(f"--input {path} not found; give a text file, or - for standard input")
    if os.path.isdir(path):
        raise UserError(f"--input {path} is a folder; give a text file")
    if os.path.isfile(path):
        decoded(Path(path).read_bytes(), f"--input {path}")


def refuse_training_set_in_validation(cfg) -> None:
    """Refuse to validate on the training set, for tasks whose batch iterators fairseq caches.

    Training and validation would share one iterator, so that every validation would end an epoch of
    training.

    Raises:
        UserError: a validation set is the training set.
    """
    if not cfg.disable_validation and cfg.train_subset in cfg.valid_subset.split(","):
        raise UserError(
            f"--valid-subset has the training set, {cfg.train_subset}, which fairseq would read "
            "with one iterator for both, so that every validation ends an epoch of training; "
            "binarise sentences of it as a validation set of its own"
        )


def _check_languages(cfg) -> None:
    """Refuse ``--source-lang`` or ``--target-lang`` if it is given alone and contradicts the data.

    If only one of the options is given, fairseq ignores it and infers both languages from the names
    of files in the data folder.

    Raises:
        UserError: the option contradicts the folder, or the file names do not show both languages
            clearly.
    """
    if cfg.source_lang and cfg.target_lang:
        return
    folder = utils.split_paths(cfg.data)[0]
    _refuse_hyphens(folder)
    pair = data_utils.infer_language_pair(folder)
    if pair[0] is None:
        raise UserError(
            f"{folder} has no binarised corpus; give the directory that fairseq-preprocess "
            "wrote (bin/ of data_prep/prepare.py)"
        )
    for name, found in zip(("source_lang", "target_lang"), pair):
        given = getattr(cfg, name)
        if given and given != found:
            raise UserError(
                f"{flag(name)} {given} is given alone, but {folder} has {' to '.join(pair)}; give "
                "both --source-lang and --target-lang, or neither"
            )


def _refuse_hyphens(folder: str) -> None:
    """Refuse file names whose languages are ambiguous, such as ``train.zh-CN-en.en.idx``.

    Raises:
        UserError: a file name does not show where its first language ends.
    """
    for name in sorted(os.listdir(folder)):
        if name.endswith(".idx") and name.split(".")[1].count("-") > 1:
            raise UserError(
                f"{os.path.join(folder, name)}: the name does not show the two languages, as one "
                "has a hyphen; give both --source-lang and --target-lang"
            )


def check_splits(cfg) -> None:
    """Check the files of the training and validation sets before a model is built.

    Args:
        cfg: options of the task.

    Raises:
        UserError: a file is missing, empty or truncated.
    """
    languages = (cfg.source_lang, cfg.target_lang)
    folders = utils.split_paths(cfg.data)
    for folder in folders:
        check_split(folder, cfg.train_subset, languages, combined=True)
    for split in () if cfg.disable_validation else cfg.valid_subset.split(","):
        check_split(folders[0], split, languages)


def training_sources(cfg, most: int = 10000) -> Iterator[Tensor]:
    """Yield the tokens of source sentences, selected from the training set at regular intervals.

    At least ``most`` and less than twice as many sentences are selected; all if there are fewer.

    Raises:
        UserError: the training set is missing or damaged.
    """
    folder = utils.split_paths(cfg.data)[0]
    pair = f"{cfg.source_lang}-{cfg.target_lang}"
    name = os.path.join(folder, f"{cfg.train_subset}.{pair}.{cfg.source_lang}")
    lines = open_side(name)
    if lines is None:
        raise UserError(f"{name}.idx not found; check the data directory and the languages")
    line_ids = np.flatnonzero(lines.sizes > BLANK_SIZE)
    for line_id in line_ids[:: max(1, len(line_ids) // most)].tolist():
        yield lines[line_id]


#: sentences per document on average above which blank lines are probably missing
MOST_SENTENCES = 2000
#: documents of one sentence each from which on a corpus probably has no documents
SINGLE_SENTENCES = 10


def check_corpus(task, corpus: DocumentCorpus) -> None:
    """Warn about a split that was probably prepared wrongly.

    Blank lines between documents may be missing, or source and target may be swapped.  A warning
    is also given if ``--upsample-primary`` has no effect on the training set.

    Args:
        task: document task.
        corpus: corpus of the split.
    """
    if task.reads_context:
        check_documents(corpus.name, corpus.index)
    trains = os.path.basename(corpus.name).startswith(f"{task.cfg.train_subset}.")
    if trains and task.cfg.upsample_primary > 1 and len(list(parts_of(corpus.pairs.src))) == 1:
        logger.warning("%s: no effect without another set, train1: --upsample-primary", corpus.name)
    check_words(corpus, task.src_dict.unk(), task.tgt_dict.unk())


def check_names_of_splits(cfg) -> None:
    """Warn if a validation set has the same text as a part of the training set.

    The parts of the training set are the files ``train``, ``train1`` and so on.

    Args:
        cfg: options of the task.
    """
    folder, pair = utils.split_paths(cfg.data)[0], f"{cfg.source_lang}-{cfg.target_lang}"

    def text_of(split: str) -> str:
        return os.path.join(folder, f"{split}.{pair}.{cfg.source_lang}.bin")

    names = (f"{cfg.train_subset}{number or ''}" for number in itertools.count())
    parts = list(itertools.takewhile(os.path.isfile, map(text_of, names)))
    validation = [] if cfg.disable_validation else map(text_of, cfg.valid_subset.split(","))
    for path, train in itertools.product(filter(os.path.isfile, validation), parts):
        if filecmp.cmp(path, train, shallow=False):
            logger.warning(
                "%s and %s have the same source text; keep the text of the splits apart",
                path,
                train,
            )


def check_documents(name: str, index: DocumentIndex) -> None:
    """Warn if blank lines seem to be missing, or if every document has only one sentence.

    Args:
        name: name of the split or corpus, for the warnings.
        index: index of its sentences and documents.
    """
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
    """Warn if many tokens of a split are ``<unk>``, as when source and target are swapped.

    Args:
        corpus: corpus of the split.
        unknown: indices of ``<unk>`` in the source and in the target dictionary.
        most: share of ``<unk>`` above which a warning is given.
        lines: minimum number of sentences to inspect, at regular intervals; all if there are fewer.
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
    """Warn if every example is a single sentence although documents have several sentences."""
    longest = max(np.diff(spans).max(initial=0) for spans in (view.spans, view.source_spans))
    if longest == 1 and view.index.num_documents < view.index.num_sentences:
        logger.warning(
            "%s: no example has more than one sentence, so that there is no context; allow longer "
            "ones (--max-tokens, --max-source-positions, --max-target-positions, "
            "--max-document-tokens)",
            view.corpus.name,
        )


class TypedText:
    """Checks of interactive input for unknown words and missing blank lines; each warns only once.

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
        """Count ``<unk>`` in new lines; warn once if many of the first tokens are unknown.

        Many unknown tokens suggest another language or another preprocessing than in training.

        Args:
            lines: tokens of each line.
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
        """Check the documents of lines that have just been read.

        A warning is logged once if a document is so long that blank lines are probably missing.

        Args:
            index: documents of the new lines; the first of them may begin in earlier lines.
            number: number of documents before the first document of ``index``.
            position: number of sentences that the first document of ``index`` has in earlier lines.
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
