"""Documents among tags, as IWSLT ships TED talks and WMT its test sets, to documents.

    python data_prep/tagged_documents.py --source dev2010.zh.xml --target dev2010.en.xml \\
        --out corpus/valid.zh corpus/valid.en

Takes sets (``*.xml``, ``*.sgm``: segments in documents) and training files of IWSLT
(``train.tags.*``: text among lines of tags), several of them one after the other.
"""

import argparse
import html
import re
from itertools import groupby
from typing import Iterator, List, Sequence

import lxml.html
from check_documents import CorpusError
from documents import Document, lines_of, reader_parser, run_reader

SEGMENT = re.compile(r"<seg\b", re.IGNORECASE)
TALK = re.compile(r"<(url|doc)\b", re.IGNORECASE)
TAG = re.compile(r"</?[a-zA-Z]\w*\b[^>]*>")

Segments = List[List[str]]


def read_segments(path: str) -> Segments:
    """Segments of each document of one file, empty ones included.

    Raises:
        CorpusError: the file cannot be read, has no document, or a segment outside of all.
    """
    lines = list(lines_of(path))
    is_set = any(map(SEGMENT.search, lines))
    documents = _segments_of_set(lines, path) if is_set else _lines_among_tags(lines)
    if not documents:
        raise CorpusError(
            f"{path}: no document in it; give a set (*.xml, *.sgm) or a train.tags.* file"
        )
    return documents


def _segments_of_set(lines: List[str], path: str) -> Segments:
    """Segments between ``<seg>`` and ``</seg>``, by the ``<doc>`` that they are in.

    The files are no well-formed XML (an ampersand stands for itself), so they are parsed as HTML.
    """
    parser = lxml.html.HTMLParser(encoding="utf-8", huge_tree=True)
    root = lxml.html.document_fromstring("\n".join(lines).encode("utf-8"), parser=parser)
    documents = []
    by_document = groupby(root.iter("seg"), lambda seg: next(seg.iterancestors("doc"), None))
    for document, group in by_document:
        segments = list(group)
        if document is None:
            raise CorpusError(
                f"{path}: line {segments[0].sourceline} has a segment that is in no <doc>; give "
                "the set as it was published"
            )
        documents.append([_text(segment, path) for segment in segments])
    return documents


def _text(segment, path: str) -> str:
    if len(segment):  # whatever follows may have been taken for a part of the tag
        raise CorpusError(
            f"{path}: line {segment.sourceline} has a tag in a segment, or a < that begins one; "
            "write it as &lt;"
        )
    return segment.text_content().replace("\n", " ")


def _lines_among_tags(lines: List[str]) -> Segments:
    talks: Segments = [[]]
    for line in lines:
        if TALK.match(line.strip()):
            talks.append([])
        elif not TAG.match(line.strip()):
            talks[-1].append(html.unescape(line))
    return [talk for talk in talks if talk]


def read_documents(sources: Sequence[str], targets: Sequence[str]) -> Iterator[Document]:
    """Documents of pairs of files.

    Args:
        sources, targets: paths, file i of one the translation of file i of the other.

    Raises:
        CorpusError: the sides differ in files, in documents, or in segments of one.
    """
    if len(sources) != len(targets):
        raise CorpusError(
            f"{len(sources)} source files but {len(targets)} target files; give pairs"
        )
    for names in zip(sources, targets):
        source, target = map(read_segments, names)
        if len(source) != len(target):
            raise CorpusError(
                f"{names[0]} has {len(source)} documents, {names[1]} has {len(target)}; give the "
                "two sides of the same set"
            )
        for number, sides in enumerate(zip(source, target), start=1):
            if len(sides[0]) != len(sides[1]):
                raise CorpusError(
                    f"document {number} has {len(sides[0])} segments in {names[0]} and "
                    f"{len(sides[1])} in {names[1]}; give the two sides of the same set"
                )
            yield list(zip(*sides))


def parse_args(arguments=None) -> argparse.Namespace:
    """Read the command line."""
    parser = reader_parser(__doc__)
    parser.add_argument("--source", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--target", nargs="+", required=True, metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_documents(args.source, args.target), parse_args())
