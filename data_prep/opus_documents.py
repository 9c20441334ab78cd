r"""Convert an OPUS corpus with document names, such as OpenSubtitles, to parallel documents.

    python data_prep/opus_documents.py OpenSubtitles.de-en.en OpenSubtitles.de-en.de \
        OpenSubtitles.de-en.ids --without contrapro.json --out corpus/all.en corpus/all.de

The inputs are the two texts in Moses format and the .ids file, which names the source document and
the target document of each line.  Consecutive lines with the same two names form a document.  The
option --without leaves out the segments of the test set ContraPro.
"""

import argparse
import json
from collections import Counter, defaultdict
from itertools import groupby
from typing import Dict, Iterator, Optional, Tuple

from check_documents import CorpusError
from documents import Document, Pair, paired_lines, reader_parser, run_reader


class ContraPro:
    """Segments of the ContraPro test set (Müller et al., 2018) that are to be left out of a corpus.

    Each segment is given by the id of its document and its line in the document, counted from 1.
    The id of ``de/1990/12/345.xml.gz``, for example, is ``1990_12_345.de``.

    Args:
        path: ``contrapro.json``.

    Raises:
        CorpusError: the file cannot be read, has another format or has no items.
    """

    def __init__(self, path: str):
        self.path = path
        self.segments: Dict[str, Dict[int, str]] = defaultdict(dict)
        self.lines_read: Counter = Counter()
        try:
            with open(path, encoding="utf-8") as stream:
                for item in json.load(stream):
                    text = "".join(item["src segment"].split())
                    segment = int(str(item["segment id"]))
                    self.segments[item["document id"]][segment] = text
        except OSError as error:
            raise CorpusError(f"{path}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise CorpusError(f"{path} is not valid UTF-8; convert the file") from None
        except json.JSONDecodeError as error:
            raise CorpusError(f"{path}: line {error.lineno} is not valid JSON") from None
        except (AttributeError, TypeError, KeyError, ValueError, RecursionError):
            raise CorpusError(
                f'{path}: an item has no "document id", "segment id" or "src segment"; give '
                "contrapro.json as it was published"
            ) from None
        if not self.segments:
            raise CorpusError(f"{path} has no items; check the download")

    def removed_from(self, document: Document, files: Tuple[str, str]) -> Document:
        """Return a document of the corpus without the segments of ContraPro.

        Documents must be given in the order of the corpus, because lines are counted across all
        documents that share a file.

        Args:
            document: all sentence pairs of the document.
            files: names of its source and target file in the corpus.

        Raises:
            CorpusError: the text of a segment differs from that in ContraPro.
        """
        for name in map(_document_id, files):
            if name in self.segments:
                start = self.lines_read[name]
                self.lines_read[name] += len(document)
                numbered = enumerate(document, start=start + 1)
                document = [pair for line, pair in numbered if not self._remove(name, line, pair)]
        return document

    def _remove(self, name: str, line: int, pair: Pair) -> bool:
        text = self.segments[name].pop(line, None)
        if text is not None and text not in ("".join(side.split()) for side in pair):
            raise CorpusError(
                f"line {line} of {name} is {pair[0].strip()[:40]!r}, but {text[:40]!r} in "
                f"{self.path}; give the release of OpenSubtitles that it was made from (2018)"
            )
        return text is not None

    def check_all_removed(self, ids: str) -> None:
        """Check that every segment of ContraPro was found in the corpus and removed.

        Args:
            ids: path of the .ids file of the corpus, for the message.

        Raises:
            CorpusError: a segment was not found.
        """
        for name, lines in self.segments.items():
            for line in lines:
                raise CorpusError(
                    f"{self.path} names line {line} of {name}, which is not in {ids}; give the "
                    "release of OpenSubtitles that it was made from (2018)"
                )


def _document_id(file: str) -> str:
    """Return the id by which ContraPro names a document, given its file in OPUS.

    For example, the id of ``de/1990/12/345.xml.gz`` is ``1990_12_345.de``.
    """
    language, *parts = file.split("/")[-4:]
    return "_".join(parts).split(".xml")[0] + "." + language


def read_documents(
    source: str, target: str, ids: str, left_out: Optional[ContraPro] = None
) -> Iterator[Document]:
    """Yield the documents of an OPUS corpus in Moses format.

    Args:
        source, target: paths of the texts.
        ids: path of the .ids file: source and target document of each line, separated by a tab.
        left_out: segments to leave out; the text before and after them stays one document.

    Raises:
        CorpusError: the files differ in their number of lines, a line of ``ids`` does not have two
            names, the lines of a document are not consecutive, or a segment of ``left_out`` is not
            in the corpus.
    """

    def files(row) -> Tuple[str, str]:
        number, (names, *_) = row
        cells = names.split("\t")
        if len(cells) < 2:
            raise CorpusError(
                f"{ids}: line {number} does not have two names separated by a tab; give the .ids "
                "file of the corpus"
            )
        return cells[0], cells[1]

    rows = enumerate(paired_lines(ids, source, target), start=1)
    seen = set()
    for names, group in groupby(rows, files):
        if names in seen:
            raise CorpusError(
                f"{ids}: the lines of {names[0]} are apart; sort the text and its ids by document"
            )
        seen.add(names)
        document = [(src, tgt) for _, (_, src, tgt) in group]
        yield document if left_out is None else left_out.removed_from(document, names)
    if left_out is not None:
        left_out.check_all_removed(ids)


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: texts, ids, ContraPro file and the options that all readers share."""
    parser = reader_parser(__doc__)
    parser.add_argument("source", help="source text")
    parser.add_argument("target", help="target text")
    parser.add_argument("ids", help="document names of each line (*.ids)")
    parser.add_argument("--without", metavar="JSON", help="leave out the segments of ContraPro")
    return parser.parse_args(arguments)


def read(args: argparse.Namespace) -> Iterator[Document]:
    """Yield the documents of the OPUS corpus whose files are named on the command line.

    With ``--without``, the segments of ContraPro are left out.
    """
    left_out = ContraPro(args.without) if args.without else None
    return read_documents(args.source, args.target, args.ids, left_out)


if __name__ == "__main__":
    run_reader(read, parse_args())
