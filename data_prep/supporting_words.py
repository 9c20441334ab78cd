r"""Prepare text with marked supporting words for attention regularization.

    python data_prep/supporting_words.py strip marked.en marked.fr \
        --out corpus/train.en corpus/train.fr
    python data_prep/supporting_words.py link marked.en marked.fr \
        --subwords data/text/subwords/train.en data/text/subwords/train.fr \
        --out data/bin/train.en-fr.supporting.jsonl

The marks are used as in SCAT (Yin et al., 2021).  ``<p>`` and ``</p>`` enclose ambiguous words.
``<hon>`` and ``<hoff>`` enclose supporting words, which show how to translate them.  Marks may be
numbered, as in ``<p2>``, ``</p2>``, ``<hon2>`` and ``<hoff2>``.  Words of a document belong
together if their marks have the same number, or if their marks have none.

``strip`` writes the text without marks, for prepare.py.  ``link`` finds the marked words in the
prepared text and writes which subwords belong together.
"""

import argparse
import html
import json
import re
import sys
from collections import defaultdict
from difflib import SequenceMatcher
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from check_documents import CorpusError, Parser
from documents import Document, check_not_read, paired_lines, run_reader
from stages import write_whole

MARK = re.compile(r"<(p|/p|hon|hoff)(\d*)>")
#: a mark within a mark, as SCAT has some: ``<ho <hon>n>``
BROKEN = re.compile(r"(<[a-z/]*) ?<(?:p|/p|hon|hoff)> ?([a-z/]*>)")
#: characters as Moses escapes them
ESCAPED = re.compile("&(?:amp|apos|quot|lt|gt|#[0-9]+);")
#: opening mark -> closing mark
CLOSING = {"p": "/p", "hon": "hoff"}
SIDES = ("source", "target")


class Marked(NamedTuple):
    """Text between an opening and a closing mark, usually a word.

    Attributes:
        kind: ``p`` for an ambiguous word, ``hon`` for a supporting word.
        number: number in the marks, such as ``2`` in ``<p2>``; "" if they have none.
        start, end: character positions in the line without marks; the end is exclusive.
    """

    kind: str
    number: str
    start: int
    end: int


def without_marks(text: str) -> Tuple[str, List[Marked]]:
    """Remove marks such as ``<p>`` from a line, and return the plain line and the marked words.

    Unpaired marks, and marks around a part of a word, such as ``sp<p>it</p>e``, are removed too,
    but mark no word.
    """
    plain, words = between_marks(text)
    return plain, [word for word in words if is_whole(plain, word)]


def between_marks(text: str) -> Tuple[str, List[Marked]]:
    """Remove marks such as ``<p>`` from a line, and return the plain line and all marked texts.

    Unlike in :func:`without_marks`, marked parts of words are included.
    """
    text = BROKEN.sub(r"\1\2", text)
    plain, words, opened, last = "", [], {}, 0
    for mark in MARK.finditer(text):
        plain += text[last : mark.start()]
        last = mark.end()
        name, number = mark.groups()
        if name in CLOSING:
            opened[CLOSING[name], number] = name, len(plain)
        elif (name, number) in opened:
            kind, start = opened.pop((name, number))
            words.append(Marked(kind, number, start, len(plain)))
    return plain + text[last:], words


def is_whole(text: str, word: Marked) -> bool:
    """Return whether a marked text consists of whole words: no letter touches it on either side.

    In scripts without upper and lower case, this is always true.

    Args:
        text: line without marks.
        word: marked text in this line.
    """

    def inside(place: int) -> bool:
        if not 0 < place < len(text):
            return False
        return all(letter.lower() != letter.upper() for letter in text[place - 1 : place + 1])

    return not inside(word.start) and not inside(word.end)


# ---- reading -------------------------------------------------------------------------------------


def marked_documents(args: argparse.Namespace) -> Iterator[Document]:
    """Yield the documents of a text in which ambiguous and supporting words are marked.

    The sentences keep these marks.  Sentence pairs with an empty side are left out.  With
    ``--context``, each document consists of a line of context and the sentence after it.

    Raises:
        CorpusError: a file cannot be read or has fewer lines than the others, or the text has no
            marks.
    """
    marks = alone = 0
    for document in _documents(args):
        for text in (text for pair in document for text in pair):
            found = len(MARK.findall(text))
            marks += found
            alone += found - 2 * len(between_marks(text)[1])
        yield document
    if not marks:
        raise CorpusError(f"{args.source} has no marks such as <p> and <hon>; give the marked text")
    if alone:
        print(
            f"warning: {alone:,} of {marks:,} marks have no counterpart and mark nothing",
            file=sys.stderr,
        )


def _documents(args: argparse.Namespace) -> Iterator[Document]:
    document: Document = []
    for lines in paired_lines(args.source, args.target, *(args.context or [])):
        if args.context:
            document = [lines[2:], lines[:2]]
        elif any(map(str.strip, lines)):
            document.append(lines)
            continue
        yield from _kept(document)
        document = []
    yield from _kept(document)


def _kept(document: Document) -> Iterator[Document]:
    pairs = [pair for pair in document if all(without_marks(text)[0].strip() for text in pair)]
    if pairs:
        yield [tuple(text.strip() for text in pair) for pair in pairs]


def plain_documents(args: argparse.Namespace) -> Iterator[Document]:
    """Yield the documents of :func:`marked_documents` without their marks."""
    for document in marked_documents(args):
        yield [tuple(without_marks(text)[0] for text in pair) for pair in document]


# ---- subwords ------------------------------------------------------------------------------------


def tokens_of(text: str, words: Sequence[Marked], subwords: Sequence[str]) -> List[List[int]]:
    """Find the subwords of each marked word of a line.

    The letters of the line are aligned with the letters of the subwords, which may differ where the
    tokenizer has escaped characters and the truecaser has changed case.

    Args:
        text: line without marks.
        words: marked words of the line.
        subwords: the same line in the prepared text.

    Returns:
        For each marked word, the indices of its subwords; an empty list if it is not found, that
        is, if the subwords do not have two thirds of its letters.
    """
    if not words:
        return []
    letters, places = "", []
    for place, letter in enumerate(text):
        lowered = "" if letter.isspace() else letter.lower()  # that of İ has two letters
        letters += lowered
        places += [place] * len(lowered)
    joined, owners = "", []
    for number, subword in enumerate(subwords):
        shown = re.sub("@@$", "", subword).replace("\u2581", "").lower()
        joined += shown
        owners += [number] * len(shown)
    letters, places = _unescaped(letters, places)
    joined, owners = _unescaped(joined, owners)
    owner_of: Dict[int, int] = {}
    for first, second, size in SequenceMatcher(None, letters, joined, False).get_matching_blocks():
        owner_of.update((places[first + i], owners[second + i]) for i in range(size))
    found = []
    for word in words:
        letters_of_word = [i for i in places if word.start <= i < word.end]
        matched = [owner_of[i] for i in letters_of_word if i in owner_of]
        found.append(sorted(set(matched)) if 3 * len(matched) >= 2 * len(letters_of_word) else [])
    return found


def _unescaped(letters: str, owners: List[int]) -> Tuple[str, List[int]]:
    """Replace escapes such as ``&apos;`` by their characters.

    Args:
        letters: any text.
        owners: (letters,) a number of each letter.

    Returns:
        The text, and the numbers of its letters; a replaced escape has that of its ``&``.
    """
    shown, kept, last = "", [], 0
    for escape in ESCAPED.finditer(letters):
        character = html.unescape(escape[0])
        shown += letters[last : escape.start()] + character
        kept += owners[last : escape.start()] + [owners[escape.start()]] * len(character)
        last = escape.end()
    return shown + letters[last:], kept + owners[last:]


class Links:
    """Links from ambiguous words to their supporting words, as indices of subwords.

    Attributes:
        found, missing: numbers of marked words that were and were not found in the prepared text.
        records: links in the format of :mod:`fairseq_docmt.data.supporting_words`.  A record has
            the ambiguous words of one line whose marks have the same number, and their supporting
            words in the whole document.
    """

    def __init__(self):
        self.found, self.missing = 0, 0
        self.records: List[dict] = []

    def add(self, document: Document, subwords: Sequence[Tuple[str, ...]], first: int) -> None:
        """Find the marked words of a document in the prepared text, and add their links.

        Args:
            document: sentence pairs with marks.
            subwords: the same pairs in the prepared text, split into subwords.
            first: line number of the first sentence in the prepared text, from 0.
        """
        ambiguous: dict = defaultdict(lambda: {side: [] for side in SIDES})
        supporting: dict = defaultdict(lambda: {side: defaultdict(list) for side in SIDES})
        for line, (pair, prepared) in enumerate(zip(document, subwords), start=first):
            for side, marked, tokens in zip(SIDES, pair, prepared):
                text, words = without_marks(marked)
                for word, found in zip(words, tokens_of(text, words, tokens.split())):
                    self.found += bool(found)
                    self.missing += not found
                    if word.kind == "p":
                        ambiguous[line, word.number][side] += found
                    elif found:
                        supporting[word.number][side][line] += found
        for (line, number), words in ambiguous.items():
            words = {side: tokens for side, tokens in words.items() if tokens}
            support = {f"supporting_{side}": x for side, x in supporting[number].items() if x}
            if words and support:
                self.records.append({"line": line, **words, **support})


def link(documents: Iterable[Document], subwords: Iterator[Tuple[str, ...]], name: str) -> Links:
    """Link ambiguous words to their supporting words in the prepared text.

    Args:
        documents: documents of sentence pairs in which ambiguous words and their supporting words
            are marked.
        subwords: pairs of lines of the prepared text, with blank lines between documents.
        name: name of the prepared text in messages.

    Returns:
        The links of all documents.

    Raises:
        CorpusError: lines of the prepared text do not correspond to lines of the documents, or
            more than about a tenth of the marked words are not found in it.
    """
    links, line = Links(), 0
    fix = "prepare the text that strip writes, without leaving out lines"
    for document in documents:
        if line > 0:
            line += 1
            if any(map(str.strip, next(subwords, ["x"]))):
                raise CorpusError(f"{name}: line {line} should end a document; {fix}")
        prepared = [next(subwords, ("", "")) for _ in document]
        if not all(map(str.strip, (text for pair in prepared for text in pair))):
            raise CorpusError(f"{name}: the document at line {line + 1} has other lines; {fix}")
        links.add(document, prepared, line)
        line += len(document)
    if next(subwords, None) is not None:
        raise CorpusError(f"{name} continues after line {line}; {fix}")
    if links.missing > links.found // 9:
        raise CorpusError(
            f"{name}: {links.missing} of {links.found + links.missing} marked words were not "
            f"found; {fix}"
        )
    return links


# ---- commands ------------------------------------------------------------------------------------


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: ``strip`` or ``link``, and the files to read and write."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    pair = {"nargs": 2, "metavar": ("SOURCE", "TARGET")}
    strip = commands.add_parser("strip", help="write the text without marks")
    strip.add_argument("--out", **pair, required=True, help="files to write")
    linking = commands.add_parser("link", help="write which subwords belong together")
    linking.add_argument("--subwords", **pair, required=True, help="text prepared by prepare.py")
    linking.add_argument("--out", required=True, metavar="FILE", help="file to write")
    for command in (strip, linking):
        command.add_argument("source", help="source text with marks")
        command.add_argument("target", help="target text with marks")
        command.add_argument(
            "--context",
            **pair,
            help="contexts of the sentences, in files of their own (SCAT): each document is a line "
            "of context and its sentence",
        )
    return parser.parse_args(arguments)


def main(arguments=None) -> None:
    """Run the command ``strip`` or ``link``; if there is an error, print it and exit."""
    args = parse_args(arguments)
    if args.command == "strip":
        args.min_sentences, args.complete_documents = 1, False
        run_reader(plain_documents, args)
        return
    try:
        given = [args.source, args.target, *(args.context or []), *args.subwords]
        check_not_read([args.out], given)
        subwords = paired_lines(*args.subwords)
        links = link(marked_documents(args), subwords, " and ".join(args.subwords))
        write_whole({args.out: [json.dumps(record) for record in links.records]})
    except CorpusError as error:
        sys.exit(f"error: {error}")
    lines = {record["line"] for record in links.records}
    print(
        f"lines with ambiguous words: {len(lines):,}; marked words that were found: "
        f"{links.found:,}, not found: {links.missing:,}"
    )


if __name__ == "__main__":
    main()
