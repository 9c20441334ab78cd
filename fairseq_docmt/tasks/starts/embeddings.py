"""Word embeddings that training starts from: ``--encoder-embed-path``, ``--decoder-embed-path``."""

import logging
import math
import os
from typing import Iterable

from fairseq.data import Dictionary

from fairseq_docmt.errors import UserError, flag

logger = logging.getLogger(__name__)

#: options that name a file of embeddings
OPTIONS = ("encoder_embed_path", "decoder_embed_path")


def forget_embeddings(cfg) -> None:
    """Remove the files of embeddings from the options of a model that a checkpoint fills."""
    for name in OPTIONS:
        if getattr(cfg, name, None):
            setattr(cfg, name, None)


def check_embeddings(task, cfg) -> None:
    """Check the files of embeddings before fairseq reads them; it does not say what is wrong.

    If training is resumed, the files are not read.

    Args:
        task: document task whose ``start`` is set.
        cfg: options of the model, with all defaults.

    Raises:
        UserError: a file cannot be read, is not in the format of word2vec, does not fit the model
            or the dictionary, or has no effect because training starts from a checkpoint.
    """
    given = [name for name in OPTIONS if getattr(cfg, name, None)]
    if task.start is not None and not task.start.resumes and given:
        raise UserError(
            f"{flag(given[0])} has no effect, because training starts from the embeddings of "
            f"{task.start.file.path}; leave it out"
        )
    if task.start is not None:
        forget_embeddings(cfg)
        return
    for name in given:
        path, side = getattr(cfg, name), name.split("_")[0]
        words = task.src_dict if side == "encoder" else task.tgt_dict
        size = f"{side}_embed_dim"
        if not os.path.isfile(path):
            raise UserError(f"{flag(name)} {path} is no file; give a file of embeddings")
        try:
            with open(path, encoding="utf-8") as lines:
                found = _count_words(lines, words, getattr(cfg, size), flag(size))
        except (OSError, ValueError) as error:
            raise UserError(f"{flag(name)} {path}: {error}") from None
        logger.info("%s has embeddings of %d words of %d symbols", path, found, len(words))


def _count_words(lines: Iterable[str], dictionary: Dictionary, size: int, option: str) -> int:
    """Return how many words of a dictionary have embeddings in a file in word2vec's text format.

    The first line holds the number of words and the size of their embeddings, and each other line a
    word and its values.  fairseq skips the first line whatever it holds.

    Args:
        lines: lines of the file.
        dictionary: words of the model.
        size: size of the model's embeddings.
        option: flag that sets the size.

    Raises:
        ValueError: a line is malformed, the numbers of the first line are wrong, or no word is in
            the dictionary; the message says what is wrong.
    """
    rest, found, number = iter(lines), 0, 1
    header = next(rest, "").split()
    if len(header) != 2 or not all(each.isdecimal() for each in header):
        raise ValueError(
            "the first line must be the number of words and the size of their embeddings, such as "
            "30000 512"
        )
    if int(header[1]) != size:
        raise ValueError(f"its embeddings have {header[1]} values, but {option} is {size}")
    for number, line in enumerate(rest, start=2):
        word, *values = line.rstrip().split(" ")
        try:
            valid = len(values) == size and all(map(math.isfinite, map(float, values)))
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"line {number} is not a word and {size} numbers between spaces")
        found += dictionary.index(word) >= dictionary.nspecial
    if number - 1 != int(header[0]):
        raise ValueError(f"it has {number - 1} words, but its first line says {header[0]}")
    if not found:
        raise ValueError("it has none of the words of the dictionary; segment both alike")
    return found
