"""Documents that begin with a line of their own, to documents with blank lines between them.

    python data_prep/marked_documents.py concatenated_en2de_dev_en.txt \\
        concatenated_en2de_dev_de.txt --out corpus/valid.en corpus/valid.de

This is how Maruf et al. (2019) ship TED talks, News Commentary and Europarl: ``<d>`` begins a
document.  Pairs with an empty side are dropped, line breaks that only some programs see become
blanks.
"""

import argparse
import sys
from typing import List

from check_documents import (
    BYTE_ORDER_MARK,
    CorpusError,
    check_lines,
    read_lines,
    without_odd_line_breaks,
)
from stages import write_whole


def split_documents(source: List[str], target: List[str], mark: str, names: List[str]):
    """Lines of both sides, a blank line between documents, and the number of pairs dropped.

    Args:
        source, target: lines of both sides.
        mark: the line that begins a document.
        names: files, for errors.

    Raises:
        CorpusError: the sides differ in lines or in marks.
    """
    if len(source) != len(target):
        raise CorpusError(
            f"{names[0]} has {len(source)} lines, {names[1]} has {len(target)}; line i of one side "
            "must be the translation of line i of the other"
        )
    sides: List[List[str]] = [[], []]
    dropped, begins = 0, False
    for number, pair in enumerate(zip(source, target), start=1):
        pair = [without_odd_line_breaks(line.lstrip(BYTE_ORDER_MARK)).strip() for line in pair]
        if mark in pair:
            if pair[0] != pair[1]:
                name = names[pair.index(mark)]
                raise CorpusError(
                    f"{name}: line {number} is {mark}, but not on the other side; documents must "
                    "begin on both"
                )
            begins = True
        elif not all(pair):
            dropped += 1
        else:
            for side, line in zip(sides, pair):
                side += [*([""] if begins and side else []), line]
            begins = False
    return sides, dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--out", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--mark", default="<d>", help="line that begins a document")
    args = parser.parse_args()
    try:
        names = [args.source, args.target]
        sides, dropped = split_documents(*map(read_lines, names), args.mark, names)
        counts = check_lines(*sides, *args.out)
        for path, lines in zip(args.out, sides):
            write_whole(path, lines)
    except CorpusError as error:
        sys.exit(f"error: {error}")
    print(
        f"{counts.documents:,} documents, {counts.sentences:,} sentence pairs; dropped {dropped:,}"
    )


if __name__ == "__main__":
    main()
