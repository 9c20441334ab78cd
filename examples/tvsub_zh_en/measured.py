"""Run a command once, and record the command, its time and memory, and where it ran.

    python measured.py RECORD.json COMMAND ...

The record is a list with an entry for each time the command was run, until it ends well; then it is
not run again; a second process with the same record waits.  The output goes to RECORD.log.
The environment variable COMMIT names the commit where the project is not a git checkout; LIMIT is
the number of seconds after which the command is stopped.
"""

import argparse
import fcntl
import json
import os
import platform
import re
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

#: environment variables that change how fast or how exactly a CPU or GPU computes
SETTINGS = {
    "cpu": ("OMP_NUM_THREADS", "ONEDNN_DEFAULT_FPMATH_MODE", "MALLOC_TRIM_THRESHOLD_"),
    "cuda": ("OMP_NUM_THREADS", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
}
#: how torch says that the memory of a GPU is full
NO_ROOM = re.compile("CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED")
#: statuses of a command that ``timeout`` has stopped
STOPPED = (124, 137, -9)


def commit() -> str:
    """Return the commit of the project, with "+" where files differ from it; "" without git."""
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip()


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(": ")[1] for x in lines if x.startswith("model name")), platform.machine())


def accelerator() -> str:
    """Return the names of the GPUs; "" without any."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return ", ".join(listed.stdout.split("\n")[:-1])


def hardware() -> dict:
    """Return what the command runs on; the GPU if the environment variable DEVICE is cuda."""
    device = os.environ.get("DEVICE", "cpu")
    found = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "torch": version("torch"),
        "settings": {name: os.environ[name] for name in SETTINGS[device] if name in os.environ},
    }
    return {**found, "gpu": accelerator()} if device == "cuda" else found


def run(command: list, log: Path, lock: int) -> dict:
    """Run a command; return its exit status, seconds, CPU seconds and peak memory.

    Args:
        command: the command with its arguments.
        log: file to which its output goes.
        lock: file descriptor of the lock, which the command holds as long as it runs, even if this
            process is killed.
    """
    code, began = commit(), time.time()
    limit = os.environ.get("LIMIT")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(log, "a", encoding="utf-8") as output:
        # timeout also stops what the command has started.
        limited = ["timeout", "--kill-after=30", limit, *command] if limit else command
        status = subprocess.run(
            limited, stdout=output, stderr=output, check=False, pass_fds=[lock]
        ).returncode
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "exit": status,
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime(began)),
        "seconds": round(time.time() - began, 1),
        "cpu_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "peak_megabytes": after.ru_maxrss // 1024,
        "commit": code,
        "hardware": hardware(),
    }


def main(record: Path, command: list) -> int:
    """Run the command unless the record says that it was done; return the exit status."""
    record.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(record.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return run_once(record, command, lock.fileno())
    except KeyboardInterrupt:
        return 130  # the status of a shell


def run_once(record: Path, command: list, lock: int) -> int:
    """Do what ``main`` does, while no other process does so."""
    try:
        runs = json.loads(record.read_text(encoding="utf-8")) if record.exists() else []
        # A command that failed may be corrected; one that was stopped goes on.
        made = [part["command"] for part in runs if part["exit"] in (0, *STOPPED)]
        done = runs != [] and runs[-1]["exit"] == 0
    except (ValueError, TypeError, KeyError):
        print(
            f"error: {record} is damaged; restore it, or remove {record.parent} to begin anew",
            file=sys.stderr,
        )
        return 1
    if done and made[-1] == command:
        return 0
    if made and made[-1] != command:
        print(
            f"error: {record} was made by another command: {' '.join(made[-1])}; to begin anew, "
            f"remove {record.parent}",
            file=sys.stderr,
        )
        return 1
    log = record.with_suffix(".log")
    try:
        part = {"command": command, **run(command, log, lock)}
    except OSError as error:
        print(f"error: {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
        return 127  # the status of a shell
    new = record.with_suffix(".new")
    new.write_text(json.dumps([*runs, part], indent=1), encoding="utf-8")
    new.replace(record)
    if part["exit"] in STOPPED and os.environ.get("LIMIT"):
        print(
            f"{record.stem}: stopped after {os.environ['LIMIT']} s; give the same command to go on",
            file=sys.stderr,
        )
    elif part["exit"] != 0:
        end = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        if any(NO_ROOM.search(line) for line in end):
            print(
                f"{record}: the GPU has no room for this; free its memory, or take one with more",
                file=sys.stderr,
            )
            return part["exit"]
        print("\n".join([*end, f"failed: see {log}"]), file=sys.stderr)
    return part["exit"]


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", metavar="RECORD.json", type=Path)
    parser.add_argument("command", metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the command")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    sys.exit(main(args.record, [args.command, *args.arguments]))
