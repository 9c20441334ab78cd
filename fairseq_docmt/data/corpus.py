"""Binarised splits with document boundaries, and checks for damaged files and mismatched sides."""

import copy
import hashlib
import logging
import os
import struct
from functools import cached_property
from typing import Iterable, Iterator, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import (
    AppendTokenDataset,
    BaseWrapperDataset,
    ConcatDataset,
    Dictionary,
    LanguagePairDataset,
    StripTokenDataset,
    TruncateDataset,
    data_utils,
)
from torch import Tensor

from fairseq_docmt.data.text_checks import Symbols, check_binarised, check_side
from fairseq_docmt.document_index import BLANK_SIZE, DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.parallel_text import unrelated_lengths
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS

logger = logging.getLogger(__name__)

CHECK = "run data_prep/check_documents.py on the text and binarise it again"


class DocumentCorpus:
    """A binarised split with document boundaries; in decoding, it may lack the target side.

    Args:
        name: name of the split in messages, such as ``data-bin/valid.zh-en``.
        pairs: fairseq's dataset of all lines, blank lines included.
        longest_source: number of tokens to which longer source sentences are cut; None to keep
            their length.

    Attributes:
        name: name of the split in messages, such as ``data-bin/valid.zh-en``.
        pairs: fairseq's dataset of all lines, blank lines included.
        index: index of sentences and documents.
        src_sizes, tgt_sizes: (sentences,) number of tokens with the end symbol; tgt_sizes is None
            without a target side.

    Raises:
        UserError: the two sides do not match, a file is damaged, or there is no sentence.
    """

    def __init__(self, name: str, pairs: LanguagePairDataset, longest_source: Optional[int] = None):
        self.name = name
        self._firsts = [(0, name)]
        self.pairs = pairs
        if longest_source is not None:
            _cut_sources(pairs, longest_source)
        self._check_files()
        self._check_blank_lines()
        joints = [first for _, first, _ in parts_of(pairs.src)]
        self.index = DocumentIndex.from_sizes(pairs.src_sizes, joints)
        if self.index.num_sentences == 0:
            raise UserError(f"{name} holds no sentence; give it at least one non-blank line")
        self.src_sizes = pairs.src_sizes[self.index.line_ids]
        self.tgt_sizes = None if pairs.tgt is None else pairs.tgt_sizes[self.index.line_ids]

    @cached_property
    def checksum(self) -> str:
        """Checksum of the lengths of all lines, and of the words of at most 1,000 of them.

        It tells a text from another one without reading all of it.
        """
        found = hashlib.sha256()
        for side, sizes in (
            (self.pairs.src, self.pairs.src_sizes),
            (self.pairs.tgt, self.pairs.tgt_sizes),
        ):
            found.update(np.asarray(sizes, dtype=np.int64).tobytes())
            for line in np.linspace(0, len(sizes) - 1, min(len(sizes), 1000), dtype=int):
                found.update(np.asarray(side[int(line)], dtype=np.int64).tobytes())
        return found.hexdigest()[:8]

    @property
    def split(self) -> str:
        """Name of the split without its folder and languages, such as ``valid``."""
        return self.name.rsplit("/", 1)[-1].rsplit(".", 1)[0]

    def place(self, line: int) -> str:
        """Return the split and line of a sentence, for messages.

        Args:
            line: line id of the sentence.
        """
        first, name = max(part for part in self._firsts if part[0] <= line)
        return f"{name}: line {line - first + 1}"

    def within(self, most: Sequence[int]) -> np.ndarray:
        """Return which sentences are within the limits of both sides, as a (sentences,) bool array.

        Args:
            most: maximum number of tokens of the source and of the target.
        """
        sizes = zip((self.src_sizes, self.tgt_sizes), most)
        return np.all([of_side <= limit for of_side, limit in sizes], axis=0)

    def without(self, dropped: np.ndarray) -> "DocumentCorpus":
        """Return the corpus without some sentences; the others keep their line ids.

        Args:
            dropped: (sentences,) bool, True for the sentences to remove.
        """
        rest = copy.copy(self)
        rest.index = self.index.without(dropped)
        rest.src_sizes, rest.tgt_sizes = self.src_sizes[~dropped], self.tgt_sizes[~dropped]
        return rest

    def check_symbols(self, added: Iterable[str]) -> None:
        """Check that each line consists of words of the dictionary and the final end symbol.

        Args:
            added: symbols, such as ``<sep>``, that were appended to the words of the dictionaries.

        Raises:
            UserError: a line contains a special symbol as a word, contains a word that is not in
                the dictionary, or has no end symbol.
        """
        pairs = self.pairs
        for side, dictionary in ((pairs.src, pairs.src_dict), (pairs.tgt, pairs.tgt_dict)):
            symbols = Symbols.of(dictionary, added) if dictionary else None
            for part in _stored_parts(side):
                file = getattr(part, "_path", None) or getattr(part, "path", None)
                name = file or f"{self.name}, {'source' if side is pairs.src else 'target'}"
                check_binarised(name, part, symbols)

    def warn_if_not_parallel(self) -> None:
        """Log a warning if the lengths of source and target sentences do not correlate.

        A lack of correlation suggests that lines are shifted, or that the two sides are different
        texts.  Without a target side, nothing is checked.
        """
        if self.tgt_sizes is not None:
            warning = unrelated_lengths(self.src_sizes, self.tgt_sizes)
            if warning:
                logger.warning("%s: %s", self.name, warning)

    def _check_files(self) -> None:
        for side in (self.pairs.src, self.pairs.tgt):
            for part in _stored_parts(side):
                _check_binary_file(part)
                if getattr(part, "supports_prefetch", False):  # --dataset-impl cached
                    part.prefetch(range(len(part)))

    def _check_blank_lines(self) -> None:
        if self.pairs.tgt is None:
            return
        src_blank = self.pairs.src_sizes <= BLANK_SIZE
        tgt_blank = self.pairs.tgt_sizes <= BLANK_SIZE
        differing = np.flatnonzero(src_blank != tgt_blank)
        if len(differing) > 0:
            line = differing[0]
            side = "source" if src_blank[line] else "target"
            raise UserError(
                f"{self.name}: line {line + 1} is blank on the {side} side only, but blank lines "
                f"end documents and must be the same on both sides; {CHECK}"
            )


class CutSources(BaseWrapperDataset):
    """Dataset of sources cut to at most ``longest`` tokens, the end symbol included."""

    def __init__(self, dataset, longest: int):
        super().__init__(dataset)
        self.longest = longest

    def __getitem__(self, line):
        return cut(self.dataset[line], self.longest)

    @property
    def sizes(self):
        """Number of tokens of each line after cutting, as an array (lines,)."""
        return np.minimum(self.dataset.sizes, self.longest)


def cut(sentence: Tensor, longest: int) -> Tensor:
    """Cut a sentence to at most ``longest`` tokens, the last of which is still the end symbol."""
    if len(sentence) <= longest:
        return sentence
    return torch.cat([sentence[: longest - 1], sentence[-1:]])


def _cut_sources(pairs: LanguagePairDataset, longest: int) -> None:
    """Truncate the sources of ``pairs`` in place to ``longest`` tokens, end symbol included.

    If fairseq has already truncated them (``--truncate-source``), this is undone first, because
    fairseq then counts one token too many in each line and blank lines look like sentences.
    """
    if isinstance(pairs.src, ConcatDataset):
        pairs.src.datasets = [CutSources(_stored(part), longest) for part in pairs.src.datasets]
    else:
        pairs.src = CutSources(_stored(pairs.src), longest)
    pairs.src_sizes = np.asarray(pairs.src.sizes)


def _stored(dataset):
    """Return the dataset of the lines as they are stored in the file, before any truncation.

    Datasets that truncate lines wrap another dataset; the wrappers are removed.
    """
    while isinstance(dataset, (AppendTokenDataset, CutSources, StripTokenDataset, TruncateDataset)):
        dataset = dataset.dataset
    return dataset


def _stored_parts(side) -> list:
    """Return the untruncated dataset of each file that belongs to one side of a split.

    A side has several files if the split consists of ``train``, ``train1`` and so on.  If ``side``
    is None, the list is empty.
    """
    if side is None:
        return []
    parts = side.datasets if isinstance(side, ConcatDataset) else [side]
    return [_stored(part) for part in parts]


def open_corpus(
    name: str,
    load_pairs,
    longest_source: Optional[int] = None,
    added: Iterable[str] = DOCUMENT_SYMBOLS,
) -> DocumentCorpus:
    """Open a split and check it, with clear messages in place of fairseq's errors.

    Args:
        name: path of the split without side and extension, such as ``data-bin/valid.zh-en``.
        load_pairs: function without arguments that returns fairseq's dataset of the split.
        longest_source: number of tokens to which longer source sentences are cut; None to keep
            their length.
        added: symbols, such as ``<sep>``, that were appended to the words of the dictionaries.

    Raises:
        UserError: files are missing or damaged, the two sides do not match, or a line contains a
            special symbol of the model as a word.
    """
    try:
        corpus = DocumentCorpus(name, load_pairs(), longest_source)
        corpus.check_symbols(added)
        corpus.warn_if_not_parallel()
        return corpus
    except FileNotFoundError:
        raise UserError(
            f"{name}.* not found; check the data directory, --source-lang, --target-lang "
            "and the name of the split"
        ) from None
    except AssertionError as error:
        if "same number of examples" not in str(error):
            raise UserError(f"{name}: damaged binarised file ({error}); {CHECK}") from None
        raise UserError(
            f"{name}: the two sides have different numbers of lines{_line_counts(name)}; {CHECK}"
        ) from None
    except UserError:
        raise
    except UnicodeDecodeError:  # --dataset-impl raw
        raise UserError(
            f"{name}: the text is not UTF-8; convert it, for example with iconv"
        ) from None
    except (ValueError, OSError, EOFError, struct.error) as error:
        raise UserError(f"{name}: damaged binarised file ({error}); {CHECK}") from None


def _line_counts(name: str) -> str:
    languages = name.rsplit(".", 1)[-1].split("-")
    names = (f"{name}.{lang}" for lang in languages)
    sides = [data_utils.load_indexed_dataset(side, Dictionary()) for side in names]
    if any(side is None for side in sides):
        return ""
    counts = (f"{lang} {len(side)}" for lang, side in zip(languages, sides))
    return f" ({', '.join(counts)})"


def _check_binary_file(dataset) -> None:
    """Refuse a dataset whose memory-mapped .bin file is truncated; reading it would crash Python.

    Datasets of other kinds are not checked.

    Raises:
        UserError: the file is shorter than its index says.
    """
    index = getattr(dataset, "_index", None)
    path = getattr(dataset, "_path", None)
    if path is None or not hasattr(index, "_pointers"):
        return
    expected = int(index._pointers[-1]) + int(index._sizes[-1]) * index.dtype().itemsize
    found = os.path.getsize(f"{path}.bin")
    if found < expected:
        raise UserError(
            f"{path}.bin is truncated: {found} bytes, but its index needs {expected}; "
            "binarise the split again"
        )


def open_side(name: str):
    """Open the lines of one side of a split.

    Args:
        name: path of the files without ``.bin`` and ``.idx``.

    Returns:
        Dataset of the lines; None if there are no such files.

    Raises:
        UserError: a file is empty, damaged or truncated, or only one of the two exists.
    """
    check_side(name)
    lines = data_utils.load_indexed_dataset(name) if os.path.exists(f"{name}.idx") else None
    if lines is not None:
        _check_binary_file(lines)
    return lines


def parts_of(dataset) -> Iterator[Tuple[int, int, int]]:
    """Yield the parts of a split: the contents of ``train``, ``train1`` and so on.

    A part that is upsampled (``--upsample-primary``) is yielded once for each repetition.

    Args:
        dataset: lines of one side of the split, with all parts concatenated.

    Yields:
        Number of the part (0 for ``train``, 1 for ``train1``), line of ``dataset`` at which it
        begins, and its number of lines.
    """
    if not isinstance(dataset, ConcatDataset):
        yield 0, 0, len(dataset)
        return
    start = 0
    for number, (length, end) in enumerate(zip(dataset.real_sizes, dataset.cumulative_sizes)):
        for first in range(start, end, max(length, 1)):
            yield number, first, length
        start = end


def target_ratio(corpus: DocumentCorpus) -> Optional[float]:
    """Return the number of target tokens divided by that of source tokens; None without targets."""
    if corpus.tgt_sizes is None:
        return None
    return float(corpus.tgt_sizes.sum() / corpus.src_sizes.sum())


def with_sentence_pairs(documents: DocumentCorpus, added: DocumentCorpus) -> DocumentCorpus:
    """Return a corpus of ``documents`` followed by the sentence pairs of ``added``.

    Each added pair becomes a document of its own.
    """
    joined, pairs = copy.copy(documents), copy.copy(documents.pairs)
    for name in ("src", "tgt"):
        setattr(
            pairs, name, ConcatDataset([getattr(documents.pairs, name), getattr(added.pairs, name)])
        )
        sizes = f"{name}_sizes"
        for whole, parts in ((pairs, (documents.pairs, added.pairs)), (joined, (documents, added))):
            setattr(whole, sizes, np.concatenate([getattr(part, sizes) for part in parts]))
    index, count = documents.index, added.index.num_sentences
    joined.pairs = pairs
    joined._firsts = [(0, documents.name), (len(documents.pairs), added.name)]
    joined.index = DocumentIndex(
        np.append(index.line_ids, added.index.line_ids + len(documents.pairs)),
        np.append(index.starts, index.num_sentences + 1 + np.arange(count)),
    )
    return joined
