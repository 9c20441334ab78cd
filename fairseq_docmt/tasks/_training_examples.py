"""Options that change training examples: word dropout, additional sentence pairs, supporting words.

Supporting words are context words that show how to translate an ambiguous word; attention is drawn
to them in training (Yin et al., 2021).
"""

import logging
import math
import os
from functools import partial
from typing import Dict, List, Sequence, Tuple

import numpy as np
from fairseq.data import Dictionary
from fairseq.tasks.translation import load_langpair_dataset

from fairseq_docmt.criterions.attention_regularization import AttentionRegularization
from fairseq_docmt.data import DocumentCorpus, DocumentView, open_corpus
from fairseq_docmt.data.corpus import with_sentence_pairs
from fairseq_docmt.data.supporting_words import ATTENTION, SupportingWords, path_of
from fairseq_docmt.data.text_checks import check_split
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.spans import Spans, mixed_spans
from fairseq_docmt.tasks._text_folders import check_words

logger = logging.getLogger(__name__)


def check_word_dropout(cfg) -> None:
    """Check that ``--word-dropout``, the probability of replacing a word, is in [0, 1).

    Raises:
        UserError: the probability is not in this range.
    """
    check_probability(cfg, "word_dropout")


def check_probability(cfg, name: str) -> None:
    """Check that an option for the probability of replacing a word is in [0, 1).

    Args:
        cfg: options of the task.
        name: name of the option.

    Raises:
        UserError: the value is not in this range; with 1, all words would be replaced.
    """
    value = getattr(cfg, name)
    if not 0 <= value < 1:
        raise UserError(
            f"{flag(name)} must be a probability below 1, got {value}; 0 replaces no words"
        )


def check_sentence_data(cfg) -> None:
    """Refuse a ``--sentence-ratio`` that is not positive or has no effect.

    Raises:
        UserError: the ratio is not a positive number, or is given without ``--sentence-data``.
    """
    if cfg.sentence_data is None and cfg.sentence_ratio != 1:
        raise UserError("--sentence-ratio is for --sentence-data; leave it out")
    if not 0 < cfg.sentence_ratio < math.inf:
        raise UserError(
            f"--sentence-ratio must be a positive number, got {cfg.sentence_ratio}; to train on "
            "documents alone, leave --sentence-data out"
        )


def mixed(task, corpus: DocumentCorpus, spans: Spans) -> Tuple[DocumentCorpus, Spans]:
    """Add the sentence pairs of ``--sentence-data``, if given, to a training set.

    Args:
        task: document task.
        corpus: training set.
        spans: spans of its documents, or a function that draws them.

    Returns:
        The joined corpus, and a function that draws the spans of an epoch.  Without
        ``--sentence-data``, ``corpus`` and ``spans`` are returned unchanged.

    Raises:
        UserError: the pairs are missing or damaged, or were binarised with other dictionaries.
    """
    if task.cfg.sentence_data is None:
        return corpus, spans
    added, name = _sentence_pairs(task)
    task.remember_files("--sentence-data", [f"{name}.{side}.bin" for side in _languages(task)])
    joined = with_sentence_pairs(corpus, added)
    loss_on_last = task.view_options(trains=True).get("loss_on_last", False)
    first = corpus.index.num_sentences
    ratio = task.cfg.sentence_ratio
    return joined, partial(mixed_spans, spans, joined.tgt_sizes, first, ratio, loss_on_last)


def _sentence_pairs(task) -> Tuple[DocumentCorpus, str]:
    """Return the sentence pairs of ``--sentence-data``, and the start of the names of their files.

    Raises:
        UserError: see :func:`mixed`.
    """
    cfg, folder = task.cfg, task.cfg.sentence_data
    if not os.path.isdir(folder):
        raise UserError(
            f"--sentence-data: folder {folder} not found; give a folder of binarised data"
        )
    languages = _languages(task)
    dictionaries = (task.source_dictionary, task.target_dictionary)
    for language, dictionary in zip(languages, dictionaries):
        _check_dictionary(task, os.path.join(folder, f"dict.{language}.txt"), dictionary)

    def load_pairs():
        return load_langpair_dataset(
            folder,
            cfg.train_subset,
            cfg.source_lang,
            dictionaries[0],
            cfg.target_lang,
            dictionaries[1],
            combine=True,
            dataset_impl=cfg.dataset_impl,
            upsample_primary=1,
            left_pad_source=cfg.left_pad_source,
            left_pad_target=cfg.left_pad_target,
            max_source_positions=cfg.max_source_positions,
            max_target_positions=cfg.max_target_positions,
            truncate_source=cfg.truncate_source,
        )

    name = os.path.join(folder, f"{cfg.train_subset}.{'-'.join(languages)}")
    check_split(folder, cfg.train_subset, languages, combined=True)
    added = open_corpus(name, load_pairs, task.longest_source, task.added_symbols)
    if added.tgt_sizes is None:
        raise UserError(f"--sentence-data: {name} has no target side; binarise both languages")
    check_words(added, *(dictionary.unk() for dictionary in dictionaries))
    return added, name


def _languages(task) -> Tuple[str, str]:
    return task.cfg.source_lang, task.cfg.target_lang


def _check_dictionary(task, path: str, dictionary: Dictionary) -> None:
    """Check that the sentence pairs were binarised with the same dictionary as the documents.

    Args:
        task: document task.
        path: dictionary file of the sentence pairs.
        dictionary: dictionary of the documents.

    Raises:
        UserError: the words differ.
    """
    own = task.load_dictionary(path)
    if task.tag_options is not None:
        task.tag_options.extend(own)
    if own.symbols != dictionary.symbols:
        raise UserError(
            f"--sentence-data: {path} has other words than the dictionary of the documents; "
            "binarise the sentence pairs with it (--srcdict, --tgtdict of fairseq-preprocess)"
        )


def regularized_attention(task, criterion, rows_form_documents: bool) -> List[str]:
    """Return the attention that a criterion draws to supporting words, such as ``cross``.

    Supporting words are context words that show how to translate an ambiguous word.

    Args:
        task: document task.
        criterion: training criterion.
        rows_form_documents: True if the rows of a batch are the sentences of documents.

    Returns:
        Names of :data:`~fairseq_docmt.data.supporting_words.ATTENTION`; an empty list for criteria
        other than ``attention_regularization``.

    Raises:
        UserError: the criterion needs supporting words, but the task or the model cannot use them.
    """
    if not isinstance(criterion, AttentionRegularization):
        return []
    if rows_form_documents:
        raise UserError(
            "--criterion attention_regularization is for models that read several sentences as "
            "one sequence; choose another --criterion, or --arch transformer"
        )
    if task.cfg.truncate_source:
        raise UserError(
            "--criterion attention_regularization does not work with --truncate-source; leave "
            "one of them out"
        )
    return [*criterion.layers]


def add_to(
    view: DocumentView, corpus: DocumentCorpus, attention: Sequence[str], required: bool
) -> None:
    """Add supporting words to the examples of a corpus; they are read from files beside the corpus.

    A warning is given if no example has an ambiguous word together with a supporting word for one
    of the regularized kinds of attention.

    Args:
        view: dataset of the training or validation examples.
        corpus: corpus that the examples are from.
        attention: attention that is regularized, see :func:`regularized_attention`.
        required: whether missing supporting words are an error.

    Raises:
        UserError: required words are missing, or a file does not fit the corpus.
    """
    words = view.supporting_words = SupportingWords.read(corpus)
    if required and not words.of_line:
        raise UserError(
            f"{path_of(corpus)} not found or empty, but --criterion attention_regularization "
            "needs it; write it with data_prep/supporting_words.py"
        )
    if not words.of_line:
        return
    reach = _reach(view)
    without = [name for name in attention if not _any_together(words, *reach, name)]
    if without:
        some = f"{' and '.join(without)} {'is' if len(without) == 1 else 'are'} not"
        what = "no attention is" if len(without) == len(attention) else some
        logger.warning(
            "%s: no example has an ambiguous word together with its supporting words for %s (%s), "
            "so that %s regularized; read longer windows or documents, or check whether the words "
            "are marked on these sides",
            corpus.name,
            " and ".join(without),
            "; ".join("{} words to {} words".format(*ATTENTION[name]) for name in without),
            what,
        )


def _reach(view: DocumentView) -> Tuple[Dict[int, int], np.ndarray]:
    """Return how far examples reach in a corpus.

    Returns:
        Line -> number of its sentence; and (sentences,) the last end of the examples that begin at
        a sentence or before it.
    """
    place = {line: number for number, line in enumerate(view.index.line_ids.tolist())}
    first, end = view.source_spans.T
    reach = np.zeros(len(place), dtype=np.int64)
    np.maximum.at(reach, first, end)
    return place, np.maximum.accumulate(reach)


def _any_together(
    words: SupportingWords, place: Dict[int, int], reach: np.ndarray, attention: str
) -> bool:
    """Return whether any example has an ambiguous and a supporting word for a kind of attention.

    Args:
        words: supporting words of the corpus.
        place, reach: see :func:`_reach`.
        attention: name of the attention.
    """
    of_query, of_key = ATTENTION[attention]
    pairs = (
        sorted((place[line], place[other]))
        for line, ambiguities in words.of_line.items()
        for ambiguity in ambiguities
        for other, token in ambiguity.supporting[of_key]
        # The decoder has read only what is before an ambiguous word.
        if any(
            attention != "decoder" or (other, token) < (line, word)
            for word in ambiguity.words[of_query]
        )
    )
    return any(last < reach[earlier] for earlier, last in pairs)
