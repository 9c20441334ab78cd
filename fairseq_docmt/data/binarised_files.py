"""Checks of the files of a binarised split, before fairseq opens them."""

import itertools
import os
import struct
from typing import Sequence

from fairseq_docmt.errors import UserError

MAGIC = b"MMIDIDX\x00\x00"
#: magic, version, type of a token, number of lines
HEADER = struct.Struct("<9sQBQ")
#: bytes of an index for each line: its length and its place
BYTES_PER_LINE = 4 + 8
AGAIN = "copy the data folder again, or binarise the split again"


def check_split(folder: str, split: str, languages: Sequence[str], combined: bool = False) -> None:
    """Check that no file of a split is missing, empty or cut; a split without files passes.

    Args:
        folder: data folder.
        split: name of the split, such as ``train``.
        languages: source and target language.
        combined: whether ``train1``, ``train2``, ... are read, too.

    Raises:
        UserError: naming the file.
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


def check_side(path: str) -> None:
    """Check that the files of one side of a split are complete, if it is there.

    Args:
        path: files without ``.bin`` and ``.idx``.

    Raises:
        UserError: only one of the two is there, or one is empty or cut.
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
    if not header.startswith(MAGIC[: len(header)]):
        return  # of another kind, or damaged, as fairseq says
    lines = HEADER.unpack(header)[3] if len(header) == HEADER.size else 0
    expected, found = HEADER.size + lines * BYTES_PER_LINE, os.path.getsize(index)
    if found < expected:
        raise UserError(f"{index} is truncated: {found} bytes, but it needs {expected}; {AGAIN}")
