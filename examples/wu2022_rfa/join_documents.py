"""Output of fairseq-generate as sentences and as whole documents, one a line, to be scored.

    python join_documents.py OUT/generate-test.txt OUT

writes ``hypothesis`` and ``reference`` with the suffixes ``sentences`` and ``documents``.  Blank
lines between documents are counted in the numbers of fairseq-generate, so a gap in them is the end
of a document.
"""

import re
import sys
from pathlib import Path
from typing import Dict, List


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


def main() -> None:
    output, folder = Path(sys.argv[1]).read_text(encoding="utf-8"), Path(sys.argv[2])
    for name, kind in (("hypothesis", "H"), ("reference", "T")):
        texts = read_texts(output, kind)
        sentences = [texts[number] for number in sorted(texts)]
        for unit, lines in (("sentences", sentences), ("documents", documents(texts))):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{name}.{unit}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
