"""Tools for preparing corpora: stages, parallel processing of lines, and safe writing of files.

A stage is a part of prepare.py, such as tokenizing a file.  Its result is kept, and the stage is
repeated only if its input, its options or the result change.  Results are never left half written.
"""

import collections
import contextlib
import errno
import functools
import glob
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from pathlib import Path
from typing import (
    Callable,
    Deque,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from check_documents import CorpusError, blocks_of
from filelock import FileLock, Timeout
from tqdm import tqdm

CHUNK = 1000  # lines given to a worker at a time

# In the path of an unfinished result, which also names the process that writes it.
PARTIAL = re.compile(r"(\.\d+)?\.partial(?=/|$)")
KILLED = (
    "a worker process was killed, perhaps for lack of memory; run the command again with fewer "
    "--workers"
)

_function = None


def _build(build: Callable, arguments: Sequence) -> None:
    global _function
    _function = build(*arguments)


def _start_worker(build: Callable, arguments: Sequence) -> None:
    end_with_parent()
    _build(build, arguments)


def end_with_parent() -> None:
    """Make this worker process end as soon as its parent does, even if the parent is killed.

    Otherwise the worker would wait for ever and keep the folder locked.  Keyboard interrupts are
    left to the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch():
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _apply(line: str) -> str:
    line = line.strip()
    return _function(line).strip() if line else ""


def _apply_to_block(lines: List[str]) -> List[str]:
    return list(map(_apply, lines))


def map_lines(
    lines: Iterable[str],
    build: Callable,
    arguments: Sequence,
    step: str,
    file: str,
    workers: int,
    total: Optional[int] = None,
) -> Iterator[str]:
    """Apply a line function to all lines that are not blank; blank lines stay blank.

    Only a few blocks of lines are held in memory at a time.

    Args:
        lines: text, with blank lines between documents.
        build: picklable function that returns the line function; each process calls it once.
        arguments: arguments of ``build``.
        step: name of the step, for the progress bar and error messages.
        file: the user's file from which the text comes, for error messages.
        workers: number of processes; short texts are processed in the current process.
        total: number of lines for the progress bar; None if it is unknown.

    Yields:
        One line for each input line.

    Raises:
        CorpusError: a sentence became empty and would be read as a document boundary.
    """
    results = progress(_map(lines, build, arguments, workers), step, total)
    for number, (line, result) in enumerate(results, start=1):
        if line.strip() and not result:
            raise CorpusError(
                f"{file}: line {number} ({line.strip()[:60]!r}) is empty after the step "
                f"'{step}' and would be read as the end of a document; change it or remove it from "
                "both sides"
            )
        yield result


def _map(
    lines: Iterable[str], build: Callable, arguments: Sequence, workers: int
) -> Iterator[Tuple[str, str]]:
    """Apply a line function to all lines, in one process or several.

    Args:
        lines, build, arguments, workers: see :func:`map_lines`.

    Yields:
        Each line together with its result, in the order of the lines.
    """
    # Build it in this process too: a missing package is reported before workers are started.
    _build(build, arguments)
    blocks = blocks_of(lines, CHUNK)
    first = list(islice(blocks, 2))
    blocks = chain(first, blocks)
    if workers == 1 or len(first) < 2:
        for block in blocks:
            yield from zip(block, map(_apply, block))
        return
    # Unlike multiprocessing.Pool, this pool notices when a process dies.
    with ProcessPoolExecutor(workers, None, _start_worker, (build, arguments)) as pool:
        waiting: Deque[Tuple[List[str], Future]] = collections.deque()
        try:
            for block in blocks:
                waiting.append((block, pool.submit(_apply_to_block, block)))
                if len(waiting) > 3 * workers:
                    yield from _next_results(waiting)
            while waiting:
                yield from _next_results(waiting)
        except BrokenProcessPool:
            raise CorpusError(KILLED) from None


def _next_results(waiting: Deque[Tuple[List[str], Future]]) -> Iterator[Tuple[str, str]]:
    block, results = waiting.popleft()
    return zip(block, results.result())


def run_together(works: Sequence[Callable[[], None]], workers: int) -> None:
    """Run functions in parallel processes, or in this one if there is only one worker or function.

    Args:
        works: picklable functions without arguments.
        workers: maximum number of processes.

    Raises:
        CorpusError: a function raised it, or a process was killed.
    """
    if min(len(works), workers) == 1:
        for work in works:
            work()
        return
    with ProcessPoolExecutor(min(len(works), workers), None, end_with_parent) as pool:
        try:
            for done in [pool.submit(work) for work in works]:
                done.result()
        except BrokenProcessPool:
            raise CorpusError(KILLED) from None
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def count_lines(path: Path) -> int:
    """Return the number of lines in a file; the last one may lack its line feed."""
    count, block = 0, b"\n"
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            count += block.count(b"\n")
    return count + (not block.endswith(b"\n"))


def progress(items: Iterable, name: str, total: Optional[int] = None) -> Iterable:
    """Return ``items`` with a progress bar, which is updated less often if it goes to a file."""
    interval = 0.5 if sys.stderr.isatty() else 30
    return tqdm(items, desc=name, total=total, unit=" lines", mininterval=interval)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Context manager that adds ``path`` to OSErrors that name no file, as on a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines to a UTF-8 text file."""
    with naming(path), open(path, "w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(line + "\n" for line in lines)


def write_whole(texts: Mapping[str, Iterable[str]]) -> None:
    """Write several text files, either all of them or, if there is an error, none.

    They are written to temporary files first.  Missing folders are created, and links are followed.

    Args:
        texts: path -> lines to write.

    Raises:
        CorpusError: a file cannot be written, or a path is a pipe or a device.
    """
    names = {Path(path).resolve(): path for path in texts}
    for path, given in names.items():
        if not str(given):
            raise CorpusError("an output has no name; give a file to write")
        if str(given).endswith(".gz"):
            raise CorpusError(
                f"{given}: text is written as it is; leave out .gz, and run gzip after"
            )
        if path.exists() and not path.is_file() and not path.is_dir():
            raise CorpusError(f"{given} is no file; give a file to write")
    partials = {path: path.parent / (path.name + ".partial") for path in names}
    try:
        for path, given in names.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            write_lines(partials[path], texts[given])
        for path, partial in partials.items():
            os.replace(partial, path)
    except OSError as error:
        raise CorpusError(f"{names[path]} cannot be written ({error.strerror})") from None
    finally:
        for partial in partials.values():
            with contextlib.suppress(OSError):
                partial.unlink()  # there is none if all went well


class Stages:
    """Stages of data preparation; stages that have already finished are skipped.

    Args:
        folder: folder for the results of all stages and for records of finished stages.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.stamps = folder / ".stamps"
        self.stamps.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager that locks the folder, so that no other preparation writes to it.

        Raises:
            CorpusError: another preparation is running there.
        """
        lock = FileLock(str(self.stamps / "lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise CorpusError(
                f"another preparation is writing to {self.folder}; wait for it, or give another "
                "--destdir"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def run(
        self,
        name: str,
        inputs: Sequence[Path],
        output: Path,
        options: dict,
        work: Callable[[Path], None],
    ) -> None:
        """Run a stage, unless its result exists, is unchanged and has the same inputs and options.

        Args:
            name: unique name of the stage.
            inputs: files that the stage reads.
            output: file or folder that the stage makes.
            options: all other settings that determine the result.
            work: function that makes the result, at the temporary path that it is given.
        """
        fingerprint = _fingerprint(inputs, options)
        stamp = self.stamps / f"{name}.json"
        finished = _read_stamp(stamp) if output.exists() else {}
        if finished.get("fingerprint") == fingerprint and finished.get("files"):
            changed = _first_change(output, finished["files"])
            if changed is None:
                return
            print(f"{changed} has changed since it was written; making it again", file=sys.stderr)
        # Remove the stamp first: if this run fails, the old result must not count as finished.
        stamp.unlink(missing_ok=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        # Named after this process, because workers of a killed run may still write to theirs.
        partial = output.with_name(f"{output.name}.{os.getpid()}.partial")
        for old in output.parent.glob(f"{glob.escape(output.name)}*.partial"):
            if PARTIAL.sub("", old.name) == output.name:
                _remove(old)
        try:
            with naming(partial):
                work(partial)
        except BaseException:
            _remove(partial)
            raise
        _remove(output)
        os.replace(partial, output)
        files = {name: _described(path) for name, path in _files_of(output).items()}
        done = {"fingerprint": fingerprint, "options": options, "files": files}
        write_lines(stamp, [json.dumps(done)])


def _read_stamp(path: Path) -> dict:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # missing or half written: the stage is not finished
    return found if isinstance(found, dict) else {}


def _files_of(output: Path) -> Dict[str, Path]:
    """Return a dictionary from name to path for each file in a folder and its subfolders.

    Names are relative to the folder.  If ``output`` is a single file, its name is ``""``.
    """
    if not output.is_dir():
        return {"": output}
    paths = sorted(path for path in output.rglob("*") if path.is_file())
    return {str(path.relative_to(output)): path for path in paths}


def _described(path: Path) -> dict:
    """Return the size and checksum of a file, with which later changes are detected."""
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _first_change(output: Path, files: Dict[str, dict]) -> Optional[Path]:
    """Return the first file that is missing or has changed since a stage finished, or None.

    Args:
        output: file or folder that the stage made.
        files: name -> size and checksum of each file when the stage finished.
    """
    for name, before in files.items():
        path = output / name if name else output
        if not path.is_file() or path.stat().st_size != before["bytes"]:
            return path
        if sha256_of(path) != before["sha256"]:
            return path
    return None


def _remove(path: Path) -> None:
    if path.is_dir():
        # Into an unfinished folder, a worker of a killed run may write at this moment.
        shutil.rmtree(path, ignore_errors=PARTIAL.search(path.name) is not None)
    elif path.exists():
        path.unlink()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 checksum of a file.

    It is cached as long as the size and modification time of the file stay the same.
    """
    state = os.stat(path)
    return _sha256(str(path), state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=None)
def _sha256(path: str, _modified: int, _size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _fingerprint(inputs: Sequence[Path], options: dict) -> str:
    digests: List[str] = [json.dumps(options, sort_keys=True), *map(sha256_of, inputs)]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


if __name__ == "__main__":
    raise SystemExit("error: stages.py is no command; data_prep/README.md lists the commands")
