r"""Convert text with a document id for each line, or folders of documents, to a corpus.

    python data_prep/named_documents.py train.de train.en --docids train.docids \
        --out corpus/train.de corpus/train.en
    python data_prep/named_documents.py talks.de talks.en --out corpus/train.de corpus/train.en

In the first example, --docids is a file with the document id of each line, as in contextual-mt and
WMT.  In the second, each side is a folder with one file per document, also in subfolders.  The two
files of a document have the same name, apart from an extension such as ``.de``.
"""

import argparse
from pathlib import Path
from typing import Dict, Iterator

from check_documents import CorpusError
from documents import Document, paired_lines, reader_parser, run_reader

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import read_docids
from fairseq_docmt.readers.files import files_below


def documents_of_lines(source: str, target: str, docids: str) -> Iterator[Document]:
    """Yield the documents of two parallel files, given a file with the document id of each line.

    Raises:
        CorpusError: the files differ in their number of lines.
        UserError: the file of ids cannot be read, or the lines of a document are not consecutive.
    """
    names = read_docids(docids)
    document: Document = []
    number = 0
    for number, pair in enumerate(paired_lines(source, target), start=1):
        if number > len(names):
            break
        if number == 1 or names[number - 1] != names[number - 2]:
            yield document
            document = []
        document.append(pair)
    if number != len(names):
        more = "more" if number > len(names) else f"{number:,}"
        raise CorpusError(
            f"{docids} names the documents of {len(names):,} lines, but {source} has {more}; give "
            "files of the same release"
        )
    yield document


def documents_of_files(source: str, target: str) -> Iterator[Document]:
    """Yield the documents of two folders that have one file per document, ordered by name.

    Raises:
        CorpusError: a document is in one folder only, or its two files differ in their number of
            lines.
    """
    sides = [_by_name(source), _by_name(target)]
    for (folder, files), (other, others) in (sides, sides[::-1]):
        alone = next((name for name in files if name not in others), None)
        if alone is not None:
            raise CorpusError(
                f"{files[alone]} has no counterpart in {other}; documents must have the same names "
                f"in {folder} and {other}"
            )
    (_, sources), (_, targets) = sides
    for name, file in sources.items():
        yield list(paired_lines(str(file), str(targets[name])))


def _by_name(folder: str):
    """Return the files of a folder and its subfolders, by the names of their documents.

    The name of a document is the path of its file within the folder, without the extension.

    Returns:
        ``folder``, and a dictionary from document names to paths.

    Raises:
        CorpusError: two files have the same document name.
    """
    files: Dict[str, Path] = {}
    for file in files_below(folder):
        name = str(file.relative_to(folder).with_suffix(""))
        if name in files:
            raise CorpusError(
                f"{files[name]} and {file} are both document {name}; rename one of them"
            )
        files[name] = file
    return folder, files


def read(args: argparse.Namespace) -> Iterator[Document]:
    """Yield the documents of two files with ``--docids``, or of two folders.

    Raises:
        CorpusError: the texts are invalid or do not match, a file is given together with a folder,
            or ``--docids`` is given for folders or missing for files.
    """
    folders = [Path(path).is_dir() for path in (args.source, args.target)]
    if all(folders) and args.docids:
        raise CorpusError("--docids is for files, not for folders; leave it out")
    if folders[0] != folders[1]:
        raise CorpusError(f"{args.source} and {args.target}: give two files or two folders")
    if not any(folders) and not args.docids:
        raise CorpusError("files need --docids, the file with the document of each line")
    try:
        if all(folders):
            yield from documents_of_files(args.source, args.target)
        else:
            yield from documents_of_lines(args.source, args.target, args.docids)
    except UserError as error:
        raise CorpusError(str(error)) from None


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: texts or folders, ``--docids`` and options that all readers share."""
    parser = reader_parser(__doc__)
    parser.add_argument("source", help="source text, or folder")
    parser.add_argument("target", help="target text, or folder")
    parser.add_argument("--docids", metavar="FILE", help="document of each line")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    run_reader(read, parse_args())
