"""Draw validation and test documents at random from a corpus.

    python data_prep/hold_out.py corpus/all.en corpus/all.de --valid 5 --test 5 --out corpus

The script writes ``train``, ``valid`` and ``test`` with the suffixes of the two files.  Documents
keep their order.
"""

import argparse
import random
import sys
from itertools import chain, groupby
from pathlib import Path
from typing import Dict, List

from check_documents import CorpusError, Parser, check_lines, read_lines
from documents import Document, check_not_read, checked_texts
from stages import write_whole


def read_corpus(source: str, target: str) -> List[Document]:
    """Read the documents of two parallel files, in which blank lines separate documents.

    Raises:
        CorpusError: the files are not a valid corpus.
    """
    sides = read_lines(source), read_lines(target)
    check_lines(*sides, source, target)
    groups = groupby(zip(*sides), lambda pair: bool(pair[0].strip()))
    return [list(document) for is_text, document in groups if is_text]


def split(documents: List[Document], sizes: Dict[str, int], seed: int) -> Dict[str, List[Document]]:
    """Split documents at random into validation, test and training documents.

    Args:
        documents: all documents.
        sizes: ``valid`` and ``test`` -> number of documents to draw.
        seed: random seed.

    Returns:
        ``train``, ``valid`` and ``test`` -> list of documents; ``train`` has those that are not
        drawn.

    Raises:
        CorpusError: one of the lists would be empty, or the seed is negative.
    """
    if seed < 0:  # Python would take it for a positive one
        raise CorpusError(f"--seed must not be negative, got {seed}")
    if min(sizes.values()) < 1:
        raise CorpusError("--valid and --test must be at least 1")
    if sum(sizes.values()) >= len(documents):
        raise CorpusError(
            f"holding out {sum(sizes.values())} of {len(documents)} documents leaves none for "
            "training; draw fewer"
        )
    drawn = random.Random(seed).sample(range(len(documents)), sum(sizes.values()))
    names = [name for name, size in sizes.items() for _ in range(size)]
    name_of = dict(zip(drawn, names))
    parts: Dict[str, List[Document]] = {name: [] for name in ("train", *sizes)}
    for number, document in enumerate(documents):
        parts[name_of.get(number, "train")].append(document)
    return parts


def output_paths(args: argparse.Namespace) -> Dict[str, List[str]]:
    """Return the two paths to write for each of ``train``, ``valid`` and ``test``.

    Raises:
        CorpusError: both sides have the same suffix, or an output would overwrite an input.
    """
    given = (args.source, args.target)
    suffixes = [Path(path).suffix for path in given]
    if suffixes[0] == suffixes[1]:
        raise CorpusError(f"both files end in {suffixes[0]!r}; give each language a suffix")
    paths = {
        name: [f"{args.out}/{name}{suffix}" for suffix in suffixes]
        for name in ("train", "valid", "test")
    }
    problem = "is the text to split; give another --out, or rename the text"
    check_not_read(chain.from_iterable(paths.values()), given, problem)
    return paths


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line: both texts, numbers of documents, seed and output folder."""
    parser = Parser(
        description=__doc__.replace("``", ""), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("source", help="source text, e.g. corpus/all.en")
    add("target", help="target text")
    add("--valid", type=int, required=True, metavar="N", help="documents for validation")
    add("--test", type=int, required=True, metavar="N", help="documents for test")
    add("--seed", type=int, default=1, help="random seed; default: 1")
    add("--out", required=True, metavar="FOLDER", help="folder for train, valid and test")
    return parser.parse_args(arguments)


def main() -> None:
    """Split the corpus named on the command line; if there is an error, print it and exit."""
    args = parse_args()
    try:
        paths = output_paths(args)
        documents = read_corpus(args.source, args.target)
        parts = split(documents, {"valid": args.valid, "test": args.test}, args.seed)
        found = {name: checked_texts(part, paths[name]) for name, part in parts.items()}
        write_whole({path: lines for _, texts in found.values() for path, lines in texts.items()})
        for name, (counts, _) in found.items():
            print(f"{name}: {counts.documents:,} documents, {counts.sentences:,} sentence pairs")
    except CorpusError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
