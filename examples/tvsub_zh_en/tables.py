"""Write the tables and the plot of a recipe's page from its results.json.

    python tables.py [FOLDER | RESULTS.json]

FOLDER is the folder of a recipe; default: this one.  The tables go between the two comments in its
results.md, or README.md, that name this script; given RESULTS.json, they are printed.
repeated.json, if it is there, has systems that were also trained from another base, in the form of
the systems in results.json; before.json has losses before training.
"""

import argparse
import json
import re
from itertools import product
from pathlib import Path
from typing import Dict, List, Optional

from matplotlib import rc_context
from matplotlib.figure import Figure
from results import read
from tabulate import tabulate

from fairseq_docmt.checkpoint_file import RENAMED_OPTIONS, RENAMED_TASKS
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.corpus.corpus_metrics import Comparison
from fairseq_docmt.scoring.corpus.metrics import finds_difference

HERE = Path(__file__).parent
MARKS = ("<!-- written by tables.py -->\n", "<!-- end of tables.py -->\n")
OF_PRONOUNS = (
    "F1 of pronouns: the 95 % interval of the difference to the control leaves out 0 (star)."
)
OF_TEST_PRONOUNS = "On `test` a pronoun counts if the reference has it and the source does not."
PRONOUNS = ["a dropped pronoun, over another document", "pronouns F1, own context", "other"]
OF_GAINS = (
    "The gain of dropped pronouns is measured on `test`: {} pronouns of persons that the source "
    "does not name."
)
#: end of the name of a system whose context is references
GOLD = "-gold"
OF_GOLD = (
    f"`{GOLD}`: translated with the references of the sentences before as target context, not with "
    "its own translations (`--gold-context`)."
)
EMPTY = "No system has been trained to the end yet.\n"


def metric(scores: dict, label: str) -> dict:
    """Return the result of a metric by its label, e.g. ``s-BLEU``."""
    return next(found for found in scores["metrics"] if found["label"] == label)


def number(value: Optional[float], digits: int = 1) -> str:
    """Format a number; nothing for None."""
    return "" if value is None else f"{value:.{digits}f}"


def percent(share: Optional[float]) -> str:
    """Format a share in percent; nothing for None, such as the precision of no pronouns."""
    return "" if share is None else number(100 * share)


def stars(found: dict, name: str) -> str:
    """Return a star for each of bootstrap and sign test in which a system differs."""
    is_better = found["scores"][name] > next(iter(found["scores"].values()))
    tests = [Comparison(**test[name]) for test in found["tests"].values() if name in test]
    return "*" * sum(finds_difference(test, is_better) for test in tests)


def against_control(found: dict, name: str) -> str:
    """Return the score of a system, with stars for its difference to the control."""
    return f"{found['scores'][name]:.1f}{stars(found, name)}"


def is_other(difference: Optional[dict]) -> bool:
    """Return whether the interval of a difference leaves out zero."""
    if difference is None or difference["low"] is None:
        return False
    return difference["low"] > 0 or difference["high"] < 0


def translation_rows(name: str, system: dict, sets: List[str]) -> List[List[str]]:
    """Return a row of scores for each decoding of a system, with a beam of 4."""
    rows = []
    for decoding in system["decodings"]:
        full = f"{name}-{decoding}-4"
        scores = system["scores"]
        run = system["runs"][f"{decoding}/test-4"][-1]
        rows.append(
            [
                name,
                f"`{decoding}`",
                *_scores_of(scores["test"], full, "s-BLEU", "d-BLEU", "chrF2"),
                number(metric(scores["test"], "s-BLEU")["scores"].get(f"{name}-{decoding}-1")),
                number(system["length_ratios"][f"{decoding}/test-4"], 2),
                *(x for s in sets[1:] for x in _scores_of(scores.get(s), full, "s-BLEU", "chrF2")),
                *(_of_pronouns(scores, full) if "pronouns" in scores else []),
                number(run["cpu_seconds"], 0),
                str(run["peak_megabytes"]),
            ]
        )
    return rows


def _scores_of(scores: Optional[dict], system: str, *labels: str) -> List[str]:
    if scores is None:  # run.sh with --test-sets leaves out some test sets
        return [""] * len(labels)
    return [against_control(metric(scores, label), system) for label in labels]


def _of_pronouns(scores: dict, system: str) -> List[str]:
    """Return precision, recall and F1 of the marked pronouns, and F1 on the test set.

    Where the test set was not scored for pronouns, its F1 is left out.
    """
    marked = scores["pronouns"]["systems"][system]["all"]
    shares = [percent(marked[x]) for x in ("precision", "recall")]
    return [*shares, *(_f1(scores.get(x), system) for x in ("pronouns", "test-pronouns"))]


def _f1(pronouns: Optional[dict], system: str) -> str:
    if pronouns is None:
        return ""
    f1 = percent(pronouns["systems"][system]["all"]["f1"])
    return f1 and f1 + "*" * is_other(pronouns["differences"].get(system))


def translation_headers(sets: List[str], pronouns: bool) -> List[str]:
    """Return the names of the columns of :func:`translation_rows`."""
    return [
        *("system", "`--decoding`", "s-BLEU", "d-BLEU", "chrF2", "s-BLEU, beam 1", "length ratio"),
        *(f"{name} {label}" for name in sets[1:] for label in ("s-BLEU", "chrF2")),
        *(["pronouns P", "R", "F1", "test pronouns F1"] if pronouns else []),
        *("CPU s", "MB"),
    ]


def gain(found: Dict[str, float]) -> str:
    """Format a gain with its interval."""
    if found["low"] is None:
        return f"{found['mean']:.3f}"
    return f"{found['mean']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


def over_none(scores: dict) -> dict:
    """Return the gain of a system's own context over none."""
    return next(found for context, found in scores["usage"]["usage"].items() if context.isdigit())


def over_another(scores: dict) -> dict:
    """Return the gain of a system's own context over that of another document."""
    usage = scores["usage"]["usage"]
    return next(found for context, found in usage.items() if " over " in context)


def published_rows(published: List[Dict[str, str]], systems: Dict[str, dict], sets: List[str]):
    """Return s-BLEU of systems in a paper beside ours, and then ours that the paper does not have.

    Args:
        published: rows of published.tsv.
        systems: our systems.
        sets: test sets, of the paper and others.
    """
    named = {row["ours"] for row in published}
    alone = [{"ours": name} for name in systems if name not in named]
    rows = []
    for row in [*published, *alone]:
        name = row["ours"]
        found = [""] * len(sets)
        if name in systems:
            main, scores = f"{name}-{systems[name]['decodings'][0]}-4", systems[name]["scores"]
            found = [_scores_of(scores.get(testset), main, "s-BLEU")[0] for testset in sets]
        rows.append([row.get("paper", ""), *(row.get(x, "") for x in sets), name, *found])
    return rows


def published_headers(sets: List[str]) -> List[str]:
    """Return the names of the columns of :func:`published_rows`."""
    return ["paper", *(f"{name}, paper" for name in sets), "ours", *sets]


def context_row(name: str, scores: dict) -> List[str]:
    """Return what a system makes of its own context and of another document's."""
    bleu = metric(scores["contexts"], "s-BLEU")["scores"] if "contexts" in scores else {}
    own, over = over_none(scores), over_another(scores)
    begin = scores["usage"]["beginnings"]
    row = [name, gain(own["sentence"]), gain(over["sentence"]), number(begin["first_tokens"], 3)]
    # A share of a gain that may be 0 means nothing.
    gains = over["sentence"]["low"] is not None and over["sentence"]["low"] > 0
    row += [f"{begin['lower_case_gain']:.0%}" if gains else ""]
    row += [number(bleu.get(context)) for context in ("own", "other")]
    if "context-pronouns" in scores:
        pronouns = scores["context-pronouns"]["systems"]
        row.append(gain(scores["usage"]["dropped_pronouns"]))
        row += [percent(pronouns[context]["all"]["f1"]) for context in ("own", "other")]
    return row


def context_headers(pronouns: bool) -> List[str]:
    """Return the names of the columns of :func:`context_row`."""
    return [
        *("system", "CXMI, bits per sentence", "over another document"),
        *("gain at first tokens", "share of the gain in lower-case references"),
        *("s-BLEU, own context", "other"),
        *(PRONOUNS if pronouns else []),
    ]


def repeated_row(name: str, twice: List[dict]) -> List[str]:
    """Return how a system differs from its control, with this base and with another.

    Args:
        name: name of the system.
        twice: the system with either base.
    """
    both = [(system["scores"], f"{name}-{system['decodings'][0]}-4") for system in twice]
    return [
        name,
        *(_bleu_difference(metric(scores["test"], "s-BLEU"), main) for scores, main in both),
        *(_f1_difference(scores["pronouns"]["differences"][main]) for scores, main in both),
        *(gain(over_another(scores)["sentence"]) for scores, _ in both),
    ]


def _bleu_difference(found: dict, name: str) -> str:
    control = next(iter(found["scores"].values()))  # run.sh scores it first
    return f"{found['scores'][name] - control:+.2f}{stars(found, name)}"


def _f1_difference(found: dict) -> str:
    mean, low, high = (100 * found[value] for value in ("f1", "low", "high"))
    return f"{mean:+.1f} ({low:.1f} to {high:.1f})"


REPEATED = [
    *("system", "s-BLEU against the control", "with the other base"),
    *("pronouns F1 against the control", "with the other base"),
    *("gain over another document, bits per sentence", "with the other base"),
]


def cut_rows(name: str, scores: dict, sets: List[str]) -> List[List[str]]:
    """Return the scores of a system whose context is cut, and of the same with its context.

    The latter also with references as context.
    """
    rows = []
    for testset, context in product(sets, ("context", "gold")):
        found = scores.get(f"with-{context}-{testset}")
        if found is None:
            continue
        (full,) = (system for system in metric(found, "s-BLEU")["scores"] if system != name)
        row = [testset, name, full]
        for label in ("s-BLEU", "chrF2"):
            of_metric = metric(found, label)
            row += [number(of_metric["scores"][system], 2) for system in (name, full)]
            row += [number(test[full]["p"], 3) for test in of_metric["tests"].values()]
        rows.append(row)
    return rows


CUT = [
    *("test set", "context cut", "with context"),
    *("s-BLEU, cut", "with context", "p, bootstrap", "p, sign test"),
    *("chrF2, cut", "with context", "p, bootstrap", "p, sign test"),
]


def losses_before(found: dict) -> str:
    """Return the validation losses of models that have only been started from a checkpoint."""
    rows = [[name, *(number(loss, 2) for loss in losses)] for name, *losses in found["losses"]]
    return f"{found['note']}\n\n{table(rows, found['headers'])}"


def training_row(name: str, system: dict) -> List[str]:
    """Return how a system was trained."""
    runs = system["runs"]["train"]
    last = system["curve"][-1]
    return [
        name,
        system["start"].replace("-", ""),
        system["anew"] and f"`{system['anew']}`",
        str(last["updates"]),
        *budget(system.get("budget", {})),
        number(last["loss"], 3),
        number(sum(run["seconds"] for run in runs) / 60, 0),
        hardware_of(runs[-1]),
        runs[-1]["commit"],
    ]


TRAINING = [
    *("system", "starts from", "newly initialised tensors"),
    *("updates", "M target tokens", "M sentences, once an epoch", "validation loss"),
    *("minutes", "on", "commit"),
]


def budget(read: Dict[str, float]) -> List[str]:
    """Return how many millions of target tokens and of new sentences a training has read."""
    return [number(read[x] / 1e6, 2) if x in read else "" for x in ("tokens", "sentences")]


def trial_row(name: str, trial: dict) -> List[str]:
    """Return how far the training of a setting came, its gains through context, and its options."""
    last = trial["curve"][-1]
    options = re.sub(r" --(max|total-num)-update \d+", "", of_today(trial["options"]))
    planned = re.search(r"--max-update (\d+)", trial["options"])
    updates = f"{last['updates']} of {planned[1]}" if planned else str(last["updates"])
    gains = ["", ""]
    if "usage" in trial["scores"]:
        gains = [gain(over(trial["scores"])["sentence"]) for over in (over_none, over_another)]
    return [name, trial["start"], updates, number(last["loss"], 3), *gains, f"`{options}`"]


def of_today(options: str) -> str:
    """Return options of a training under their names of today."""
    arch = options.partition(" --arch ")[2].split(" ")[0]
    for (task, model), name in RENAMED_TASKS.items():
        options = options.replace(f"--task {task} ", f"--task {name if model == arch else task} ")
    for name, now in RENAMED_OPTIONS.get(arch, {}).items():
        before, after = (f"--{option.replace('_', '-')}" for option in (name, now))
        options = re.sub(rf"{before}(?!\S)", after, options)
    return options


TRIALS = [
    *("tried besides", "starts from", "updates", "validation loss"),
    *("CXMI, bits per sentence", "over another document", "options"),
]


def passage_row(found: dict) -> List[str]:
    """Return a sentence after the one before it, with reference, gains and translations."""
    source = "<br>".join([*found["before"], f"**{found['source']}**"])
    gains = ", ".join(f"{gain:.0f}" for gain in found["gains"].values())
    row = [source, found["reference"], gains, *found["outputs"].values()]
    return [cell.replace("|", "\\|") for cell in row]


def passage_headers(found: dict) -> List[str]:
    """Return the names of the columns of :func:`passage_row`."""
    return ["source", "reference", "gains", *found["outputs"]]


def passages_text(passages: List[dict]) -> str:
    """Return a table of passages after a sentence on it; nothing without passages."""
    if not passages:
        return ""
    named = ", ".join(f"`{name}`" for name in passages[0]["gains"])
    return (
        "Sentences (bold, after those before them) that context improved: found by `passages.py`; "
        f"gains over another document's context of {named}, in bits.\n\n"
    ) + table([passage_row(p) for p in passages], passage_headers(passages[0]))


def hardware_of(run: dict) -> str:
    """Return the GPU of a run, or its processor."""
    hardware = run["hardware"]
    return f"{hardware.get('gpu') or hardware['processor']}, torch {hardware['torch']}"


def translation_notes(systems: Dict[str, dict]) -> str:
    """Return what the table of translations needs to be understood."""
    some = next(iter(systems.values()))
    signatures = [f"{m['label']} `{m['signature']}`" for m in some["scores"]["test"]["metrics"]]
    found = [
        "One star: p < 0.05 against the control in one of bootstrap and sign test; two: in both. "
        "A sign test that favours the system with the lower score does not count."
    ]
    if "pronouns" in some["scores"]:
        found.append(OF_PRONOUNS)
    if any("test-pronouns" in system["scores"] for system in systems.values()):
        found.append(OF_TEST_PRONOUNS)
    found.append(f"Signatures: {'; '.join(signatures)}.")
    found.append(f"Decoding: {decoding_hardware(systems)}.")
    return " ".join(found)


def context_notes(used: Dict[str, dict], pronouns: bool) -> str:
    """Return what the table of contexts needs to be understood.

    Args:
        used: scores of the systems that read context; at least one.
        pronouns: whether dropped pronouns are marked.
    """
    usage = next(iter(used.values()))["usage"]
    found = [OF_GAINS.format(usage["dropped_pronouns"]["pronouns"])] if pronouns else []
    found.append(
        f"{usage['beginnings']['lower_case']:.0%} of the references begin in lower case; their "
        "share of the gain over another document is given where that is above 0."
    )
    return " ".join(found)


def decoding_hardware(systems: Dict[str, dict]) -> str:
    """Return the hardware of decoding, with the names of systems if there are several."""
    names: Dict[str, List[str]] = {}
    for name, system in systems.items():
        run = system["runs"][f"{system['decodings'][0]}/test-4"][-1]
        cores, settings = run["hardware"]["cores"], json.dumps(run["hardware"]["settings"])
        place = f"{hardware_of(run)}, {cores} cores, one process each, {settings}"
        names.setdefault(place, []).append(f"`{name}`")
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(those)}: {place}" for place, those in names.items())


def text(results: dict) -> str:
    """Return the tables as Markdown."""
    systems, sets = results["systems"], results["sets"]
    if not systems:
        return EMPTY
    pronouns = any("pronouns" in system["scores"] for system in systems.values())
    used = {n: s["scores"] for n, s in systems.items() if "usage" in s["scores"]}
    cut = [row for n, s in systems.items() for row in cut_rows(n, s["scores"], sets)]
    repeated = [
        repeated_row(name, [systems[name], results["repeated"][name]])
        for name in used
        if name in results["repeated"]
    ]
    of_contexts = context_headers(pronouns)
    published, before = results.get("published", []), results.get("before")
    tables = {
        "Beside the paper": published
        and table(published_rows(published, systems, sets), published_headers(sets)),
        "Translations": table(
            [row for n, s in systems.items() for row in translation_rows(n, s, sets)],
            translation_headers(sets, pronouns),
        )
        + f"\n\n{translation_notes(systems)}",
        "Use of context": table([context_row(n, s) for n, s in used.items()], of_contexts)
        + (f"\n\n{context_notes(used, pronouns)}" if used else ""),
        "With and without context": table(cut, CUT)
        + (f"\n\n{OF_GOLD}" if any(row[2].endswith(GOLD) for row in cut) else ""),
        "From another base": table(repeated, REPEATED),
        "Before training": before and losses_before(before),
        "Training": table([training_row(n, s) for n, s in systems.items()], TRAINING)
        + "\n\n![Validation losses](losses.svg)",
        "Further settings": table([trial_row(n, t) for n, t in results["tried"].items()], TRIALS),
        "Passages": passages_text(results["passages"]),
    }
    return "\n".join(f"### {title}\n\n{part}\n" for title, part in tables.items() if part)


def table(rows: List[List[str]], headers: List[str]) -> str:
    """Format a table as Markdown, without columns that are empty."""
    used = [number for number, cells in enumerate(zip(*rows)) if any(cells)]
    rows = [[row[number] for number in used] for row in rows]
    return tabulate(rows, [headers[number] for number in used], "github", disable_numparse=True)


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
    # The same results make the same file.
    with rc_context({"svg.hashsalt": path.name}):
        figure.savefig(path, metadata={"Date": None})


def inserted(readme: str, tables: str) -> str:
    """Return the README with these tables."""
    pattern = re.compile(f"({re.escape(MARKS[0])}).*?({re.escape(MARKS[1])})", flags=re.S)
    return pattern.sub(lambda found: f"{found[1]}\n{tables}\n{found[2]}", readme)


def load(path: Path) -> dict:
    """Read results, also of systems trained again from another base, and losses before training.

    Args:
        path: a file of results, or the folder of a recipe.

    Raises:
        UserError: there are no results of results.py.
    """
    given = path / "results.json" if path.is_dir() else path
    results = read(given)
    if not isinstance(results, dict) or not {"sets", "systems", "tried"} <= results.keys():
        raise UserError(f"{given} has no results of results.py collect; make it again")
    others = {name: path / f"{name}.json" for name in ("repeated", "before")}
    return {
        **results,
        **{name: read(other) if other.exists() else {} for name, other in others.items()},
    }


def page_of(recipe: Path) -> Path:
    """Return the page with the tables of a recipe: results.md, or README.md if it has none."""
    page = recipe / "results.md"
    return page if page.exists() else recipe / "README.md"


def main(path: Path) -> None:
    """Write the page of a recipe, or print the tables of a file of results; write losses.svg."""
    results = load(path)
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        page = page_of(path)
        written = inserted(page.read_text(encoding="utf-8"), text(results))
        page.write_text(written, encoding="utf-8")
    else:
        print(text(results), end="")
    if results["systems"]:
        plot(results, folder / "losses.svg")


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        default=HERE,
        metavar="FOLDER | RESULTS.json",
        help="folder of a recipe, or a file of results; default: the folder of this script",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args().path)
