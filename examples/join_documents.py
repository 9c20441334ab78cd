"""Extract sentences and whole documents from an output of fairseq-generate, for scoring.

    python join_documents.py OUT/generate-test.txt OUT

Writes ``hypothesis`` and ``reference`` with the suffixes ``sentences`` (one sentence per line) and
``documents`` (one document per line), and ``hypothesis.detokenized``: sentences in plain text,
without Moses tokenization and truecasing.  Entities of Moses's tokenizer (``&apos;``) are replaced,
and unknown words by one word in hypotheses and another in references, so that they do not match.
The line numbers of fairseq-generate count blank lines between documents, so a gap in the numbers
ends a document.
"""

import argparse
import sys
from pathlib import Path
from typing import Dict, Iterable, List

from sacremoses import MosesDetokenizer, MosesDetruecaser

from fairseq_docmt.bleu import mark_unknown
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import output_lines


def read_texts(output: str, kind: str, path: str = "the output") -> Dict[int, str]:
    """Read the lines ``H-12 <score> text`` or ``T-12 text``, by number.

    Of several hypotheses (``--nbest``) the first one counts, which is the best.
    """
    texts: Dict[int, str] = {}
    unescape = MosesDetokenizer().unescape_xml
    for line in output_lines(output, path):
        if line.kind == kind:
            text = mark_unknown(line.text, is_reference=kind == "T")
            texts.setdefault(line.number, unescape(text))
    return texts


def documents(texts: Dict[int, str]) -> List[str]:
    """Join the sentences of each document by spaces."""
    joined: List[List[str]] = []
    for number in sorted(texts):
        if number - 1 not in texts:
            joined.append([])
        joined[-1].append(texts[number])
    return [" ".join(sentences) for sentences in joined]


def detokenize(sentences: Iterable[str]) -> List[str]:
    """Convert truecased Moses tokens to plain text."""
    recase, join = MosesDetruecaser().detruecase, MosesDetokenizer().detokenize
    return [join(recase(sentence)) for sentence in sentences]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Write the files for the output named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", metavar="OUTPUT", help="output of fairseq-generate")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="existing folder to write to")
    args = parser.parse_args()
    try:
        output = Path(args.output).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        sys.exit(f"error: {args.output} cannot be read ({reason})")
    try:
        found = read_texts(output, "H", args.output)
    except UserError as error:
        sys.exit(f"error: {error}")
    if not found:
        sys.exit(f"error: {args.output} has no H- lines; give an output of fairseq-generate")
    try:
        write_files(output, args.folder)
    except OSError as error:
        sys.exit(f"error: {error.filename} cannot be written ({error.strerror})")


def write_files(output: str, folder: Path) -> None:
    """Write the sentences and documents of an output."""
    for name, kind in (("hypothesis", "H"), ("reference", "T")):
        texts = read_texts(output, kind)
        sentences = [texts[number] for number in sorted(texts)]
        write_lines(folder / f"{name}.sentences", sentences)
        write_lines(folder / f"{name}.documents", documents(texts))
        if name == "hypothesis":
            write_lines(folder / "hypothesis.detokenized", detokenize(sentences))


if __name__ == "__main__":
    main()
