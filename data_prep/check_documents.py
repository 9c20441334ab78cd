"""Check that two text files form a parallel corpus of documents.

    python data_prep/check_documents.py corpus.de corpus.en

The format is one sentence per line in UTF-8, with a blank line between documents, and the same
blank lines on both sides.  The first error is reported with its file and line.
"""

import argparse
import filecmp
import re
import sys
from array import array
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import standard_streams  # noqa: F401
from sanity import Side, check_lengths, swapped_scripts, warn

# str.splitlines and some programs break lines at these characters, which would split a sentence.
# Python's file objects, and so fairseq, do not: for them they are white space.
LINE_BREAKS_OF_OTHERS = re.compile("[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")

# Moses deletes these, so that a line with nothing else would become blank.
DELETED_BY_TOKENIZERS = re.compile("[\x00-\x08\x0e-\x1b]")

# The first line of a published set, or of a training text of IWSLT, that is not plain text yet.
MARKUP = re.compile(
    r"\s*<(\?xml|!doctype|!--|html|dataset|mteval|srcset|refset|tstset|doc|tmx|xliff|url|talkid)"
    r"(?!\w)",
    flags=re.IGNORECASE,
)

# A word that may be a symbol of a model.
MARK = re.compile(r"(?<!\S)</?\w+>(?!\S)")

BYTE_ORDER_MARK = "\ufeff"

LONGEST = 500_000  # characters of a line; in longer ones tokenizers do not end

BLOCK = 10_000  # lines that are checked together

# sentence pairs that fairseq_docmt.parallel_text needs; it is not imported for fewer
FEWEST_PAIRS = 100

Fault = Tuple[int, str]
Row = Tuple[Optional[str], Optional[str]]


class CorpusError(ValueError):
    """Error in a corpus or in the options of a script.

    The message is one sentence that names the file and, where possible, the line, and says what to
    do.
    """


class Parser(argparse.ArgumentParser):
    """Parser of a command line that refuses the value ``--``, as in ``--out=--``.

    In Python 3.8 to 3.12, argparse makes an empty list of it.
    """

    def parse_known_args(self, args=None, namespace=None):
        """Parse a command line; if an option has the value ``--``, print an error and exit."""
        for word in sys.argv[1:] if args is None else args:
            if word.startswith("--") and word.endswith("=--"):
                sys.exit("error: an option has the value --; give another")
        return super().parse_known_args(args, namespace)


class Counts(NamedTuple):
    """Numbers of documents and sentence pairs of a corpus."""

    documents: int
    sentences: int


def read_lines(path: str) -> List[str]:
    """Read all lines of a UTF-8 file into a list, with the checks of :func:`iterate_lines`."""
    return list(iterate_lines(path))


def iterate_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, without their line endings.

    Lines end with LF, CRLF or CR, as in fairseq.  The encoding of the whole file is checked before
    the first line is yielded.  The file is never held in memory as a whole.

    Raises:
        CorpusError: the file cannot be read or is a pipe, begins with a byte order mark, has a line
            that is not UTF-8 or is too long, or mixes CR with LF.
    """
    if Path(path).is_fifo():
        raise CorpusError(
            f"{path} is a pipe, which can be read only once; write the text to a file"
        )
    _check_encoding(path)
    with open(path, encoding="utf-8") as stream:
        if stream.read(1) == BYTE_ORDER_MARK:
            raise CorpusError(_byte_order_mark_in(path))
        stream.seek(0)
        for number, line in enumerate(stream, start=1):
            line = line[:-1] if line.endswith("\n") else line
            refuse_long(line, path, number)
            yield line


def refuse_long(line: str, name: str, number: int) -> None:
    """Raise a CorpusError if a line is so long that line endings are probably missing.

    Args:
        line: text of the line.
        name, number: file name and line number, for the message.
    """
    if len(line) > LONGEST:
        raise CorpusError(
            f"{name}: line {number} has {len(line):,} characters, and lines are limited to "
            f"{LONGEST:,}; check the line ends of the file"
        )


def _byte_order_mark_in(name: str) -> str:
    return (
        f"{name}: line 1 begins with a byte order mark, which fairseq would read as part of the "
        "first word; save the file as UTF-8 without it"
    )


def _check_encoding(path: str) -> None:
    try:
        with open(path, encoding="utf-8") as stream:
            while stream.read(1 << 20):
                pass
            line_ends = stream.newlines
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        with open(path, "rb") as stream:
            if stream.read(2) == b"\x1f\x8b":
                raise CorpusError(f"{path} is compressed by gzip; unpack it with gunzip") from None
        raise CorpusError(
            f"{path}: line {_first_invalid_line(path)} is not valid UTF-8; convert the file, for "
            "example with iconv"
        ) from None
    # None, a string, or a tuple if there are several.
    if isinstance(line_ends, tuple) and "\r" in line_ends:
        with open(path, encoding="utf-8", newline="") as stream:
            line = next(number for number, line in enumerate(stream, 1) if line.endswith("\r"))
        raise CorpusError(
            f"{path}: line {line} ends with a carriage return alone, other lines with a line feed; "
            "remove the carriage return, or end all lines alike"
        )


def _first_invalid_line(path: str) -> int:
    # Latin-1 keeps every byte, and in UTF-8 the bytes of line ends stand for nothing else.
    with open(path, encoding="latin-1") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.encode("latin-1").decode("utf-8")
            except UnicodeDecodeError:
                return number
    raise AssertionError(f"{path} changed while it was read")


def without_odd_line_breaks(line: str) -> str:
    """Replace with spaces the characters that only some programs read as line breaks.

    Examples are the form feed and U+2028.
    """
    return LINE_BREAKS_OF_OTHERS.sub(" ", line)


def check_lines(src: Iterable[str], tgt: Iterable[str], src_name: str, tgt_name: str) -> Counts:
    """Check that the lines of two sides form a parallel corpus, and return its :class:`Counts`.

    The lines are read only once, so that generators can be given.

    Args:
        src, tgt: lines of the two sides.
        src_name, tgt_name: file names for error messages.

    Raises:
        CorpusError: an error was found; only the first is reported.
    """
    names = (src_name, tgt_name)
    documents, sentences, first, inside = 0, 0, 1, False
    rows = zip_longest(src, tgt)
    for block in blocks_of(rows, BLOCK):
        faults: List[Fault] = []
        for name, lines in zip(names, zip(*block)):
            for number, line in enumerate(lines, start=first):
                refuse_long(line or "", name, number)
            faults += _faults_of_side([line or "" for line in lines], name, first)
        faults += _first_mismatch(block, rows, names, first)
        if faults:
            raise CorpusError(min(faults, key=lambda fault: fault[0])[1])
        for source, _ in block:
            blank = not source.strip()
            documents += not blank and not inside
            sentences += not blank
            inside = not blank
        first += len(block)
    if sentences == 0:
        raise CorpusError(f"{src_name}: the file has no sentences; add at least one non-blank line")
    return Counts(documents, sentences)


def blocks_of(items: Iterable, size: int) -> Iterator[list]:
    """Yield lists of ``size`` items; the last one may be shorter."""
    items = iter(items)
    return iter(lambda: list(islice(items, size)), [])


def _faults_of_side(lines: List[str], name: str, first: int) -> Iterator[Fault]:
    """Yield the line number and error message of the first error of each kind on one side.

    The errors are a byte order mark, mark-up at the beginning, a character that only some programs
    read as a line break, and a line of nothing but control characters.

    Args:
        lines: consecutive lines of the side.
        name: file name for error messages.
        first: line number in the file of the first of ``lines``.
    """
    if first == 1 and lines[0].startswith(BYTE_ORDER_MARK):
        yield 1, _byte_order_mark_in(name)
    if first == 1 and (markup := MARKUP.match(lines[0])):
        yield (
            1,
            f"{name}: line 1 is mark-up (<{markup[1]}), not text; make text of the file with "
            "data_prep/tagged_documents.py or `fairseq-docmt convert`",
        )
    # Searching the whole text is many times faster than searching every line.
    text = "\n".join(lines)
    found = LINE_BREAKS_OF_OTHERS.search(text)
    if found:
        number = text.count("\n", 0, found.start()) + first
        yield (
            number,
            f"{name}: line {number} has the line break U+{ord(found.group()):04X}, where "
            "some programs would split it in two; replace the character by a space",
        )
    if DELETED_BY_TOKENIZERS.search(text):
        for number, line in enumerate(lines, start=first):
            if line.strip() and not DELETED_BY_TOKENIZERS.sub("", line).strip():
                yield (
                    number,
                    f"{name}: line {number} has only control characters, which Moses removes; "
                    "put a sentence there or remove the line from both sides",
                )
                return


def _first_mismatch(
    block: List[Row], rest: Iterable[Row], names: Tuple[str, str], first: int
) -> Iterator[Fault]:
    """Find the first pair of lines in which one line is blank or missing and the other is not.

    Args:
        block: pairs of lines; None in a pair means that a side has ended.
        rest: the pairs after the block, which are counted for the message if there is a mismatch.
        names: file names for error messages.
        first: line number of the first pair.

    Yields:
        The line number of this pair and an error message; nothing if all pairs match.
    """
    for number, (source, target) in enumerate(block, start=first):
        ended = source is None or target is None
        if not ended and bool(source.strip()) == bool(target.strip()):
            continue
        lengths = [first - 1, first - 1]
        for row in chain(block, rest):
            lengths = [n + (line is not None) for n, line in zip(lengths, row)]
        unequal = lengths[0] != lengths[1]
        sizes = f" ({lengths[0]} lines against {lengths[1]})" if unequal else ""
        if ended:
            name, other = names if target is None else names[::-1]
            message = (
                f"{name}: line {number} has no counterpart, {other} ends before it{sizes}; line i "
                "of one side must be the translation of line i of the other, so add the missing "
                "lines"
            )
        else:
            name, other = names[::-1] if source.strip() else names
            message = (
                f"{name}: line {number} is blank, but not in {other}{sizes}; blank lines end "
                "documents and must be the same on both sides, so look for a missing or an extra "
                "line before this one"
            )
        yield number, message
        return


def check_files(src_path: str, tgt_path: str) -> Counts:
    """Check that two files form a parallel corpus, and return their :class:`Counts`.

    A warning is printed if the corpus looks wrong although its lines match: a side is not in the
    script of the language that its suffix names, both sides are the same text, the lengths of
    source and target sentences do not correlate, or blank lines seem to be missing.

    Raises:
        CorpusError: an error was found; only the first is reported.
    """
    paths = (src_path, tgt_path)
    counts = check_lines(*map(iterate_lines, paths), *paths)
    check_scripts(paths, map(iterate_lines, paths))
    if filecmp.cmp(*paths, shallow=False):
        warn(f"{src_path} and {tgt_path} are the same text; one should be the translation")
    with open(src_path, encoding="utf-8") as source, open(tgt_path, encoding="utf-8") as target:
        warn_if_not_parallel(paths, (source, target))
    check_lengths(src_path, *counts)
    return counts


def check_scripts(paths: Sequence[str], sides: Iterable[Iterable[str]]) -> None:
    """Check that each side is in the script of the language that its suffix names.

    If only one side is in another script, a warning is printed.

    Args:
        paths: paths of the two sides.
        sides: lines of the two sides.

    Raises:
        CorpusError: each side is in the script of the other language.
    """
    languages = (path.rpartition(".")[2] for path in paths)
    fault = swapped_scripts(*map(Side, paths, languages, sides))
    if fault:
        raise CorpusError(fault)


def warn_if_not_parallel(paths: Sequence[str], sides: Iterable[Iterable[str]]) -> None:
    """Warn if sentence lengths suggest that the two sides are not translations of each other.

    Long sentences usually have long translations.  The lengths do not correlate if, for example, a
    line is missing on one side and all later lines are shifted.  Texts of fewer than 100 sentence
    pairs are not checked.

    Args:
        paths: paths of the two sides.
        sides: lines of the two sides, with blank lines at the same places.
    """
    lengths = [array("I", map(len, filter(None, map(str.strip, side)))) for side in sides]
    if len(lengths[0]) < FEWEST_PAIRS:
        return
    # Imported late, as this takes seconds.
    from fairseq_docmt.parallel_text import unrelated_lengths

    warning = unrelated_lengths(*lengths)
    if warning:
        warn(f"{' and '.join(paths)}: {warning}")


def warn_of_symbols(path: str, lines: Iterable[str]) -> None:
    """Warn about the first word of a text that a model would read as one of its special symbols.

    Args:
        path: path of the text, for the message.
        lines: its lines.
    """
    for number, line in enumerate(lines, start=1):
        if MARK.search(line):
            # Imported late, as this takes seconds.
            from fairseq_docmt.symbols import complaint, first_reserved

            word = first_reserved(line.split())
            if word:
                warn(
                    f"{complaint(f'{path}: line {number}', word)}; write it differently, unless a "
                    "tokenizer or BPE cuts it"
                )
                return


def main() -> None:
    """Check the two files named on the command line; if there is an error, print it and exit."""
    parser = Parser(
        description=__doc__.replace("``", ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="source text")
    parser.add_argument("target", help="target text")
    args = parser.parse_args()
    try:
        counts = check_files(args.source, args.target)
    except CorpusError as error:
        sys.exit(f"error: {error}")
    for path in (args.source, args.target):
        warn_of_symbols(path, iterate_lines(path))
    print(f"{counts.documents:,} documents, {counts.sentences:,} sentence pairs: in order")


if __name__ == "__main__":
    main()
