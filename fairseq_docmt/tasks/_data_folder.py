"""The data directory of a task: checks, and some sentences of it."""

import os
from typing import Iterator

import numpy as np
from fairseq import utils
from fairseq.data import data_utils
from torch import Tensor

from fairseq_docmt.data.text_checks import check_side, check_split
from fairseq_docmt.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError, flag


def check(cfg) -> None:
    """Check that the data directories are there, and that the languages are known.

    Raises:
        UserError: they are not.
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
    """Check that fairseq-interactive can read its input.

    Raises:
        UserError: there is no such file.
    """
    if path != "-" and not os.path.exists(path):
        raise UserError(f"--input {path} not found; give a text file, or - for standard input")
    if os.path.isdir(path):
        raise UserError(f"--input {path} is a folder; give a text file")


def refuse_training_set_in_validation(cfg) -> None:
    """Refuse to validate on the training set with a task whose iterators fairseq keeps.

    Raises:
        UserError: it is one of the validation sets.
    """
    if not cfg.disable_validation and cfg.train_subset in cfg.valid_subset.split(","):
        raise UserError(
            f"--valid-subset has the training set, {cfg.train_subset}, which fairseq would read "
            "with one iterator for both, so that every validation ends an epoch of training; "
            "binarise sentences of it as a validation set of its own"
        )


def _check_languages(cfg) -> None:
    """Refuse a single language option that differs from the data folder; fairseq would ignore it.

    Raises:
        UserError: it differs, or the folder has no corpus that names the languages.
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
    """Ask for both languages if names of files do not show them, as in ``train.zh-CN-en.en.idx``.

    Raises:
        UserError: there is such a file.
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
        UserError: a file is missing, empty or cut.
    """
    languages = (cfg.source_lang, cfg.target_lang)
    folders = utils.split_paths(cfg.data)
    for folder in folders:
        check_split(folder, cfg.train_subset, languages, combined=True)
    for split in () if cfg.disable_validation else cfg.valid_subset.split(","):
        check_split(folders[0], split, languages)


def training_sources(cfg, most: int = 10000) -> Iterator[Tensor]:
    """Yield about ``most`` source sentences, evenly spaced in the training set.

    Raises:
        UserError: the training set is missing.
    """
    folder = utils.split_paths(cfg.data)[0]
    pair = f"{cfg.source_lang}-{cfg.target_lang}"
    name = os.path.join(folder, f"{cfg.train_subset}.{pair}.{cfg.source_lang}")
    check_side(name)
    lines = data_utils.load_indexed_dataset(name) if os.path.exists(f"{name}.idx") else None
    if lines is None:
        raise UserError(f"{name}.idx not found; check the data directory and the languages")
    line_ids = np.flatnonzero(lines.sizes > BLANK_SIZE)
    for line_id in line_ids[:: max(1, len(line_ids) // most)].tolist():
        yield lines[line_id]
