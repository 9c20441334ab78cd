"""Selection of the tests that reach a mutant, from one run of all tests under coverage."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = "tests/mutants"


def digest(*paths: Path) -> str:
    """Checksum of the files that results depend on."""
    total = hashlib.sha256()
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".cpp", ".so", ".ini") and file.parent.name != "mutants":
                total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()[:12]


def folders(root: Path) -> list:
    """Folders of tests, without long tests."""
    tests = root / "tests"
    found = {path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")}
    return sorted(tests / name for name in found - {"system"})


class Selection:
    """Tests of a copy of the tree, recorded by folder and reused while nothing changes."""

    def __init__(self, project: Path, kept: Path, jobs: int, names: list) -> None:
        self._seconds, self._fixtures = defaultdict(float), {}
        self._lines = defaultdict(lambda: defaultdict(set))
        code = [project / name for name in ("fairseq_docmt", "data_prep")]
        shared = [*code, *(project / "tests").glob("*.*")]
        for folder in folders(project):
            if names and folder.name not in names:
                continue
            record = kept / f"reached-{folder.name}-{digest(folder, *shared)}"
            if not record.exists():
                _record(project, folder, record, jobs)
            for part in record.glob("*.json"):
                self._read(json.loads(part.read_text()))

    def _read(self, record: dict) -> None:
        self._fixtures.update(record["tests"])
        for name, seconds in record["seconds"].items():
            self._seconds[name] = max(self._seconds[name], seconds)
        for file, lines in record["lines"].items():
            for line, names in lines.items():
                self._lines[file][int(line)].update(names)

    def seconds(self, test: str) -> float:
        """Seconds of a test with all its fixtures."""
        return self._seconds[test] + sum(self._seconds[name] for name in self._fixtures[test])

    def tests(self, mutant, budget: float) -> tuple:
        """Return the fastest tests that reach a mutant within a time budget, and their total."""
        found = self._reaching(mutant.file, *mutant.reached)
        if not found and self._at_import(mutant.file, *mutant.reached):
            # Defaults of arguments count with their function, all else with the file, and a file
            # where nothing else runs, as one of options, with everything.
            found = self._reaching(mutant.file, *(mutant.body if mutant.body[1] else (1, 1 << 20)))
            if not found and not mutant.body[1]:
                found = list(self._fixtures)
        chosen, spent, ready = [], 0.0, set()
        for test in sorted(found, key=lambda test: (self.seconds(test), test)):
            new = set(self._fixtures[test]) - ready
            spent += self._seconds[test] + sum(self._seconds[name] for name in new)
            if chosen and spent > budget:
                break
            chosen.append(test)
            ready |= new
        return chosen, len(found)

    def _reaching(self, file: str, first: int, last: int) -> list:
        names = set()
        for line, reaching in self._lines[file].items():
            if first <= line <= last:
                names |= reaching
        return [t for t, taken in self._fixtures.items() if names.intersection([t, *taken])]

    def _at_import(self, file: str, first: int, last: int) -> bool:
        return any("" in self._lines[file].get(line, ()) for line in range(first, last + 1))


def _record(project: Path, folder: Path, record: Path, jobs: int) -> None:
    print(f"which lines do the tests in {folder.name} reach?", flush=True)
    partial = record.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", str(folder), "-q", "-m", "not system"]
    command += ["-p", "reached", "-p", "no:cacheprovider", "-n", str(jobs), "--dist", "loadfile"]
    result = subprocess.run(
        command,
        cwd=project,
        env={**os.environ, "MUTANTS_REACHED": str(partial), "PYTHONPATH": HERE},
        stdout=subprocess.PIPE,
        text=True,
    )
    print(result.stdout.rstrip().split("\n")[-1], flush=True)
    if not list(partial.glob("*.json")):
        raise SystemExit(f"error: the tests did not run\n{result.stdout}")
    partial.rename(record)
