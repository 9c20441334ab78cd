"""Find sentences of the test set that context systems translate better because of their context.

    python passages.py WORK SYSTEM ...

The gain of a sentence: by how many bits a system finds its reference more probable with its own
three previous sentences than with three of another document (``scores/usage.json``).  Of the
sentences with a gain of at least three bits, those are chosen whose translation by the same system
exceeds base and control most in chrF2, at most one of each document.  Writes
WORK/passages.json, with the previous sentences of each, the reference, and the translations of
base, control and SYSTEMs.
"""

import argparse
import json
from pathlib import Path
from typing import Dict, List

import gains
import results
from sacrebleu.metrics import CHRF

from fairseq_docmt.scoring.texts.translations import Translations, read_translations

WITHOUT_CONTEXT = ("base", "control")
MOST = 12
LEAST_BITS = 3
#: sentences before a passage that are shown
BEFORE = 2


def read_gains(usage: Path) -> List[float]:
    """Return the gain of each sentence."""
    return list(map(sum, gains.of_tokens(results.read(usage)["sentences"])))


def main_output(work: Path, system: str, decoding: str) -> str:
    """Return the path of a system's translation of the test set, with a beam of 4."""
    return str(work / system / decoding / "test-4" / "generate-test.txt")


def choose(texts: Translations, gains: Dict[str, List[float]]) -> List[int]:
    """Return the sentences where context decided most, as described above."""
    chrf = CHRF()

    def score(system: str, row: int) -> float:
        references = [texts.references[0][row]]
        return chrf.sentence_score(texts.systems[system][row], references).score

    differences = [
        (score(system, row) - max(score(name, row) for name in WITHOUT_CONTEXT), row)
        for system, values in gains.items()
        for row, bits in enumerate(values)
        if bits >= LEAST_BITS
    ]
    chosen: Dict[int, int] = {}
    for difference, row in sorted(differences, reverse=True):
        if difference > 0:
            chosen.setdefault(int(texts.index.document[row]), row)
    return list(chosen.values())[:MOST]


def passage(texts: Translations, row: int, gains: Dict[str, List[float]]) -> dict:
    """Return a sentence with those before it in its document, and its translations."""
    first = int(texts.index.starts[texts.index.document[row]])
    return {
        "place": texts.place(row),
        "before": texts.source[max(row - BEFORE, first) : row],
        "source": texts.source[row],
        "reference": texts.references[0][row],
        "outputs": {name: output[row] for name, output in texts.systems.items()},
        "gains": {name: round(values[row], 1) for name, values in gains.items()},
    }


def main(work: Path, systems: List[str]) -> None:
    """Write the passages."""
    raw = work / "data" / "text" / "raw"
    lines = results.settings(Path(__file__).with_name("systems.txt"))
    decodings = {name: line["decodings"][0] for name, line in lines.items()}
    texts = read_translations(
        {name: main_output(work, name, decodings[name]) for name in (*WITHOUT_CONTEXT, *systems)},
        [str(raw / "test.en")],
        str(raw / "test.zh"),
    )
    gains = {name: read_gains(work / name / "scores" / "usage.json") for name in systems}
    found = [passage(texts, row, gains) for row in choose(texts, gains)]
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (work / "passages.json").write_text(text + "\n", encoding="utf-8")


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", metavar="WORK", type=Path, help="folder of run.sh")
    parser.add_argument(
        "systems", nargs="+", metavar="SYSTEM", help="system of systems.txt that reads context"
    )
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    main(args.work, args.systems)
