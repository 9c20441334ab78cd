"""Checks of the text that enters a model, and of the files of a binarised split.

If a text contained ``</s>``, for example as HTML or as a mark of another toolkit, the sentence that
the model reads would end there.  Text that after tokenization and BPE still contains this or
another special symbol as a word is therefore refused, wherever it comes from.  ``<unk>`` is
allowed: it is read as an unknown word.
"""

import itertools
import os
import re
import struct
from typing import Callable, Iterable, NamedTuple, Sequence

import numpy as np
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_docmt.errors import UserError
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS, complaint

#: number of tokens of a binarised file that are checked together
BLOCK = 1 << 22


def check_unicode(text: str, place: str) -> None:
    """Refuse text that is not valid Unicode.

    Such text contains lone surrogates, by which Python represents bytes that are not UTF-8.

    Args:
        text: text to check.
        place: where the text comes from; the message begins with this.

    Raises:
        UserError: the text is not valid Unicode.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UserError(f"{place} is not UTF-8; convert the input")


class Symbols(NamedTuple):
    """Special symbols of a dictionary, which no sentence may contain as words.

    Attributes:
        dictionary: dictionary with these symbols.
        added: index of the first of the symbols that were appended to the words; the size of the
            dictionary if none were.
    """

    dictionary: Dictionary
    added: int

    @classmethod
    def of(cls, dictionary: Dictionary, added: Iterable[str] = DOCUMENT_SYMBOLS) -> "Symbols":
        """Return the special symbols of a dictionary.

        Args:
            dictionary: dictionary of words and symbols.
            added: symbols, such as ``<sep>``, that may have been appended to the dictionary.  They
                are special only at its end; elsewhere in it they are words of the text.
        """
        known, first = set(added), len(dictionary)
        while first > 0 and dictionary.symbols[first - 1] in known:
            first -= 1
        return cls(dictionary, first)

    @classmethod
    def of_task(cls, task, dictionary: Dictionary) -> "Symbols":
        """Return the special symbols of a dictionary that belongs to a task.

        fairseq's own tasks add no symbols: in their text, ``<sep>`` is a word like any other.
        """
        return cls.of(dictionary, getattr(task, "added_symbols", ()))

    def among(self, tokens: np.ndarray) -> np.ndarray:
        """Return a bool array, True where a token is a special symbol or not in the dictionary.

        ``<unk>`` does not count as a special symbol, so it is False.

        Args:
            tokens: token indices.
        """
        found = tokens >= self.added
        for symbol in (self.dictionary.bos(), self.dictionary.pad(), self.dictionary.eos()):
            found |= tokens == symbol
        return found

    def check(self, tokens: Sequence[int], place: str) -> None:
        """Refuse a sentence that contains a special symbol as a word.

        Args:
            tokens: token ids of the sentence, without the end symbol.
            place: file and line of the sentence; the message begins with this.

        Raises:
            UserError: the sentence contains such a symbol.
        """
        tokens = np.asarray(tokens)
        for token in tokens[self.among(tokens)]:
            raise UserError(f"{complaint(place, self.dictionary[token])}; write it differently")


def tokens_of(text: str, encode: Callable[[str], str], symbols: Symbols) -> Tensor:
    """Return the token indices of a sentence, with the end symbol.

    Args:
        text: the sentence.
        encode: function that splits a sentence into words of the dictionary, joined by spaces.
        symbols: the dictionary and its special symbols.

    Raises:
        UserError: the sentence is not valid Unicode, or contains a special symbol as a word.
    """
    place = f"the sentence {ascii(text):.60}"
    check_unicode(text, place)
    tokens = symbols.dictionary.encode_line(encode(text), add_if_not_exist=False).long()
    symbols.check(tokens[:-1], place)
    return tokens


# ---- binarised text ------------------------------------------------------------------------------


def check_binarised(name: str, dataset, symbols: Symbols) -> None:
    """Check that each line of a binarised file consists of words and the final end symbol.

    Args:
        name: name of the file, for messages.
        dataset: lines of the file.
        symbols: the dictionary and its special symbols.

    Raises:
        UserError: a line contains a special symbol as a word, has no end symbol, or contains a word
            that is not in the dictionary.
    """
    ends = np.cumsum(np.asarray(dataset.sizes), dtype=np.int64)
    first = 0
    while first < len(ends):
        start = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, start + BLOCK, "right")), first + 1)
        tokens = _tokens(dataset, first, last, start, int(ends[last - 1]))
        last_tokens = ends[first:last] - start - 1
        wrong = symbols.among(tokens)
        wrong[last_tokens] = tokens[last_tokens] != symbols.dictionary.eos()
        if wrong.any():
            place = int(wrong.argmax())
            line = first + int(np.searchsorted(last_tokens, place))
            _refuse(name, line + 1, int(tokens[place]), place in last_tokens, symbols)
        first = last


def _tokens(dataset, first: int, last: int, start: int, end: int) -> np.ndarray:
    """Return the tokens of consecutive lines, in a single array.

    Args:
        dataset: lines of a binarised file.
        first, last: range of lines; ``last`` is exclusive.
        start, end: the corresponding range of tokens, counted from the beginning of the file.
    """
    index, buffer = getattr(dataset, "_index", None), getattr(dataset, "_bin_buffer", None)
    if buffer is not None and hasattr(index, "_pointers"):
        # The lines follow one another, so that they need not be read one by one.
        size = index.dtype().itemsize
        if (index._pointers[first], index._pointers[last - 1]) == (
            start * size,
            (end - int(dataset.sizes[last - 1])) * size,
        ):
            return np.frombuffer(buffer, index.dtype, end - start, start * size)
    return np.concatenate([np.asarray(dataset[line]) for line in range(first, last)])


def _refuse(name: str, line: int, token: int, at_end: bool, symbols: Symbols) -> None:
    place = f"{name}: line {line}"
    if token >= len(symbols.dictionary):
        raise UserError(
            f"{place} has words that are not in the dictionary, which has "
            f"{len(symbols.dictionary)}; binarise the text with the dictionary of the folder"
        )
    if at_end:
        raise UserError(f"{place} does not end with the end symbol </s>; binarise the text again")
    word = symbols.dictionary[token]
    raise UserError(f"{complaint(place, word)}; write it differently and binarise again")


# ---- files of a split, before fairseq opens them -------------------------------------------------


MAGIC = b"MMIDIDX\x00\x00"
#: how indexes of fairseq's other datasets begin
OTHER_MAGICS = (b"TNTIDX\x00\x00", b"HUFFIDX\x00\x00")
#: magic, version, type of a token, number of lines
HEADER = struct.Struct("<9sQBQ")
#: bytes of an index for each line: its length and its place
BYTES_PER_LINE = 4 + 8
AGAIN = "copy the data folder again, or binarise the split again"


def check_split(folder: str, split: str, languages: Sequence[str], combined: bool = False) -> None:
    """Check that the files of a split are complete, before fairseq opens them.

    The target side may be missing.  A split without any files is accepted here.

    Args:
        folder: data folder.
        split: name of the split, such as ``train``.
        languages: source and target language.
        combined: whether further parts of the split (``train1``, ``train2``, ...) are checked too.

    Raises:
        UserError: the source side or one of the two files of a side is missing, ``train1`` lacks
            the target side that ``train`` has, a file is empty, an index is truncated, or a part is
            missing between others.
    """
    source, target = languages
    sides = []  # of the first part
    for number in itertools.count():
        part = os.path.join(folder, split + (str(number) if number else ""))
        prefixes = (f"{part}.{source}-{target}.", f"{part}.{target}-{source}.")
        present = [
            prefix + side
            for prefix in prefixes
            for side in languages
            if os.path.isfile(f"{prefix}{side}.idx") or os.path.isfile(f"{prefix}{side}.bin")
        ]
        if not present:
            if combined:
                _refuse_later_parts(folder, split, languages, number)
            return
        prefix = present[0][: -len(present[0].rsplit(".", 1)[1])]
        sides = sides or [source] + [target] * (prefix + target in present)
        for side in sides:
            if prefix + side not in present:
                raise UserError(f"{prefix}{side}.idx not found, but {present[0]}.idx; {AGAIN}")
        for path in present:
            check_side(path)
        if not combined:
            return


def _refuse_later_parts(folder: str, split: str, languages: Sequence[str], missing: int) -> None:
    """Refuse a split that has parts after a missing one, because fairseq would ignore these parts.

    Args:
        folder: data folder.
        split: name of the split, such as ``train``.
        languages: source and target language.
        missing: number of the first missing part, such as 2 for ``train2``; 0 for a split that does
            not exist, which is accepted.

    Raises:
        UserError: there is a part after the missing one.
    """
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        part = re.match(rf"{re.escape(split)}(\d+)\.(\S+)-(\S+)\.\S+\.idx$", name)
        if part and {*part.groups()[1:]} == {*languages} and int(part[1]) > missing > 0:
            raise UserError(
                f"{os.path.join(folder, name)} would be ignored, because there is no "
                f"{split}{missing}; number the parts {split}, {split}1, {split}2 and so on"
            )


def check_side(path: str) -> None:
    """Check that the two files of one side of a split are complete, if they exist.

    Args:
        path: path of the files without ``.bin`` and ``.idx``.

    Raises:
        UserError: only one of the two files exists, a file is empty, or the index is damaged or
            truncated.
    """
    index, tokens = f"{path}.idx", f"{path}.bin"
    for missing, other in ((index, tokens), (tokens, index)):
        if os.path.isfile(other) and not os.path.isfile(missing):
            raise UserError(f"{missing} not found, but {other}; {AGAIN}")
    if not os.path.isfile(index):
        return
    for file in (index, tokens):
        if os.path.getsize(file) == 0:
            raise UserError(f"{file} is empty; {AGAIN}")
    with open(index, "rb") as stream:
        header = stream.read(HEADER.size)
    if header.startswith(OTHER_MAGICS):
        return
    if not header.startswith(MAGIC[: len(header)]):
        raise UserError(f"{index} is damaged; {AGAIN}")
    lines = HEADER.unpack(header)[3] if len(header) == HEADER.size else 0
    expected, found = HEADER.size + lines * BYTES_PER_LINE, os.path.getsize(index)
    if found < expected:
        raise UserError(f"{index} is truncated: {found} bytes, but it needs {expected}; {AGAIN}")
