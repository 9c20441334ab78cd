"""Check the Subtitle corpus of Tu et al. (2018), unpack it, and mark its dropped pronouns.

    python subtitle_corpus.py CORPUS OUT [paper|any]

CORPUS has train, dev and test with the suffixes zh and en, test.ref1.en and test.ref2.en (further
references), and test.dp-oracle.zh (the source with the dropped pronouns put back); files may end in
.xz.  Lines are tokenised; a blank line separates episodes.  OUT gets the same files and
test.marked.zh, the source with a mark for each dropped pronoun, for `dropped-pronouns`.
With `any`, a corpus of another size is taken too (--corpus-size of prepare.sh).
"""

import argparse
import lzma
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Iterator

from fairseq_docmt.scoring.words.dropped_pronouns import CHINESE, PERSONS

sys.path.append(str(Path(__file__).resolve().parents[3] / "data_prep"))
from check_documents import (  # noqa: E402
    CorpusError,
    check_files,
    check_lines,
    iterate_lines,
)

#: sentence pairs of the splits in the paper (table 1)
SENTENCES = {"train": 2_150_945, "dev": 1_086, "test": 1_154}
FURTHER_REFERENCES = ("test.ref1.en", "test.ref2.en")
ORACLE, MARKED = "test.dp-oracle.zh", "test.marked.zh"
WORD_OF_PERSON = {person: word for word, person in reversed(list(PERSONS.items()))}


def unpack(corpus: Path, name: str, out: Path) -> Path:
    """Copy a file of the corpus, unpacked.

    Raises:
        CorpusError: it is missing or damaged.
    """
    packed, new = corpus / f"{name}.xz", out / f"{name}.new"
    opened = open if (corpus / name).exists() else lzma.open
    given = corpus / name if opened is open else packed
    try:
        with opened(given, "rb") as source, open(new, "wb") as target:
            shutil.copyfileobj(source, target)
    except FileNotFoundError:
        raise CorpusError(f"{corpus} has neither {name} nor {packed.name}; add the file") from None
    except (lzma.LZMAError, EOFError) as error:
        raise CorpusError(f"{given} cannot be unpacked ({error}); fetch the file again") from None
    new.replace(out / name)
    return out / name


def check_size(split: str, sentences: int, name: str, any_size: bool) -> None:
    """Refuse a split that does not have the size of the paper's.

    Raises:
        CorpusError: naming the file.
    """
    if not any_size and sentences != SENTENCES[split]:
        raise CorpusError(
            f"{name} has {sentences:,} sentences, the one of the paper {SENTENCES[split]:,}; give "
            'that corpus, or --prepare="--corpus-size any", with which figures cannot be compared '
            "with the paper's"
        )


def check_counterpart(source: Path, other: Path) -> None:
    """Check that a further text has the same sentences as a source.

    Raises:
        CorpusError: naming file and line.
    """
    check_lines(iterate_lines(str(source)), iterate_lines(str(other)), str(source), str(other))


def marked(source: Path, oracle: Path) -> Iterator[str]:
    """Yield the lines of a source with a mark for each pronoun that only the oracle has.

    The marks are at the end of the line, because the oracle divides some words in another way.

    Raises:
        CorpusError: the oracle lacks a pronoun of the source.
    """
    lines = zip(*(iterate_lines(str(path)) for path in (source, oracle)))
    for number, texts in enumerate(lines, start=1):
        has, needs = (Counter(map(PERSONS.get, CHINESE.findall(text))) for text in texts)
        if has - needs:
            word = WORD_OF_PERSON[next(iter(has - needs))]
            raise CorpusError(
                f"{oracle}: line {number} lacks {word}, which line {number} of {source} has; give "
                "the source with pronouns put back"
            )
        dropped = (needs - has).elements()
        yield " ".join([texts[0], *(f"<{WORD_OF_PERSON[person]}>_S" for person in dropped)])


def main(corpus: Path, out: Path, any_size: bool) -> None:
    """Check all files, and write them to a folder.

    Raises:
        CorpusError: the first error, naming the file.
    """
    out.mkdir(parents=True, exist_ok=True)
    for split in SENTENCES:
        source, target = (unpack(corpus, f"{split}.{language}", out) for language in ("zh", "en"))
        counts = check_files(str(source), str(target))
        check_size(split, counts.sentences, str(source), any_size)
    source = out / "test.zh"
    for name in (*FURTHER_REFERENCES, ORACLE):
        check_counterpart(source, unpack(corpus, name, out))
    text = "".join(f"{line}\n" for line in marked(source, out / ORACLE))
    (out / MARKED).write_text(text, encoding="utf-8")


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", metavar="CORPUS", type=Path)
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("size", nargs="?", choices=["paper", "any"], default="paper")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    try:
        main(args.corpus, args.out, args.size == "any")
    except CorpusError as error:
        sys.exit(f"error: {error}")
