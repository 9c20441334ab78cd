"""Give every sentence of a test set a limited context: of its own or of another document.

    python contexts.py make SENTENCES TEXT.zh TEXT.en OUT
    python contexts.py take OUTPUT_OF_FAIRSEQ_GENERATE OUT/own.zh TEXT.en > hypotheses

``make`` writes OUT/own and OUT/other, both with one document for each sentence: up to SENTENCES
that precede it, then the sentence.  In ``other`` the preceding sentences come from another
document, as in ``cxmi --context other-document:SENTENCES``.  ``take`` prints the
translations of the last sentence of each such document, with the blank lines of the test set, so
that empty translations are told from ends of documents; it needs the source of OUT/own or OUT/other
that was translated.
"""

import argparse
from pathlib import Path
from typing import List

from fairseq_docmt.analysis.bleu_by_position import places, read_output
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import read_text, write_text
from fairseq_docmt.scoring.context.cxmi import read_documents


def make(sentences: int, source: str, target: str, out: Path) -> None:
    """Write the four texts.

    Raises:
        UserError: the number of sentences is not positive, the texts cannot be told apart by their
            suffixes, or they or the folder are invalid.
    """
    suffixes = [Path(path).suffix for path in (source, target)]
    if sentences < 1:
        raise UserError(f"SENTENCES must be at least 1, got {sentences}")
    if suffixes[0] == suffixes[1]:
        raise UserError(f"both texts end in {suffixes[0]!r}; give each language its own suffix")
    documents = read_documents(source, target)
    own, other = documents.with_context(sentences), documents.with_other_context(sentences)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out} cannot be a folder: {error.strerror}") from None
    for name, found in (("own", own), ("other", other)):
        for side, suffix in enumerate(suffixes):
            text = "\n\n".join("\n".join(pair[side]) for pair in found)
            write_text(str(out / f"{name}{suffix}"), text + "\n")


def take(output: str, source: str, text: str) -> List[str]:
    """Return the translations of the last sentence of each document, in the lines of a text.

    Raises:
        UserError: a sentence of the source has no translation, or the text is not the test set that
            the source was made from.
    """
    hypotheses = read_output(output).hypotheses
    lines = read_text(source).split("\n")
    place = places(row for row, line in enumerate(lines) if line)
    missing = min(place.keys() - hypotheses.keys(), default=None)
    if missing is not None:
        raise UserError(
            f"{output} has no translation of line {missing + 1} of {source}; generate it again"
        )
    last = [hypotheses[row] for row in place if row + 1 not in place]
    lines = read_text(text).rstrip("\n").split("\n")
    sentences = sum(map(bool, lines))
    if sentences != len(last):
        raise UserError(
            f"{source} has {len(last)} documents, but {text} has {sentences} sentences; "
            "give the test set that was given to make"
        )
    remaining = iter(last)
    return [next(remaining) if line else "" for line in lines]


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    of_make, of_take = (commands.add_parser(name) for name in ("make", "take"))
    of_make.add_argument("sentences", metavar="SENTENCES", type=int)
    of_make.add_argument("source", metavar="TEXT.zh")
    of_make.add_argument("target", metavar="TEXT.en")
    of_make.add_argument("out", metavar="OUT", type=Path)
    of_take.add_argument("output", metavar="OUTPUT_OF_FAIRSEQ_GENERATE")
    of_take.add_argument("source", metavar="OUT/own.zh")
    of_take.add_argument("text", metavar="TEXT.en")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    if args.command == "make":
        make(args.sentences, args.source, args.target, args.out)
    else:
        print("\n".join(take(args.output, args.source, args.text)))
