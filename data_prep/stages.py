"""Stages of a preparation: done once, redone when their input changes, never half written."""

import hashlib
import json
import multiprocessing
import os
import shutil
from pathlib import Path
from typing import Callable, Iterable, List, Sequence

from check_documents import CorpusError
from tqdm import tqdm

_function = None


def _start_worker(build, arguments) -> None:
    global _function
    _function = build(*arguments)


def _apply(line: str) -> str:
    line = line.strip()
    return _function(line).strip() if line else ""


def map_lines(
    lines: Sequence[str], build: Callable, arguments: Sequence, name: str, workers: int
) -> List[str]:
    """Apply a line function to all lines that are not blank.

    Args:
        lines: text, blank lines between documents.
        build: picklable function that builds the line function from ``arguments`` in each process.
        name: shown beside the progress bar and in errors.
        workers: processes.

    Raises:
        CorpusError: a sentence came out empty, which would make it a document boundary.
    """
    progress = {"desc": name, "total": len(lines), "unit": " lines", "mininterval": 0.5}
    if workers > 1:
        with multiprocessing.Pool(workers, _start_worker, (build, arguments)) as pool:
            results = list(tqdm(pool.imap(_apply, lines, chunksize=1000), **progress))
    else:
        _start_worker(build, arguments)
        results = [_apply(line) for line in tqdm(lines, **progress)]
    for number, (line, result) in enumerate(zip(lines, results), start=1):
        if line.strip() and not result:
            raise CorpusError(
                f"{name}: line {number} ({line.strip()!r}) has nothing left after this step and "
                "would look like the end of a document; change or remove it on both sides"
            )
    return results


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file so that it appears under its name only when complete."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(line + "\n" for line in lines)
    os.replace(partial, path)


class Stages:
    """Runs stages whose results lie in one folder.

    Args:
        folder: where results and the stamps of finished stages are kept.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.stamps = folder / ".stamps"
        self.stamps.mkdir(parents=True, exist_ok=True)

    def run(
        self,
        name: str,
        inputs: Sequence[Path],
        output: Path,
        options: dict,
        work: Callable[[Path], None],
    ) -> None:
        """Make ``output`` unless it is there from the same inputs and options.

        Args:
            name: unique name of the stage.
            inputs: files it reads.
            output: file or folder it makes.
            options: whatever else decides the result.
            work: makes the result at the path it is given, a temporary name.
        """
        fingerprint = _fingerprint(inputs, options)
        stamp = self.stamps / f"{name}.json"
        if output.exists() and stamp.exists():
            if json.loads(stamp.read_text(encoding="utf-8"))["fingerprint"] == fingerprint:
                return
        stamp.unlink(missing_ok=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(output.name + ".partial")
        _remove(partial)
        work(partial)
        _remove(output)
        os.replace(partial, output)
        write_lines(stamp, [json.dumps({"fingerprint": fingerprint, "options": options})])


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def _fingerprint(inputs: Sequence[Path], options: dict) -> str:
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for path in inputs:
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()
