"""Runs of tests against mutants in processes forked from one that has imported fairseq.

torch and fairseq take seconds to import and are never mutated; the package itself is imported by
every fork from a copy of the tree that holds the mutant, processes that tests start included.
"""

import gc
import importlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

import pytest

WARM = (
    "torch.testing torch.autograd.gradcheck numpy scipy.stats sacrebleu fairseq.tasks "
    "fairseq.models fairseq.sequence_generator fairseq_cli.preprocess fairseq_cli.train "
    "fairseq_cli.generate fairseq_cli.interactive"
).split()
LEFT_OUT = [".git", ".venv", ".mutants", "work", "build", "*.egg-info", "__pycache__", ".*_cache"]
#: a test is given so many times its own seconds of computing, and so many more
PATIENCE, GRACE = 5.0, 10.0
MEMORY = 12 << 30


def copy_tree(root: Path, folder: Path) -> Path:
    """Copy the source tree."""
    return shutil.copytree(root, folder / "project", ignore=shutil.ignore_patterns(*LEFT_OUT))


def warm_up(project: Path, others: list) -> list:
    """Import fairseq, compile a project with its tests, and copy it to other folders."""
    for name in WARM:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)
    if "fairseq_docmt" in sys.modules:
        raise RuntimeError("the package was imported before it could be mutated")
    gc.freeze()
    _, status = os.waitpid(_fork(project, {}), 0)
    if status:
        raise SystemExit((project.parent / "log").read_text())
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    return [project, *(shutil.copytree(project, folder / "project") for folder in others)]


def run_all(jobs: list, selection, budget: float, copies: list, done) -> None:
    """Run mutants against their tests in parallel copies and report each result to ``done``."""
    free, running, jobs = list(copies), {}, list(jobs)
    while jobs or running:
        if jobs and free:
            mutant = jobs.pop(0)
            tests, total = selection.tests(mutant, budget)
            if not tests:
                done(mutant, status="not reached")
                continue
            copy = free.pop()
            file, saved = copy / mutant.file, copy.parent / "saved"
            shutil.copy2(file, saved)
            file.write_text(mutant.apply(file.read_text(encoding="utf-8")), encoding="utf-8")
            pid = _fork(copy, {test: selection.seconds(test) for test in tests})
            running[pid] = (mutant, copy, time.time(), f"{len(tests)} of {total}")
            continue
        pid, status = os.wait()
        mutant, copy, began, tests = running.pop(pid)
        _end_group(pid)
        shutil.copy2(copy.parent / "saved", copy / mutant.file)
        free.append(copy)
        by = copy.parent / "killed_by"
        done(
            mutant,
            status=_verdict(status),
            by=by.read_text() if by.exists() else "",
            tests=tests,
            seconds=round(time.time() - began, 1),
        )


def _verdict(status: int) -> str:
    if os.WIFSIGNALED(status):
        timers = (signal.SIGALRM, signal.SIGPROF)
        return "timeout" if os.WTERMSIG(status) in timers else "killed"
    return "killed" if os.WEXITSTATUS(status) else "survived"


def _end_group(pid: int) -> None:
    """Kill processes that the tests have left running."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _fork(copy: Path, tests: dict) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        code = _run(copy, tests)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _run(copy: Path, tests: dict) -> int:
    """Return the exit status of the tests; without tests, only collect."""
    (copy.parent / "killed_by").unlink(missing_ok=True)
    log = os.open(copy.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short"]
    options.append(f"--basetemp={copy.parent / 'tmp'}")
    if not tests:
        return int(pytest.main(["tests", *options, "--collect-only", "-m", "not system"]))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    limit(GRACE)  # importing
    files = list(dict.fromkeys("tests/" + test.split("::")[0] for test in tests))
    return int(pytest.main([*files, *options], plugins=[_Chosen(tests, copy.parent / "killed_by")]))


def limit(seconds: float) -> None:
    """Limit CPU seconds, and waiting seconds to a multiple of them."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


class _Chosen:
    """Pytest plugin that runs only the chosen tests, in order, each with a time limit."""

    def __init__(self, tests: dict, killed_by: Path) -> None:
        self._tests, self._killed_by = tests, killed_by

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self._tests if test in found]

    def pytest_runtest_setup(self, item):
        self._killed_by.write_text(item.nodeid)
        limit(GRACE + PATIENCE * self._tests[item.nodeid])

    def pytest_runtest_logreport(self, report):
        if report.failed:
            os._exit(1)

    def pytest_sessionfinish(self, exitstatus):
        limit(GRACE)
        if exitstatus == 0:
            self._killed_by.unlink()
