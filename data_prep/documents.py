"""Functions shared by the scripts that convert published corpora.

Each of these scripts has a reader: a function that yields documents, as lists of sentence pairs.
The functions here read lines, leave out pairs with an empty side, check the remaining text and
write it to two files.  These have one sentence per line and a blank line between documents.
"""

import argparse
import gzip
import sys
import zlib
from itertools import zip_longest
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Sequence, Tuple

from check_documents import (
    BYTE_ORDER_MARK,
    CorpusError,
    Counts,
    Parser,
    check_lines,
    check_scripts,
    refuse_long,
    warn_if_not_parallel,
    warn_of_symbols,
    without_odd_line_breaks,
)
from sanity import check_lengths, warn
from stages import write_whole

#: How a file compressed by gzip begins.
GZIP = b"\x1f\x8b"
Pair = Tuple[str, str]
Document = List[Pair]


class LeftOut:
    """Counts of what is left out of a corpus.

    Attributes:
        pairs: number of sentence pairs with an empty side, in documents that are written.
        documents: number of documents that are not written.
    """

    def __init__(self):
        self.pairs, self.documents = 0, 0


# ---- reading -------------------------------------------------------------------------------------


def lines_of(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, which may be compressed by gzip.

    Only LF ends a line, as in the programs that made published corpora.  Other line breaks are
    replaced with spaces.

    Raises:
        CorpusError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        with _opened(path) as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError:
                    raise CorpusError(
                        f"{path}: line {number} is not valid UTF-8; convert the file, for example "
                        "with iconv"
                    ) from None
                yield on_one_line(text.rstrip("\n").lstrip(BYTE_ORDER_MARK))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{path}: cannot be read ({reason})") from None


def _opened(path: str):
    """Open a file for reading bytes; decompress it if it is gzipped or its name ends in ``.gz``."""
    with open(path, "rb") as stream:
        is_compressed = Path(path).is_file() and stream.read(2) == GZIP
    is_compressed = is_compressed or str(path).endswith(".gz")
    return gzip.open(path) if is_compressed else open(path, "rb")


def on_one_line(text: str) -> str:
    """Replace with a space every character that some program reads as the end of a line."""
    return without_odd_line_breaks(text.replace("\r", " ").replace("\n", " "))


def paired_lines(*paths: str) -> Iterator[Tuple[str, ...]]:
    """Yield the lines of several files side by side: tuples with line i of each file.

    Raises:
        CorpusError: a file cannot be read or has fewer lines than the others, or a line is too
            long.
    """
    for number, lines in enumerate(zip_longest(*map(lines_of, paths))):
        if None in lines:
            short, longer = (
                next(path for path, line in zip(paths, lines) if (line is None) == ended)
                for ended in (True, False)
            )
            raise CorpusError(
                f"{short} ends after line {number}, but {longer} continues; line i of one must "
                "belong to line i of the other, so give files of the same release"
            )
        for path, line in zip(paths, lines):
            refuse_long(line, path, number + 1)
        yield lines


# ---- writing -------------------------------------------------------------------------------------


def select(
    documents: Iterable[Document],
    left_out: LeftOut,
    min_sentences: int = 1,
    complete_documents: bool = False,
) -> Iterator[Document]:
    """Yield documents without the sentence pairs that have an empty side; omit short documents.

    White space at both ends of sentences is removed.

    Args:
        documents: documents as read.
        left_out: counts, to which the pairs and documents that are left out are added.  Pairs with
            two empty sides are not counted, nor are documents that have no other pairs.
        min_sentences: minimum number of pairs in a document, without those left out.
        complete_documents: True to leave out a whole document if a pair has exactly one empty side.
    """
    for document in documents:
        stripped = [(source.strip(), target.strip()) for source, target in document]
        pairs = [pair for pair in stripped if all(pair)]
        missing = sum(map(any, stripped)) - len(pairs)
        if len(pairs) < min_sentences or complete_documents and missing:
            left_out.documents += bool(pairs or missing)
            continue
        left_out.pairs += missing
        yield pairs


def checked_texts(
    documents: Iterable[Document], out: Sequence[str]
) -> Tuple[Counts, Dict[str, List[str]]]:
    """Convert documents to the lines of two files, and check the result.

    Args:
        documents: lists of sentence pairs, none with an empty side.
        out: paths of the files to write later.

    Returns:
        The :class:`Counts` of the text, and a dictionary from each path to its lines.

    Raises:
        CorpusError: the text is empty or has an error, both paths are the same, or each side is in
            the script of the other language.
    """
    if Path(out[0]).resolve() == Path(out[1]).resolve():
        raise CorpusError(f"--out: {out[1]} is the file of both sides; give each its own")
    sides: Tuple[List[str], List[str]] = ([], [])
    for document in documents:
        for side, sentences in zip(sides, zip(*document)):
            side += [*([""] if side else []), *sentences]
    if not sides[0]:
        raise CorpusError(
            "nothing to write: the input is empty, or every document lacks translations or is "
            "shorter than --min-sentences"
        )
    paths = list(map(str, out))
    counts = check_lines(*sides, *paths)
    check_scripts(paths, sides)
    for path, side in zip(paths, sides):
        warn_of_symbols(path, side)
    if sides[0] == sides[1]:
        warn(f"{paths[0]} and {paths[1]} are the same text; one should be the translation")
    warn_if_not_parallel(paths, sides)
    check_lengths(paths[0], *counts)
    return counts, dict(zip(out, sides))


# ---- commands ------------------------------------------------------------------------------------


def reader_parser(description: str) -> argparse.ArgumentParser:
    """Create the command-line parser of a corpus reader, with the options that all readers share.

    Args:
        description: text for ``--help``, usually the docstring of the script.
    """
    parser = Parser(
        description=description.replace("``", ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--out", nargs=2, required=True, metavar=("SOURCE", "TARGET"), help="files to write")
    add(
        "--min-sentences",
        type=int,
        default=1,
        metavar="N",
        help="leave out shorter documents; default: 1",
    )
    add(
        "--complete-documents",
        action="store_true",
        help="leave out whole documents in which a sentence has no translation",
    )
    return parser


def check_not_read(
    out: Iterable[str], given: Iterable, problem: str = "is read; give another file to write"
) -> None:
    """Check that no output file would overwrite an input file.

    Args:
        out: paths to write.
        given: values of the command's other arguments; every string, alone or in a list, is taken
            to be the path of an input file.
        problem: what the error message says after the path.

    Raises:
        CorpusError: a path is both read and written.
    """
    lists = [value if isinstance(value, list) else [value] for value in given]
    read = {Path(path).resolve() for paths in lists for path in paths if isinstance(path, str)}
    for path in out:
        if Path(path).resolve() in read:
            raise CorpusError(f"{path} {problem}")


def run_reader(read: Callable[..., Iterable[Document]], args: argparse.Namespace) -> None:
    """Convert a corpus: read, check and write it, and print its size.

    If there is an error, its message is printed and the program exits.

    Args:
        read: function that reads the documents, given ``args``.
        args: options of the command, including the options of :func:`reader_parser`.
    """
    left_out = LeftOut()
    try:
        if args.min_sentences < 1:
            raise CorpusError(f"--min-sentences must be at least 1, got {args.min_sentences}")
        check_not_read(args.out, [value for name, value in vars(args).items() if name != "out"])
        documents = select(read(args), left_out, args.min_sentences, args.complete_documents)
        counts, texts = checked_texts(documents, args.out)
        write_whole(texts)
    except CorpusError as error:
        sys.exit(f"error: {error}")
    print(
        f"{counts.documents:,} documents, {counts.sentences:,} sentence pairs; left out: documents "
        f"{left_out.documents:,}, pairs with an empty side {left_out.pairs:,}"
    )


if __name__ == "__main__":
    raise SystemExit("error: documents.py is no command; data_prep/README.md lists the commands")
