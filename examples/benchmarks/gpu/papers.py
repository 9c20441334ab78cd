"""Measure the speed and memory that the papers report, and print their figures beside ours.

    python papers.py --out FOLDER                  # one GPU, sizes of the papers, about 8 minutes
    python papers.py --out FOLDER --device cpu --small

Runs ../decoding_speed, ../training_memory and ../recurrent with the settings of the papers' tables,
one after the other, each for at most ``--limit`` seconds.  Writes their results to folders of
FOLDER, and ``papers.md`` and ``papers.json``.  Machines differ, so compare ratios.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional

import torch
from tabulate import tabulate

BENCHMARKS = Path(__file__).resolve().parent.parent


class Figure(NamedTuple):
    """A figure of a paper, and ours.

    Attributes:
        paper: authors, and table of the paper.
        what: what is measured.
        published: figure of the paper, None if it has none.
        ours: our figure, None if it was not measured.
    """

    paper: str
    what: str
    published: Optional[float]
    ours: Optional[float]


# ---- Wu et al. (2022), table 3: decoding in windows of L sentences ------------------------------

WINDOWS = {15: 2.09, 1: None, 2: None, 4: None, 8: None, 30: None}


def wu2022(rows: List[dict]) -> Iterator[Figure]:
    """Yield the speed of random feature attention over transformers."""
    for window, published in WINDOWS.items():
        for kind in ("equal", "largest"):
            row = next((r for r in rows if (r["window"], r["kind"]) == (window, kind)), None)
            if row is None and kind == "largest":
                continue
            for name in ("to fairseq's", "to the fastest transformer"):
                ours = statistics.median(row["ratios"][name]) if row else None
                what = f"tokens/s {name}, L = {window}, {kind} batches"
                yield Figure("Wu et al., table 3", what, published, ours)


# ---- Herold and Ney (2023), table 2: memory of an update -----------------------------------------

LENGTHS = (736, 1472, 2208)
MEMORY: Dict[str, tuple] = {
    "transformer": (2.3, 5.8, 10.9),
    "window 10, oneDNN": (2.4, 3.9, 5.2),
    "LST, oneDNN": (None, None, None),
}


def herold2023(rows: List[dict]) -> Iterator[Figure]:
    """Yield memory (ours without parameters and optimizer) and time of an update."""
    found = {(row["system"], row["length"]): row["runs"] for row in rows}
    for system, published in MEMORY.items():
        for length, gigabytes in zip(LENGTHS, published):
            runs = found.get((system, length)) or [None]
            fits = None not in runs
            name, place = f"{system.split(',')[0]}, {length} tokens", "Herold and Ney, table 2"
            size = statistics.median(run["bytes"] for run in runs) / 1e9 if fits else None
            seconds = statistics.median(run["seconds"] for run in runs) if fits else None
            yield Figure(place, f"GB of an update, {name}", gigabytes, size)
            yield Figure(place, f"seconds of an update, {name}", None, seconds)


# ---- Tu et al. (2018), table 5: words a second ---------------------------------------------------

SPEEDS = {
    "rnnsearch": (1469, 21.1),
    "context_rnn, hierarchical": (300, 20.8),
    "context_rnn, previous-source-attention": (934, 19.4),
    "cache_rnn, 25": (1164, 21.1),
}


def tu2018(rows: List[dict]) -> Iterator[Figure]:
    """Yield words a second in training and decoding (the paper: a K80, without batches)."""
    found = {row["system"]: row for row in rows}
    for system, published in SPEEDS.items():
        for what, figure in zip(("training", "decoding"), published):
            runs = found.get(system, {}).get(what) or [None]
            ours = None if None in runs else statistics.median(runs)
            yield Figure("Tu et al., table 5", f"words/s in {what}, {system}", figure, ours)


# ---- all of them ---------------------------------------------------------------------------------


def commands(args) -> Dict[str, list]:
    """Return the benchmark's folder and options for each paper."""
    size = [] if args.small else ["--paper"]
    device = ["--device", args.device]
    windows = ["--windows", *map(str, WINDOWS), "--dtype", args.dtype, "--repeats", "2"]
    windows += ["--largest", *([] if args.small else ["15"])]
    lengths = ["--lengths", *map(str, LENGTHS), "--systems", *MEMORY]
    if args.device == "cuda":
        lengths += ["--repeats", "1", "--warm-up", "3", "--updates", "10"]
    return {
        "wu2022": ["decoding_speed", *size, *device, *windows],
        "herold2023": ["training_memory", *size, *device, *lengths],
        "tu2018": ["recurrent", *size, *device, "--systems", *SPEEDS],
    }


def run(folder: Path, benchmark: str, options: List[str], limit: float) -> List[dict]:
    """Run a benchmark and return the rows of its results, as far as it gets."""
    script = BENCHMARKS / benchmark / "benchmark.py"
    command = [sys.executable, "-W", "ignore", str(script), "--out", str(folder), *options]
    found = folder / "results.json"
    found.unlink(missing_ok=True)
    try:
        done = subprocess.run(command, timeout=limit)
        if done.returncode != 0:
            print(f"{benchmark}: failed with status {done.returncode}", flush=True)
    except subprocess.TimeoutExpired:
        print(f"{benchmark}: stopped after {limit:.0f} s", flush=True)
    return json.loads(found.read_text())["rows"] if found.exists() else []


def table(figures: List[Figure]) -> str:
    """Format the figures as a Markdown table."""
    rows = [[f.paper, f.what, *("" if x is None else f"{x:.4g}" for x in f[2:])] for f in figures]
    return tabulate(rows, ["paper", "what", "paper's", "here"], "github", disable_numparse=True)


def main() -> None:
    """Measure what each paper reports; a paper that fails leaves its figures empty."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda", help="default: cuda")
    parser.add_argument("--small", action="store_true", help="small models, for a rehearsal")
    parser.add_argument("--dtype", default="float16", help="of decoding; default: float16")
    parser.add_argument("--limit", type=float, default=170, help="seconds for each; default: 170")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a GPU, and torch finds none; give --device cpu")
    figures: List[Figure] = []
    for paper, (benchmark, *options) in commands(args).items():
        rows = run(args.out / paper, benchmark, options, args.limit)
        figures += {"wu2022": wu2022, "herold2023": herold2023, "tu2018": tu2018}[paper](rows)
        text = table(figures)
        (args.out / "papers.md").write_text(f"{text}\n", encoding="utf-8")
        (args.out / "papers.json").write_text(json.dumps([f._asdict() for f in figures], indent=1))
    print(text)


if __name__ == "__main__":
    main()
