"""Check that two text files are one parallel corpus of documents.

    python data_prep/check_documents.py corpus.de corpus.en

The format is one sentence per line in UTF-8, with a blank line between documents, the same blank
lines on both sides.  Of anything else the first fault is named with its file and line.
"""

import argparse
import sys
from typing import List, NamedTuple

# Python, and so fairseq, ends a line at none of these when it reads a file, but tokenizers and
# other programs may: a sentence would become two.
LINE_BREAKS_OF_OTHERS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


class CorpusError(ValueError):
    """A fault of a corpus; the message is one sentence with file, line and what to do."""


class Counts(NamedTuple):
    """What a corpus holds."""

    documents: int
    sentences: int


def read_lines(path: str) -> List[str]:
    """Lines of a UTF-8 file without their ends, as fairseq reads them.

    Raises:
        CorpusError: the file is missing, or a line is not UTF-8.
    """
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(
            f"{path}: line {line} is not valid UTF-8; convert the file, for example with iconv"
        ) from None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def check_lines(src: List[str], tgt: List[str], src_name: str, tgt_name: str) -> Counts:
    """Check two sides that were read.

    Raises:
        CorpusError: naming the first fault.
    """
    for name, lines in ((src_name, src), (tgt_name, tgt)):
        _check_line_breaks(name, lines)
    documents, sentences, inside = 0, 0, False
    for number, (source, target) in enumerate(zip(src, tgt), start=1):
        blank = not source.strip()
        if blank != (not target.strip()):
            name, other = (src_name, tgt_name) if blank else (tgt_name, src_name)
            raise CorpusError(
                f"{name}: line {number} is blank, but not in {other}; blank lines end documents "
                "and must be the same on both sides, so fill the line or remove it from both"
            )
        documents += not blank and not inside
        sentences += not blank
        inside = not blank
    if len(src) != len(tgt):
        raise CorpusError(
            f"{src_name} has {len(src)} lines but {tgt_name} has {len(tgt)}; line i of one must "
            "be the translation of line i of the other"
        )
    if sentences == 0:
        raise CorpusError(f"{src_name}: no sentence in it; give it at least one non-blank line")
    return Counts(documents, sentences)


def _check_line_breaks(name: str, lines: List[str]) -> None:
    # One look at the whole text is many times faster than one at every line.
    text = "\n".join(lines)
    found = [text.find(character) for character in LINE_BREAKS_OF_OTHERS]
    places = [place for place in found if place >= 0]
    if places:
        number = text.count("\n", 0, min(places)) + 1
        raise CorpusError(
            f"{name}: line {number} holds the line break U+{ord(text[min(places)]):04X}, at which "
            "some programs would cut it in two; replace it by a blank"
        )


def check_files(src_path: str, tgt_path: str) -> Counts:
    """Check two files.

    Raises:
        CorpusError: naming the first fault.
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
