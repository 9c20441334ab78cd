"""A binarised split with its document index, and checks of both sides."""

import os
import struct
from typing import List, Optional

import numpy as np
from fairseq.data import ConcatDataset, LanguagePairDataset, data_utils

from fairseq_docmt.data.document_index import BLANK_SIZE, DocumentIndex
from fairseq_docmt.errors import UserError

CHECK = "run data_prep/check_documents.py on the text and binarise it again"


class DocumentCorpus:
    """A split of parallel documents.

    Attributes:
        name: name of the split in messages, such as ``data-bin/valid.zh-en``.
        pairs: stock dataset of all lines, blank ones included.
        index: sentences and documents.
        src_sizes, tgt_sizes: (sentences,) number of tokens with the end symbol; tgt_sizes is None
            without a target side.

    Raises:
        UserError: the sides disagree, a file is damaged, or there is no sentence.
    """

    def __init__(self, name: str, pairs: LanguagePairDataset):
        self.name = name
        self.pairs = pairs
        self._check_files()
        self._check_blank_lines()
        self.index = DocumentIndex.from_sizes(pairs.src_sizes, _joints(pairs.src))
        if self.index.num_sentences == 0:
            raise UserError(f"{name} holds no sentence; give it at least one non-blank line")
        self.src_sizes = pairs.src_sizes[self.index.line_ids]
        self.tgt_sizes = None if pairs.tgt is None else pairs.tgt_sizes[self.index.line_ids]

    def _check_files(self) -> None:
        for side in (self.pairs.src, self.pairs.tgt):
            for part in side.datasets if isinstance(side, ConcatDataset) else [side]:
                _check_binary_file(part)

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


def open_corpus(name: str, load_pairs) -> DocumentCorpus:
    """Open a split with ``load_pairs()`` and explain errors of fairseq in one sentence.

    Raises:
        UserError: files are missing or damaged, or the sides disagree.
    """
    try:
        return DocumentCorpus(name, load_pairs())
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
    except (ValueError, OSError, EOFError, struct.error) as error:
        raise UserError(f"{name}: damaged binarised file ({error}); {CHECK}") from None


def _line_counts(name: str) -> str:
    languages = name.rsplit(".", 1)[-1].split("-")
    sides = [data_utils.load_indexed_dataset(f"{name}.{lang}") for lang in languages]
    if any(side is None for side in sides):
        return ""
    counts = (f"{lang} {len(side)}" for lang, side in zip(languages, sides))
    return f" ({', '.join(counts)})"


def _check_binary_file(dataset) -> None:
    """Refuse a truncated memory-mapped .bin file, which would crash at the first missing line."""
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


def _joints(dataset) -> List[int]:
    """Return the first lines of the parts, and of their repetitions, of a concatenated split."""
    if not isinstance(dataset, ConcatDataset):
        return []
    joints, start = [], 0
    for length, end in zip(dataset.real_sizes, dataset.cumulative_sizes):
        joints.extend(range(start, end, max(length, 1)))
        start = end
    return joints


def target_ratio(corpus: DocumentCorpus) -> Optional[float]:
    """Return the number of target tokens per source token; None without a target side."""
    if corpus.tgt_sizes is None:
        return None
    return float(corpus.tgt_sizes.sum() / corpus.src_sizes.sum())
