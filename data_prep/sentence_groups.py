"""Groups of sentences on one line, to documents: one sentence a line, a blank line between groups.

    python data_prep/sentence_groups.py train.src train.dst --out corpus/train.en corpus/train.ru

This is how Voita et al. (2019) ship OpenSubtitles: four sentences on a line, joined by ``_eos``.
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


def split_groups(source: List[str], target: List[str], mark: str, names: List[str]):
    """Lines of both sides, a blank line between groups, and the number of groups left out.

    A group with an empty sentence on one side is left out: it could not be told from two groups.

    Args:
        source, target: groups of both sides.
        mark: what stands between sentences.
        names: files, for errors.

    Raises:
        CorpusError: the sides differ in groups or in the sentences of one.
    """
    if len(source) != len(target):
        raise CorpusError(
            f"{names[0]} has {len(source)} lines, {names[1]} has {len(target)}; line i of one side "
            "must be the translation of line i of the other"
        )
    sides: List[List[str]] = [[], []]
    dropped = 0
    for number, groups in enumerate(zip(source, target), start=1):
        sentences = [
            [s.strip() for s in without_odd_line_breaks(group.lstrip(BYTE_ORDER_MARK)).split(mark)]
            for group in groups
        ]
        if len(sentences[0]) != len(sentences[1]):
            raise CorpusError(
                f"{names[0]}: line {number} has {len(sentences[0])} sentences, but "
                f"{len(sentences[1])} in {names[1]}; remove the line on both sides"
            )
        if not all(map(all, sentences)):
            dropped += 1
            continue
        for side, group in zip(sides, sentences):
            side += [*([""] if side else []), *group]
    return sides, dropped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--out", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--mark", default=" _eos ", help="what stands between sentences")
    args = parser.parse_args()
    try:
        names = [args.source, args.target]
        sides, dropped = split_groups(*map(read_lines, names), args.mark, names)
        counts = check_lines(*sides, *args.out)
        for path, lines in zip(args.out, sides):
            write_whole(path, lines)
    except CorpusError as error:
        sys.exit(f"error: {error}")
    print(f"{counts.documents:,} groups, {counts.sentences:,} sentence pairs; left out {dropped:,}")


if __name__ == "__main__":
    main()
