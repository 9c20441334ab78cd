"""Stages of a preparation: run once, repeated when their input changes, never half written."""

import hashlib
import json
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Callable, Iterable, Iterator, List, Sequence

from check_documents import CorpusError
from tqdm import tqdm

CHUNK = 1000  # lines given to a worker at a time

_function = None


def _start_worker(build, arguments) -> None:
    global _function
    _function = build(*arguments)


def _apply(line: str) -> str:
    line = line.strip()
    return _function(line).strip() if line else ""


def map_lines(
    lines: Sequence[str], build: Callable, arguments: Sequence, step: str, file: str, workers: int
) -> Iterator[str]:
    """Apply a line function to all lines that are not blank; blank lines stay blank.

    Args:
        lines: text, with blank lines between documents.
        build: picklable function that builds the line function in each process.
        arguments: arguments of ``build``.
        step: name of the step, for the progress bar and error messages.
        file: file of the user, for error messages.
        workers: number of processes; short texts are processed in this one.

    Yields:
        One line for each input line.

    Raises:
        CorpusError: a sentence became empty and would be read as a document boundary.
    """
    results = progress(_map(lines, build, arguments, workers), step, len(lines))
    # The results come first in zip, so that the progress bar reaches its end.
    for number, (result, line) in enumerate(zip(results, lines), start=1):
        if line.strip() and not result:
            raise CorpusError(
                f"{file}: line {number} ({line.strip()[:60]!r}) is empty after the step "
                f"'{step}' and would be read as the end of a document; change it or remove it from "
                "both sides"
            )
        yield result


def _map(lines: Sequence[str], build: Callable, arguments: Sequence, workers: int) -> Iterator[str]:
    # Build it in this process too: a missing package is reported before workers are started.
    _start_worker(build, arguments)
    workers = min(workers, len(lines) // CHUNK)
    if workers <= 1:
        yield from map(_apply, lines)
        return
    # Unlike multiprocessing.Pool, this pool notices when a process dies.
    with ProcessPoolExecutor(workers, None, _start_worker, (build, arguments)) as pool:
        try:
            yield from pool.map(_apply, lines, chunksize=CHUNK)
        except BrokenProcessPool:
            raise CorpusError(
                "a worker process was killed, perhaps for lack of memory; run the command again "
                "with fewer --workers"
            ) from None


def progress(items: Iterable, name: str, total: int) -> Iterable:
    """Add a progress bar to ``items``; in log files it is updated rarely."""
    interval = 0.5 if sys.stderr.isatty() else 30
    return tqdm(items, desc=name, total=total, unit=" lines", mininterval=interval)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file."""
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(line + "\n" for line in lines)


def write_whole(path: Path, lines: Iterable[str]) -> None:
    """Write a text file through a temporary one, never half of it; create its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    write_lines(partial, lines)
    os.replace(partial, path)


class Stages:
    """Runner of stages whose results are in one folder.

    Args:
        folder: folder of the results and of the stamps of finished stages.
    """

    def __init__(self, folder: Path):
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
        """Make ``output`` unless it exists and was made from the same inputs and options.

        Args:
            name: unique name of the stage.
            inputs: files that the stage reads.
            output: file or folder that the stage makes.
            options: all other settings that determine the result.
            work: function that makes the result at a given temporary path.
        """
        fingerprint = _fingerprint(inputs, options)
        stamp = self.stamps / f"{name}.json"
        if output.exists() and _read_stamp(stamp) == fingerprint:
            return
        # Remove the stamp first: if this run fails, the old result must not count as finished.
        stamp.unlink(missing_ok=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        partial = output.with_name(output.name + ".partial")
        _remove(partial)
        work(partial)
        _remove(output)
        os.replace(partial, output)
        write_lines(stamp, [json.dumps({"fingerprint": fingerprint, "options": options})])


def _read_stamp(path: Path) -> str:
    try:
        return json.loads(path.read_text(encoding="utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError):
        return ""  # missing or half written: the stage is not finished


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def _fingerprint(inputs: Sequence[Path], options: dict) -> str:
    digests: List[str] = [json.dumps(options, sort_keys=True)]
    for path in inputs:
        digest = hashlib.sha256()
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(1 << 20), b""):
                digest.update(block)
        digests.append(digest.hexdigest())
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
