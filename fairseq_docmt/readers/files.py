"""Reading and writing text files."""

import gzip
import math
import os
import re
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Iterable, List, Optional, Tuple

from fairseq_docmt.errors import UserError

#: Characters of a line above which no metric ends in reasonable time.
LONGEST = 500_000
#: How a file compressed by gzip begins.
GZIP = b"\x1f\x8b"


def read_text(path: str) -> str:
    """Read a UTF-8 file, remove its byte order mark and convert its line endings to LF.

    Files compressed with gzip are unpacked; ``-`` is standard input.

    Raises:
        UserError: the file cannot be read or is not UTF-8, or some of its lines end with a carriage
            return alone and others with a line feed.
    """
    return read_with_line_end(path)[0]


def read_with_line_end(path: str) -> Tuple[str, str]:
    r"""Read a file as :func:`read_text` does; also return its line ending.

    The line ending is ``\r\n`` if all lines end with it, otherwise ``\n``.
    """
    text = decoded(_bytes_of(path), path)
    _check_line_ends(text, path)
    line_end = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    return text.replace("\r\n", "\n").replace("\r", "\n"), line_end


def decoded(content: bytes, path: str) -> str:
    """Decode the content of a UTF-8 file, and remove its byte order mark.

    Args:
        content: bytes of the file.
        path: path of the file, for messages.

    Raises:
        UserError: a line is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {line} is not UTF-8; convert the file") from None


def _bytes_of(path: str) -> bytes:
    """Read the content of a file or, for ``-``, of standard input; unpack it if it is gzipped.

    Raises:
        UserError: the file cannot be read or unpacked.
    """
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP) else content
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be unpacked by gzip: {error}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def _check_line_ends(text: str, path: str) -> None:
    """Raise a UserError if some lines end with a carriage return alone and others with a line feed.

    The number of lines is then ambiguous.  Outputs of ``fairseq-generate`` are exempt, because they
    may include its progress bar, which has carriage returns.
    """
    alone = re.search(r"\r(?!\n)", text)
    # The progress bar of fairseq-generate, which may stand between its lines, has such ends.
    if alone and "\n" in text and not re.search(r"(^|[\r\n])[DHT]-\d+\t", text):
        line = text.count("\n", 0, alone.start()) + 1
        raise UserError(
            f"{path}: line {line} ends with a carriage return alone, other lines with a line feed; "
            "remove the carriage return, or end all lines alike"
        )


def read_lines(path: str) -> List[str]:
    """Read the lines of a text file, and strip white space at both ends of each line.

    Raises:
        UserError: the file cannot be read, is not UTF-8, has no text or has an extremely long line.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} has no text; check the command that wrote it")
    lines = lines_of(text)
    refuse_long(path, lines)
    return lines


def refuse_long(path: str, texts: Iterable[str]) -> None:
    """Raise a UserError if a text is so long that its line endings are probably missing.

    Args:
        path: path of the file, for the message.
        texts: sentences or segments of the file.
    """
    for number, text in enumerate(texts, start=1):
        if len(text) > LONGEST:
            raise UserError(
                f"{path}: sentence {number} has {len(text):,} characters, and scores are limited "
                f"to {LONGEST:,}; check its line ends"
            )


def lines_of(text: str) -> List[str]:
    """Split a text into lines, and strip white space at both ends of each line."""
    lines = text.split("\n")
    return [line.strip() for line in (lines[:-1] if lines[-1] == "" else lines)]


def finite_number(value) -> float:
    """Convert a text, or a value of JSON, to a number.

    Raises:
        ValueError: the value is not a finite number, or is written as ``1_0``.
    """
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        found = float(str(value))  # infinite for an int that no float can hold
        if math.isfinite(found) and "_" not in str(value):
            return found
    raise ValueError(f"{value} is not a finite number")


def whole_number(text: str) -> Optional[int]:
    """Return the number that a text of digits is, or None.

    More digits than any count has are a name: Python refuses to convert thousands of them.
    """
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def segment_number(text: Optional[str]) -> Optional[str]:
    """Return the number of a segment as text; None if it is missing or empty.

    It is ``1`` for 1.0 too, which programs write for 1 in columns with gaps.
    """
    return re.sub(r"^(\d+)\.0+$", r"\1", text) if text else None


def numbers_first(text: str) -> Tuple[int, int, str]:
    """Return a key that sorts whole numbers by value, and other texts by name after them."""
    number = whole_number(text)
    return (1, 0, text) if number is None else (0, number, "")


def write_text(path: str, text: str) -> None:
    """Write a text file as :func:`write_bytes` does; ``-`` is standard output.

    A file whose name ends in ``.gz`` is compressed with gzip.
    """
    if path == "-":
        print(text, end="")
        return
    content = text.encode("utf-8")
    if str(path).endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    write_bytes(path, content)


def write_bytes(path: str, content: bytes) -> None:
    """Write a file by way of a temporary file, so that it is never left half written.

    Symbolic links are followed.  Pipes and devices are written to directly.

    Raises:
        UserError: the file cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # renaming would replace it
            with open(path, "wb") as stream:
                stream.write(content)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


def _umask() -> int:
    """Return the umask of this process, which determines the permissions of new files."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def files_below(folder: str) -> List[Path]:
    """Return all files in a folder and its subfolders, sorted by path, except hidden ones.

    Files in hidden folders are left out too.

    Raises:
        UserError: the folder has no files, or a link that leads to no file.
    """
    root = Path(folder)
    shown = [
        path
        for path in sorted(root.rglob("*"))
        if not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    for path in shown:
        if path.is_symlink() and not path.is_file():
            raise UserError(
                f"{path} is a link to a folder or to nothing, which is not followed; put the files "
                "in its place, or remove it"
            )
    found = [path for path in shown if path.is_file()]
    if not found:
        raise UserError(f"{folder} has no files; give the folder with the documents")
    return found
