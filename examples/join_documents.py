"""Output of fairseq-generate as sentences and as whole documents, one a line, to be scored.

    python join_documents.py OUT/generate-test.txt OUT

writes ``hypothesis`` and ``reference`` with the suffixes ``sentences`` and ``documents``, and
``hypothesis.detokenized``: sentences that begin with a capital, without Moses' tokenization.  Blank
lines between documents are counted in the numbers of fairseq-generate, so a gap in them is the end
of a document.
"""

import re
import sys
from pathlib import Path
from typing import Dict, Iterable, List

from sacremoses import MosesDetokenizer, MosesDetruecaser


def read_texts(output: str, kind: str) -> Dict[int, str]:
    """Text of the lines ``H-12 <score> text`` or ``T-12 text``, by number."""
    found = re.findall(rf"^{kind}-(\d+)\t(.*)$", output, flags=re.M)
    return {int(number): text.split("\t")[-1] for number, text in found}


def documents(texts: Dict[int, str]) -> List[str]:
    """Sentences of each document joined by blanks."""
    joined: List[List[str]] = []
    for number in sorted(texts):
        if number - 1 not in texts:
            joined.append([])
        joined[-1].append(texts[number])
    return [" ".join(sentences) for sentences in joined]


def detokenize(sentences: Iterable[str]) -> List[str]:
    """Truecased Moses tokens as plain text."""
    recase, join = MosesDetruecaser().detruecase, MosesDetokenizer().detokenize
    return [join(recase(sentence)) for sentence in sentences]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main() -> None:
    output, folder = Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[2])
    for name, kind in (("hypothesis", "H"), ("reference", "T")):
        texts = read_texts(output, kind)
        sentences = [texts[number] for number in sorted(texts)]
        write_lines(folder / f"{name}.sentences", sentences)
        write_lines(folder / f"{name}.documents", documents(texts))
        if name == "hypothesis":
            write_lines(folder / "hypothesis.detokenized", detokenize(sentences))


if __name__ == "__main__":
    main()
