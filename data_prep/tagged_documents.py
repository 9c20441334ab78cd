r"""Convert documents marked by tags, as in IWSLT and WMT, to a corpus of documents.

    python data_prep/tagged_documents.py --source dev2010.zh.xml --target dev2010.en.xml \
        --out corpus/valid.zh corpus/valid.en

The script reads test sets (``*.xml``, ``*.sgm``: segments in documents) and training files of IWSLT
(``train.tags.*``: text between lines of tags).  If several files are given, their documents are
written one after another.  For the XML of WMT from 2021 on, with source and references in one file,
use ``fairseq-docmt convert``.
"""

import argparse
import html
import re
from itertools import groupby
from typing import Iterator, List, Sequence, Tuple

import lxml.html
from check_documents import CorpusError
from documents import Document, lines_of, on_one_line, reader_parser, run_reader

SEGMENT = re.compile(r"<seg\b", re.IGNORECASE)
#: Elements that a whole file closes.
ELEMENT = re.compile(r"<(/?)(mteval|dataset|srcset|refset|tstset|doc|seg)\b", re.IGNORECASE)
TALK = re.compile(r"<(url|doc)\b", re.IGNORECASE)
#: Elements that tell the texts of a document apart, in the XML of WMT from 2021 on.
TEXTS = ("src", "ref", "hyp")
#: Attributes of documents and segments, which may lack quotes.
ID = re.compile(r"<(doc|seg)\b[^>]*?\b(docid|id)\s*=\s*([\"']?)([^\"'\s>]*)\3", re.IGNORECASE)
TALK_ID = re.compile(r"<talkid>\s*([^<]*?)\s*</talkid>", re.IGNORECASE)
#: A segment with a closing tag in it, which the parser would leave out.
STRAY = re.compile(r"<seg\b(?:(?!</?seg\b).)*?</(?!seg\b)", re.IGNORECASE | re.DOTALL)
#: A line of a training file that is no text: a tag, or an element with its end.
METADATA = re.compile(r"</?([a-z][\w-]*)(\s[^>]*)?>(.*</\1\s*>)?", re.IGNORECASE)

Segments = List[List[str]]


def segments_of(lines: List[str], path: str) -> Segments:
    """Return the documents of a file, each as the list of its segments, including empty ones.

    The file is a test set with ``<seg>`` elements or a training file of IWSLT.

    Args:
        lines: text of the file.
        path: name of the file, for error messages.

    Raises:
        CorpusError: the file has no document, a segment is outside of a document or has a tag in
            it, a tag is between lines of text, or a document has several texts, such as source and
            reference.
    """
    is_set = any(map(SEGMENT.search, lines))
    documents = _segments_of_set(lines, path) if is_set else _lines_among_tags(lines, path)
    if not documents:
        raise CorpusError(
            f"{path}: the file has no document; give a set (*.xml, *.sgm) or a train.tags.* file"
        )
    return documents


def _segments_of_set(lines: List[str], path: str) -> Segments:
    """Return the documents of a test set: for each ``<doc>``, the text of its ``<seg>`` elements.

    The files are not well-formed XML (ampersands are not escaped), so they are parsed as HTML.
    """
    _refuse_cut(lines, path)
    text = "\n".join(lines)
    stray = STRAY.search(text)
    if stray:
        raise _tag_inside(1 + text.count("\n", 0, stray.end()), path)
    parser = lxml.html.HTMLParser(encoding="utf-8", huge_tree=True)
    root = lxml.html.document_fromstring(text.encode("utf-8"), parser=parser)
    documents = []
    by_document = groupby(root.iter("seg"), lambda seg: next(seg.iterancestors("doc"), None))
    for document, group in by_document:
        segments = list(group)
        if document is None:
            raise CorpusError(
                f"{path}: line {segments[0].sourceline} has a segment outside of a <doc>; give "
                "the set as it was published"
            )
        _check_one_text(segments, path)
        documents.append([_text(segment, path) for segment in segments])
    return documents


def _refuse_cut(lines: List[str], path: str) -> None:
    """Raise a CorpusError if the last element of a kind has no end, as in a file that is cut."""
    last = {}
    for number, line in enumerate(lines, start=1):
        for end, name in ELEMENT.findall(line):
            last[name.lower()] = not end, number
    for name, (is_open, number) in reversed([*last.items()]):  # inner elements first
        if is_open:
            raise CorpusError(
                f"{path}: <{name}> in line {number} has no end; give the whole file, as it was "
                "published"
            )


def _check_one_text(segments: list, path: str) -> None:
    """Raise a CorpusError if a document has several texts, such as source and reference."""
    first, *others = [next(segment.iterancestors(*TEXTS), None) for segment in segments]
    for segment, text in zip(segments[1:], others):
        if text is not first:
            tags = [each.tag for each in (first, text) if each is not None]
            raise CorpusError(
                f"{path}: line {segment.sourceline}: the document has several texts (elements "
                f"{', '.join(tags)}); write each to a file of its own with "
                "`fairseq-docmt convert --role source --to text` (or --role reference)"
            )


def _text(segment, path: str) -> str:
    if len(segment):  # the parser may have read the following text as part of a tag
        raise _tag_inside(segment.sourceline, path)
    return on_one_line(segment.text_content())


def _tag_inside(line: int, path: str) -> CorpusError:
    return CorpusError(
        f"{path}: line {line} has a tag inside a segment, or an unescaped <; write it as &lt;"
    )


def _lines_among_tags(lines: List[str], path: str) -> Segments:
    talks: Segments = [[]]
    after_text = None  # line of a tag that follows text of its talk
    for number, line in enumerate(map(str.strip, lines), start=1):
        if TALK.match(line):
            talks.append([])
            after_text = None
        elif METADATA.fullmatch(line):
            after_text = number if any(talks[-1]) else None
        elif after_text and line:
            raise CorpusError(
                f"{path}: line {after_text} is a tag between lines of text; remove it, or write it "
                "as &lt; if it is text"
            )
        else:
            talks[-1].append(on_one_line(html.unescape(line)))
    # Without tags it is another kind of text, whose documents are not known.
    return [talk for talk in talks if talk] if len(talks) > 1 else []


def _ids(lines: List[str]) -> List[Tuple[str, ...]]:
    """Return a tuple for each document: its id, then the ids of its segments.

    In training files, which have no segments, a tuple is empty for tags without an id.
    """
    found: List[List[str]] = []
    is_set = any(map(SEGMENT.search, lines))
    for line in lines:
        if not is_set and TALK.match(line.strip()):
            found.append(TALK_ID.findall(line))
        elif not is_set and found:
            found[-1] += TALK_ID.findall(line)
        for tag, name, _, value in ID.findall(line):
            if tag.lower() == "doc" and name.lower() in ("docid", "id"):
                found.append([value])
            elif tag.lower() == "seg" and name.lower() == "id" and found:
                found[-1].append(value)
    return [*map(tuple, found)]


def _check_ids(names: Tuple[str, str], texts: Sequence[List[str]]) -> None:
    """Raise a CorpusError if the ids of documents or segments differ between source and target.

    Documents that differ in their number of ids are not compared.

    Args:
        names: source and target file, for the message.
        texts: lines of the two files.
    """
    for one, other in zip(*map(_ids, texts)):
        if one != other and len(one) == len(other):
            pair = next(pair for pair in zip(one, other) if pair[0] != pair[1])
            kind = "document" if one[0] != other[0] else f"document {one[0]}: segment"
            raise CorpusError(
                f"{kind} {pair[0]} of {names[0]} is {pair[1]} in {names[1]}; give the two sides of "
                "the same set, in the same order"
            )


def read_documents(sources: Sequence[str], targets: Sequence[str]) -> Iterator[Document]:
    """Yield the documents of pairs of source and target files.

    Args:
        sources, targets: paths; file i of one side is the translation of file i of the other.

    Raises:
        CorpusError: a file is invalid, or the sides differ in the number of files, the number or
            ids of documents, or the number or ids of the segments of a document.
    """
    if len(sources) != len(targets):
        raise CorpusError(
            f"{len(sources)} source files, but {len(targets)} target files; give pairs of files"
        )
    for names in zip(sources, targets):
        texts = [list(lines_of(name)) for name in names]
        source, target = map(segments_of, texts, names)
        _check_ids(names, texts)
        if len(source) != len(target):
            raise CorpusError(
                f"{names[0]} has {len(source)} documents, {names[1]} has {len(target)}; give the "
                "two sides of the same set"
            )
        for number, sides in enumerate(zip(source, target), start=1):
            if len(sides[0]) != len(sides[1]):
                raise CorpusError(
                    f"document number {number} has {len(sides[0])} segments in {names[0]} and "
                    f"{len(sides[1])} in {names[1]}; give the two sides of the same set"
                )
            yield list(zip(*sides))


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: source files, target files and the options that all readers share."""
    parser = reader_parser(__doc__)
    parser.add_argument("--source", nargs="+", required=True, metavar="FILE", help="source files")
    parser.add_argument("--target", nargs="+", required=True, metavar="FILE", help="target files")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(lambda args: read_documents(args.source, args.target), parse_args())
