"""Write the tables and the plot of the README from results.json.

    python tables.py

The tables go between the two comments in README.md that name this script.
"""

import json
import re
from pathlib import Path
from typing import Dict, List, Optional

from matplotlib.figure import Figure
from tabulate import tabulate

HERE = Path(__file__).parent
MARKS = ("<!-- written by tables.py -->\n", "<!-- end of tables.py -->\n")
EMPTY = "No system has been trained to the end yet.\n"


def metric(scores: dict, label: str) -> dict:
    """Return the result of a metric by its label, e.g. ``s-BLEU``."""
    return next(found for found in scores["metrics"] if found["label"] == label)


def number(value: Optional[float], digits: int = 1) -> str:
    """Format a number; nothing for None."""
    return "" if value is None else f"{value:.{digits}f}"


def against_control(found: dict, name: str) -> str:
    """Return the score of a system, with stars for its p-values in the bootstrap and sign test."""
    tests = [test.get(name, {}).get("p") for test in found["tests"].values()]
    stars = "*" * sum(p is not None and p < 0.05 for p in tests)
    return f"{found['scores'][name]:.1f}{stars}"


def is_other(difference: Optional[dict]) -> bool:
    """Return whether the interval of a difference leaves out zero."""
    if difference is None or difference["low"] is None:
        return False
    return difference["low"] > 0 or difference["high"] < 0


def translation_rows(name: str, system: dict) -> List[List[str]]:
    """Return a row of scores for each decoding of a system, with a beam of 4."""
    rows = []
    for decoding in system["decodings"]:
        full = f"{name}-{decoding}-4"
        test, zpdev = system["scores"]["test"], system["scores"]["zpdev"]
        pronouns = system["scores"]["pronouns"]
        found = pronouns["systems"][full]["all"]
        star = "*" * is_other(pronouns["differences"].get(full))
        run = system["runs"][f"{decoding}/test-4"][-1]
        rows.append(
            [
                name,
                f"`{decoding}`",
                *(against_control(metric(test, x), full) for x in ("s-BLEU", "d-BLEU", "chrF2")),
                number(metric(test, "s-BLEU")["scores"].get(f"{name}-{decoding}-1")),
                number(system["length_ratios"][f"{decoding}/test-4"], 2),
                *(against_control(metric(zpdev, x), full) for x in ("s-BLEU", "chrF2")),
                *(number(100 * found[x]) for x in ("precision", "recall")),
                number(100 * found["f1"]) + star,
                number(run["cpu_seconds"], 0),
                str(run["peak_megabytes"]),
            ]
        )
    return rows


TRANSLATION = [
    "system",
    "`--decoding`",
    "s-BLEU",
    "d-BLEU",
    "chrF2",
    "s-BLEU, beam 1",
    "length ratio",
    "zpdev s-BLEU",
    "zpdev chrF2",
    "pronouns P",
    "R",
    "F1",
    "CPU s",
    "MB",
]


def gain(found: Dict[str, float]) -> str:
    """Format a gain with its interval."""
    if found["low"] is None:
        return f"{found['mean']:.3f}"
    return f"{found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def context_row(name: str, system: dict) -> List[str]:
    """Return what a system makes of its own context and of another document's."""
    usage = system["scores"]["usage"]["usage"]
    scores, pronouns = system["scores"]["contexts"], system["scores"]["context-pronouns"]["systems"]
    bleu = metric(scores, "s-BLEU")["scores"]
    own = next(found for context, found in usage.items() if context.isdigit())
    over = next(found for context, found in usage.items() if " over " in context)
    return [
        name,
        gain(own["sentence"]),
        gain(over["sentence"]),
        *(number(bleu[context]) for context in ("own", "other")),
        *(number(100 * pronouns[context]["all"]["f1"]) for context in ("own", "other")),
    ]


CONTEXT = [
    "system",
    "CXMI, bits a sentence",
    "over another document",
    "zpdev s-BLEU, own",
    "other",
    "pronouns F1, own",
    "other",
]


def training_row(name: str, system: dict) -> List[str]:
    """Return how a system was trained."""
    runs = system["runs"]["train"]
    last = system["curve"][-1]
    return [
        name,
        system["start"].replace("-", ""),
        str(last["updates"]),
        number(last["loss"], 3),
        number(sum(run["seconds"] for run in runs) / 60, 0),
        hardware_of(runs[-1]),
        runs[-1]["commit"],
    ]


TRAINING = ["system", "starts from", "updates", "validation loss", "minutes", "on", "commit"]


def hardware_of(run: dict) -> str:
    """Return the GPU of a run, or its processor."""
    hardware = run["hardware"]
    return f"{hardware.get('gpu') or hardware['processor']}, torch {hardware['torch']}"


def text(results: dict) -> str:
    """Return the tables as Markdown."""
    systems = results["systems"]
    if not systems:
        return EMPTY
    some = next(iter(systems.values()))
    signatures = [f"{m['label']} `{m['signature']}`" for m in some["scores"]["test"]["metrics"]]
    decoding = some["runs"][f"{some['decodings'][0]}/test-4"][-1]
    hardware = decoding["hardware"]
    used = {n: s for n, s in systems.items() if "usage" in s["scores"]}
    tables = [
        tabulate(
            [row for n, s in systems.items() for row in translation_rows(n, s)],
            TRANSLATION,
            "github",
            disable_numparse=True,
        ),
        tabulate([context_row(n, s) for n, s in used.items()], CONTEXT, "github"),
        tabulate(
            [training_row(n, s) for n, s in systems.items()],
            TRAINING,
            "github",
            disable_numparse=True,
        ),
        f"One star: p < 0.05 against the control in one of bootstrap and sign test; two: in both. "
        f"F1 of pronouns: the 95 % interval of the difference to the control leaves out 0 (star). "
        f"Signatures: {'; '.join(signatures)}. Decoding: {hardware_of(decoding)}, "
        f"{hardware['cores']} cores, one process each, {json.dumps(hardware['settings'])}.",
        "![Validation losses](losses.svg)",
    ]
    return "\n\n".join(tables) + "\n"


def plot(results: dict, path: Path) -> None:
    """Plot the validation losses of all systems over the number of updates."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, system in results["systems"].items():
        curve = system["curve"]
        axes.plot([p["updates"] for p in curve], [p["loss"] for p in curve], label=name)
    axes.set_xlabel("updates")
    axes.set_ylabel("validation loss")
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path, metadata={"Date": None})


def inserted(readme: str, tables: str) -> str:
    """Return the README with these tables."""
    pattern = re.compile(f"({re.escape(MARKS[0])}).*?({re.escape(MARKS[1])})", flags=re.S)
    return pattern.sub(lambda found: f"{found[1]}\n{tables}\n{found[2]}", readme)


def main() -> None:
    """Write README.md and losses.svg."""
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    readme = HERE / "README.md"
    readme.write_text(inserted(readme.read_text(encoding="utf-8"), text(results)), encoding="utf-8")
    if results["systems"]:
        plot(results, HERE / "losses.svg")


if __name__ == "__main__":
    main()
