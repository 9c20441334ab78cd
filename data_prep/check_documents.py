"""Check that two text files are one parallel corpus of documents.

    python data_prep/check_documents.py corpus.de corpus.en

The format is one sentence per line in UTF-8, with a blank line between documents, the same blank
lines on both sides.  Of anything else the first fault is named with its file and line.
"""

import argparse
import re
import sys
from typing import Iterator, List, NamedTuple, Tuple

# When it reads a file, Python, and so fairseq, ends a line at none of these and takes them for
# white space.  str.splitlines and other programs cut here: a sentence would become two.
LINE_BREAKS_OF_OTHERS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")

# Not white space, but Moses deletes them: a line of nothing else would turn into a blank one.
DELETED_BY_TOKENIZERS = re.compile("[\x00-\x08\x0e-\x1b]")

BYTE_ORDER_MARK = "\ufeff"

Fault = Tuple[int, str]


class CorpusError(ValueError):
    """A fault of a corpus; the message is one sentence with file, line and what to do."""


class Counts(NamedTuple):
    """What a corpus holds: numbers of documents and of sentence pairs."""

    documents: int
    sentences: int


def read_lines(path: str) -> List[str]:
    """Lines of a UTF-8 file without their ends, which may be LF, CRLF or CR, as fairseq reads them.

    Raises:
        CorpusError: the file cannot be read, or a line is not UTF-8.
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
    lines = _uniform_line_ends(text).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _uniform_line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def without_odd_line_breaks(line: str) -> str:
    """A line with blanks where it has line breaks that only some programs see."""
    return LINE_BREAKS_OF_OTHERS.sub(" ", line)


def check_lines(src: List[str], tgt: List[str], src_name: str, tgt_name: str) -> Counts:
    """Check two sides that were read.

    Args:
        src, tgt: lines of the two sides.
        src_name, tgt_name: file names for errors.

    Raises:
        CorpusError: naming the first fault.
    """
    faults = [*_faults_of_side(src, src_name), *_faults_of_side(tgt, tgt_name)]
    counts, unlike = _compare_sides(src, tgt, src_name, tgt_name)
    faults += unlike
    if faults:
        raise CorpusError(min(faults, key=lambda fault: fault[0])[1])
    if counts.sentences == 0:
        raise CorpusError(f"{src_name}: no sentence in it; give it at least one non-blank line")
    return counts


def _faults_of_side(lines: List[str], name: str) -> Iterator[Fault]:
    """First fault of each kind that one side can have alone."""
    if lines and lines[0].startswith(BYTE_ORDER_MARK):
        yield (
            1,
            f"{name}: line 1 begins with a byte order mark, which fairseq would take for a part of "
            "the first word; save the file as UTF-8 without it",
        )
    # One look at the whole text is many times faster than one at every line.
    text = "\n".join(lines)
    found = LINE_BREAKS_OF_OTHERS.search(text)
    if found:
        number = text.count("\n", 0, found.start()) + 1
        yield (
            number,
            f"{name}: line {number} holds the line break U+{ord(found.group()):04X}, at which some "
            "programs would cut it in two; replace it by a blank",
        )
    if DELETED_BY_TOKENIZERS.search(text):
        for number, line in enumerate(lines, start=1):
            if line.strip() and not DELETED_BY_TOKENIZERS.sub("", line).strip():
                yield (
                    number,
                    f"{name}: line {number} has only control characters, so nothing would be left "
                    "of it after tokenization; put a sentence there or remove it from both sides",
                )
                return


def _compare_sides(
    src: List[str], tgt: List[str], src_name: str, tgt_name: str
) -> Tuple[Counts, List[Fault]]:
    """Counts, and the first place where the sides do not fit each other."""
    sizes = "" if len(src) == len(tgt) else f" ({len(src)} lines against {len(tgt)})"
    documents, sentences, inside = 0, 0, False
    for number, (source, target) in enumerate(zip(src, tgt), start=1):
        blank = not source.strip()
        if blank != (not target.strip()):
            name, other = (src_name, tgt_name) if blank else (tgt_name, src_name)
            message = (
                f"{name}: line {number} is blank, but not in {other}{sizes}; blank lines end "
                "documents and must be the same on both sides, so look for a missing or a surplus "
                "line up to here"
            )
            return Counts(documents, sentences), [(number, message)]
        documents += not blank and not inside
        sentences += not blank
        inside = not blank
    if len(src) != len(tgt):
        number = min(len(src), len(tgt)) + 1
        name, other = (src_name, tgt_name) if len(src) > len(tgt) else (tgt_name, src_name)
        message = (
            f"{name}: line {number} has no partner, {other} ends before it{sizes}; line i of one "
            "side must be the translation of line i of the other, so add what is missing"
        )
        return Counts(documents, sentences), [(number, message)]
    return Counts(documents, sentences), []


def check_files(src_path: str, tgt_path: str) -> Counts:
    """Check two files.

    Raises:
        CorpusError: naming the first fault; one that keeps a file from being read comes before all.
    """
    return check_lines(read_lines(src_path), read_lines(tgt_path), src_path, tgt_path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source", help="text of the source side")
    parser.add_argument("target", help="text of the target side")
    args = parser.parse_args()
    try:
        counts = check_files(args.source, args.target)
    except CorpusError as error:
        sys.exit(f"error: {error}")
    print(f"{counts.documents:,} documents, {counts.sentences:,} sentence pairs: in order")


if __name__ == "__main__":
    main()
