"""TED talks as IWSLT ships them, to documents: one sentence a line, a blank line between talks.

    python data_prep/ted_talks.py --source dev2010.zh.xml --target dev2010.en.xml \\
        --out corpus/valid.zh corpus/valid.en

Takes training files (``train.tags.*``: text among lines of tags) and sets (``*.xml``: segments in
documents), several of them one after the other.  Pairs with an empty side are dropped, line breaks
that only some programs see become blanks.
"""

import argparse
import html
import re
import sys
from typing import List, Sequence, Tuple

from check_documents import (
    BYTE_ORDER_MARK,
    CorpusError,
    check_lines,
    read_lines,
    without_odd_line_breaks,
)
from stages import write_whole

TALK = re.compile(r"<(url|doc)\b", re.IGNORECASE)
SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)
TAG = re.compile(r"\s*</?[a-zA-Z]\w*\b[^>]*>")

Talks = List[List[str]]


def read_talks(path: str) -> Talks:
    """Talks of one file, each a list of its segments, empty ones included.

    The files are no well-formed XML (an ampersand stands for itself), so tags are taken line by
    line.

    Raises:
        CorpusError: the file cannot be read, or has no talk.
    """
    lines = [without_odd_line_breaks(line.lstrip(BYTE_ORDER_MARK)) for line in read_lines(path)]
    in_segments = any(SEGMENT.search(line) for line in lines)
    talks: Talks = []
    for line in lines:
        if TALK.match(line.strip()):
            talks.append([])
        segment = SEGMENT.search(line)
        if segment and in_segments:
            text = segment.group(1)
        elif in_segments or TAG.match(line):
            continue
        else:
            text = line
        if not talks:
            talks.append([])
        talks[-1].append(html.unescape(text).strip())
    talks = [talk for talk in talks if talk]
    if not talks:
        raise CorpusError(f"{path}: no talk in it; give a train.tags.* file or an *.xml set")
    return talks


def pair_talks(source: Talks, target: Talks, names: Tuple[str, str]) -> Tuple[List[str], List[str]]:
    """Lines of both sides with blank lines between talks, without pairs that have an empty side.

    Args:
        source, target: talks of both sides.
        names: files, for errors.

    Raises:
        CorpusError: the sides have different numbers of talks or of segments in one.
    """
    if len(source) != len(target):
        raise CorpusError(
            f"{names[0]} has {len(source)} talks, {names[1]} has {len(target)}; give the two sides "
            "of the same set"
        )
    sides: Tuple[List[str], List[str]] = ([], [])
    for number, talks in enumerate(zip(source, target), start=1):
        if len(talks[0]) != len(talks[1]):
            raise CorpusError(
                f"talk {number} has {len(talks[0])} segments in {names[0]} and {len(talks[1])} in "
                f"{names[1]}; give the two sides of the same set"
            )
        pairs = [pair for pair in zip(*talks) if all(pair)]
        if pairs:
            for side, sentences in zip(sides, zip(*pairs)):
                side += [*([""] if side else []), *sentences]
    return sides


def convert(sources: Sequence[str], targets: Sequence[str], out: Sequence[str]) -> None:
    """Convert files and write both sides.

    Raises:
        CorpusError: see above; then nothing is written.
    """
    if len(sources) != len(targets):
        raise CorpusError(
            f"{len(sources)} source files but {len(targets)} target files; give pairs"
        )
    sides: Tuple[List[str], List[str]] = ([], [])
    for source, target in zip(sources, targets):
        lines = pair_talks(read_talks(source), read_talks(target), (source, target))
        for side, more in zip(sides, lines):
            side += [*([""] if side else []), *more]
    counts = check_lines(*sides, *out)
    for path, lines in zip(out, sides):
        write_whole(path, lines)
    print(f"{counts.documents:,} talks, {counts.sentences:,} sentence pairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--source", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--target", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--out", nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    args = parser.parse_args()
    try:
        convert(args.source, args.target, args.out)
    except CorpusError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
