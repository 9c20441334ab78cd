"""Check that two text files form a parallel corpus of documents.

    python data_prep/check_documents.py corpus.de corpus.en

The format is one sentence per line in UTF-8, with a blank line between documents, and the same
blank lines on both sides.  The first error is reported with its file and line.
"""

import argparse
import re
import sys
from typing import Iterator, List, NamedTuple, Tuple

# str.splitlines and some programs break lines at these characters, which would split a sentence.
# Python's file objects, and so fairseq, do not: for them they are white space.
LINE_BREAKS_OF_OTHERS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")

# Moses deletes these, so that a line with nothing else would become blank.
DELETED_BY_TOKENIZERS = re.compile("[\x00-\x08\x0e-\x1b]")

# Within a file whose lines end in LF, fairseq still ends a line here.
LONE_CARRIAGE_RETURN = re.compile("\r(?!\n)")

BYTE_ORDER_MARK = "\ufeff"

Fault = Tuple[int, str]


class CorpusError(ValueError):
    """An error in a corpus; the message is one sentence with file, line and fix."""


class Counts(NamedTuple):
    """Numbers of documents and sentence pairs of a corpus."""

    documents: int
    sentences: int


def read_lines(path: str) -> List[str]:
    """Read the lines of a UTF-8 file; lines end with LF, CRLF or CR, as for fairseq.

    Raises:
        CorpusError: the file cannot be read, a line is not UTF-8, or the file mixes CR with LF.
    """
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = _uniform_line_ends(data[: error.start].decode("utf-8")).count("\n") + 1
        raise CorpusError(
            f"{path}: line {line} is not valid UTF-8; convert the file, for example with iconv"
        ) from None
    lone = LONE_CARRIAGE_RETURN.search(text) if "\r" in text and "\n" in text else None
    if lone:
        line = _uniform_line_ends(text[: lone.start()]).count("\n") + 1
        raise CorpusError(
            f"{path}: line {line} ends with a carriage return alone, other lines with a line feed; "
            "remove the carriage return, or end all lines alike"
        )
    lines = _uniform_line_ends(text).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _uniform_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_odd_line_breaks(line: str) -> str:
    """Replace line breaks that only some programs recognise by spaces."""
    return LINE_BREAKS_OF_OTHERS.sub(" ", line)


def check_lines(src: List[str], tgt: List[str], src_name: str, tgt_name: str) -> Counts:
    """Check the lines of both sides.

    Args:
        src, tgt: lines of the two sides.
        src_name, tgt_name: file names for error messages.

    Raises:
        CorpusError: the first error.
    """
    faults = [*_faults_of_side(src, src_name), *_faults_of_side(tgt, tgt_name)]
    counts, unlike = _compare_sides(src, tgt, src_name, tgt_name)
    faults += unlike
    if faults:
        raise CorpusError(min(faults, key=lambda fault: fault[0])[1])
    if counts.sentences == 0:
        raise CorpusError(f"{src_name}: the file has no sentences; add at least one non-blank line")
    return counts


def _faults_of_side(lines: List[str], name: str) -> Iterator[Fault]:
    """Yield the first error of each kind that can be found on one side alone."""
    if lines and lines[0].startswith(BYTE_ORDER_MARK):
        yield (
            1,
            f"{name}: line 1 begins with a byte order mark, which fairseq would read as part of "
            "the first word; save the file as UTF-8 without it",
        )
    # Searching the whole text is many times faster than searching every line.
    text = "\n".join(lines)
    found = LINE_BREAKS_OF_OTHERS.search(text)
    if found:
        number = text.count("\n", 0, found.start()) + 1
        yield (
            number,
            f"{name}: line {number} has the line break U+{ord(found.group()):04X}, where "
            "some programs would split it in two; replace the character by a space",
        )
    if DELETED_BY_TOKENIZERS.search(text):
        for number, line in enumerate(lines, start=1):
            if line.strip() and not DELETED_BY_TOKENIZERS.sub("", line).strip():
                yield (
                    number,
                    f"{name}: line {number} has only control characters, which Moses removes; "
                    "put a sentence there or remove the line from both sides",
                )
                return


def _compare_sides(
    src: List[str], tgt: List[str], src_name: str, tgt_name: str
) -> Tuple[Counts, List[Fault]]:
    """Return counts, and the first mismatch between the two sides."""
    sizes = "" if len(src) == len(tgt) else f" ({len(src)} lines against {len(tgt)})"
    documents, sentences, inside = 0, 0, False
    for number, (source, target) in enumerate(zip(src, tgt), start=1):
        blank = not source.strip()
        if blank != (not target.strip()):
            name, other = (src_name, tgt_name) if blank else (tgt_name, src_name)
            message = (
                f"{name}: line {number} is blank, but not in {other}{sizes}; blank lines end "
                "documents and must be the same on both sides, so look for a missing or an extra "
                "line before this one"
            )
            return Counts(documents, sentences), [(number, message)]
        documents += not blank and not inside
        sentences += not blank
        inside = not blank
    if len(src) != len(tgt):
        number = min(len(src), len(tgt)) + 1
        name, other = (src_name, tgt_name) if len(src) > len(tgt) else (tgt_name, src_name)
        message = (
            f"{name}: line {number} has no counterpart, {other} ends before it{sizes}; line i of "
            "one side must be the translation of line i of the other, so add the missing lines"
        )
        return Counts(documents, sentences), [(number, message)]
    return Counts(documents, sentences), []


def check_files(src_path: str, tgt_path: str) -> Counts:
    """Check the two files of a corpus.

    Raises:
        CorpusError: the first error; files that cannot be read are reported first.
    """
    return check_lines(read_lines(src_path), read_lines(tgt_path), src_path, tgt_path)


def main() -> None:
    """Check the files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", help="source text")
    parser.add_argument("target", help="target text")
    args = parser.parse_args()
    try:
        counts = check_files(args.source, args.target)
    except CorpusError as error:
        sys.exit(f"error: {error}")
    print(f"{counts.documents:,} documents, {counts.sentences:,} sentence pairs: in order")


if __name__ == "__main__":
    main()
