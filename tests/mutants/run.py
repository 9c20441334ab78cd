"""Mutation testing: do the tests notice when a line of the package is changed?

``make mutants``, or with options ``make mutants MUTANTS="--sample 50 --groups data"``; see
``tests/README.md``.  Only copies of the tree are changed.
"""

import argparse
import fnmatch
import hashlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import forks
import mutations
from selection import HERE, Selection, digest

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / ".mutants"
#: folders that are sampled together, and how many percent of their mutants are to be noticed
GROUPS = {
    "modules": (("modules", "ops"), 95),
    "data": (("generation", "data"), 90),
    "models": (("models", "tasks", "criterions", "optim"), 90),
    "scoring": (("scoring", "readers", "analysis", "data_prep"), 92),
}
NOTICED = ("killed", "timeout")


def main() -> int:
    args = parse_arguments()
    equivalents = read_equivalents()
    sample = {group: draw(group, args, equivalents) for group in args.groups}
    if args.list:
        for mutant in (mutant for mutants in sample.values() for mutant in mutants):
            print(f"{mutant.file}:{mutant.line} {mutant.function}: {mutant.change}")
        return 0
    KEPT.mkdir(exist_ok=True)
    verdicts = Verdicts(args)
    jobs = [m for mutants in sample.values() for m in mutants if verdicts.of(m) is None]
    if jobs:
        with tempfile.TemporaryDirectory(prefix="mutants") as folder:
            project = forks.copy_tree(ROOT, Path(folder, "0"))
            selection = Selection(project, KEPT, args.jobs, args.tests)
            copies = forks.warm_up(project, [Path(folder, str(n)) for n in range(1, args.jobs)])
            forks.run_all(jobs, selection, args.budget, copies, verdicts.add)
    return report(sample, verdicts, args)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--sample", type=int, default=300, help="mutants of each group")
    add("--seed", default="1", help="another seed draws other mutants")
    add("--groups", nargs="+", default=list(GROUPS), choices=list(GROUPS))
    add("--files", nargs="+", default=["*"], help="only of files that fit, as '*/ops/*'")
    add("--jobs", type=int, default=2, help="processes at a time")
    add("--budget", type=float, default=120, help="seconds of tests for one mutant")
    add("--tests", nargs="+", default=[], help="only the tests in these folders of tests/")
    add(
        "--keep-killed",
        action="store_true",
        help="what was noticed before the tree changed is not tried again; for work on survivors",
    )
    add("--list", action="store_true", help="show the sample, run nothing")
    return parser.parse_args()


def read_equivalents() -> dict:
    """Reasons by keys; the file holds path, function, change and reason, apart by tabs."""
    lines = (ROOT / HERE / "equivalents.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {tuple(key): reason for *key, reason in rows}


def package_of(folder: str) -> Path:
    """Return where a folder of a group is."""
    return ROOT if folder == "data_prep" else ROOT / "fairseq_docmt"


def draw(group: str, args, equivalents: dict) -> list:
    """Mutants in the order of a hash, so that an edit changes little of the sample."""
    files = [
        str(path.relative_to(ROOT))
        for folder in GROUPS[group][0]
        for path in sorted((package_of(folder) / folder).rglob("*.py"))
    ]
    files = [file for file in files if any(fnmatch.fnmatch(file, fit) for fit in args.files)]
    every = [mutant for file in files for mutant in mutations.mutants(ROOT, file)]
    every.sort(key=lambda m: hashlib.sha256("\t".join((args.seed, *m.key)).encode()).digest())
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    chosen = []
    for mutant in every:
        if len(chosen) == args.sample:
            break
        if mutant.key not in equivalents and mutations.compiles(mutant.apply(sources[mutant.file])):
            chosen.append(mutant)
    return chosen


class Verdicts:
    """Verdicts in ``.mutants/verdicts.jsonl``, from which the next run continues."""

    def __init__(self, args) -> None:
        folders = ("fairseq_docmt", "tests", "data_prep", "examples")
        self._tree = digest(*(ROOT / name for name in folders))
        self._tests = f"{args.budget:g} s of {' '.join(sorted(args.tests)) or 'all'}"
        self._file, self._found = KEPT / "verdicts.jsonl", {}
        for line in self._file.read_text().splitlines() if self._file.exists() else ():
            verdict = json.loads(line)
            stays = verdict["tree"] == self._tree
            if verdict["status"] in NOTICED:
                stays = stays or args.keep_killed
            else:
                stays = stays and verdict["of"] == self._tests
            if stays:
                self._found[tuple(verdict["key"])] = verdict

    def of(self, mutant):
        return self._found.get(mutant.key)

    def add(self, mutant, **verdict) -> None:
        verdict = {"key": mutant.key, "tree": self._tree, "of": self._tests, **verdict}
        self._found[mutant.key] = verdict
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(verdict) + "\n")
        place = f"{mutant.file}:{mutant.line} {mutant.function}"
        print(f"{verdict['status']:11} {verdict.get('seconds', 0):6} {place}", flush=True)


def report(sample: dict, verdicts: Verdicts, args) -> int:
    """Print survivors and scores; return 1 if a group is below its goal."""
    below = 0
    figures = [f"sample {args.sample}, seed {args.seed}"]
    for group, mutants in sample.items():
        count = Counter(verdicts.of(mutant)["status"] for mutant in mutants)
        for mutant in sorted(mutants, key=lambda m: (m.file, m.line)):
            verdict = verdicts.of(mutant)
            if verdict["status"] not in NOTICED:
                ran = f" by {verdict['tests']} tests" if "tests" in verdict else ""
                print(f"\n{verdict['status']}{ran}: {mutant.file}:{mutant.line} {mutant.function}")
                print("    " + mutant.change.replace(" | ", "\n    "))
        percent = 100 * sum(count[name] for name in NOTICED) / max(len(mutants), 1)
        below |= percent < GROUPS[group][1]
        parts = "+".join(GROUPS[group][0])
        each = (f"{name} {count[name]}" for name in (*NOTICED, "survived", "not reached"))
        goal = f"{percent:.1f} %, goal {GROUPS[group][1]} %"
        figures.append(f"{parts:18} {len(mutants)} mutants: {', '.join(each)}; {goal}")
    print("\n" + "\n".join(figures))
    return below


if __name__ == "__main__":
    sys.exit(main())
