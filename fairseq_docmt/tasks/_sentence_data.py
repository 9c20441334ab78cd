"""Sentence pairs of ``--sentence-data``, mixed into the training set of a document task."""

import math
import os
from functools import partial
from typing import Tuple

from fairseq.tasks.translation import load_langpair_dataset

from fairseq_docmt.data import DocumentCorpus, open_corpus
from fairseq_docmt.data.corpus import with_sentence_pairs
from fairseq_docmt.data.spans import Spans, mixed_spans
from fairseq_docmt.data.text_checks import check_split
from fairseq_docmt.errors import UserError


def check_options(cfg) -> None:
    """Refuse a ratio that is not a positive number, or has no effect.

    Raises:
        UserError: the ratio is one of these.
    """
    if cfg.sentence_data is None and cfg.sentence_ratio != 1:
        raise UserError("--sentence-ratio is for --sentence-data; leave it out")
    if not 0 < cfg.sentence_ratio < math.inf:
        raise UserError(
            f"--sentence-ratio must be a positive number, got {cfg.sentence_ratio}; to train on "
            "documents alone, leave --sentence-data out"
        )


def mixed(task, corpus: DocumentCorpus, spans: Spans) -> Tuple[DocumentCorpus, Spans]:
    """Add sentence pairs to a training set and to its spans.

    Args:
        task: document task.
        corpus: training set.
        spans: spans of its documents.

    Raises:
        UserError: the pairs are missing or damaged, or have other dictionaries.
    """
    cfg, folder = task.cfg, task.cfg.sentence_data
    if folder is None:
        return corpus, spans
    if not os.path.isdir(folder):
        raise UserError(
            f"--sentence-data: folder {folder} not found; give a folder of binarised data"
        )
    languages = (cfg.source_lang, cfg.target_lang)
    dictionaries = (task.source_dictionary, task.target_dictionary)
    for language, dictionary in zip(languages, dictionaries):
        path = os.path.join(folder, f"dict.{language}.txt")
        own = task.load_dictionary(path)
        if task.tag_options is not None:
            task.tag_options.extend(own)
        if own.symbols != dictionary.symbols:
            raise UserError(
                f"--sentence-data: {path} has other words than the dictionary of the documents; "
                "binarise the sentence pairs with it (--srcdict, --tgtdict of "
                "fairseq-preprocess)"
            )
    name = os.path.join(folder, f"{cfg.train_subset}.{'-'.join(languages)}")

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

    check_split(folder, cfg.train_subset, languages, combined=True)
    added = open_corpus(name, load_pairs, task.longest_source, task.added_symbols)
    if added.tgt_sizes is None:
        raise UserError(f"--sentence-data: {name} has no target side; binarise both languages")
    joined = with_sentence_pairs(corpus, added)
    loss_on_last = task.view_options(trains=True).get("loss_on_last", False)
    first = corpus.index.num_sentences
    draw = partial(mixed_spans, spans, joined.tgt_sizes, first, cfg.sentence_ratio, loss_on_last)
    return joined, draw
