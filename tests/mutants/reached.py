"""Pytest plugin (``-p reached``) that records the lines reached and the time taken by each test.

A line that only a fixture of a session or module reaches counts as reached by all tests that take
the fixture.  Lines reached in other processes are not seen.
"""

import importlib
import json
import os
import pkgutil
import time
from collections import defaultdict
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["MUTANTS_REACHED"])
ROOT = Path.cwd()
SCRIPTS = ROOT / "data_prep"
_coverage = coverage.Coverage(data_file=None, source=[str(ROOT / "fairseq_docmt"), str(SCRIPTS)])
_seconds, _fixtures, _passed = defaultdict(float), {}, set()
_running = [""]  # names of the test and the fixtures that run, the innermost last


def _clock() -> float:
    """CPU seconds, which do not depend on other work on the machine."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _enter(name: str) -> float:
    _running.append(name)
    _coverage.switch_context(name)
    return _clock()


def _leave(since: float) -> float:
    _running.pop()
    _coverage.switch_context(_running[-1])
    return _clock() - since


def pytest_sessionstart(session):
    """Do not count lines that run at import."""
    _coverage.start()
    package = importlib.import_module("fairseq_docmt")
    for module in pkgutil.walk_packages(package.__path__, "fairseq_docmt."):
        if "__main__" not in module.name and not module.name.endswith("_step_kernels"):
            importlib.import_module(module.name)
    for script in SCRIPTS.glob("*.py"):
        importlib.import_module(script.stem)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    since = _enter(item.nodeid)
    inner = sum(_seconds.values())
    yield
    # Shared fixtures are counted separately.
    shared = sum(_seconds.values()) - inner
    _seconds[item.nodeid] = _leave(since) - shared
    names = [name for name in item.fixturenames if f"fixture {name}" in _seconds]
    _fixtures[item.nodeid] = [f"fixture {name}" for name in names]


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef):
    if fixturedef.scope == "function":
        yield
        return
    name = f"fixture {fixturedef.argname}"
    inner = sum(_seconds.values())
    since = _enter(name)
    yield
    shared = sum(_seconds.values()) - inner
    _seconds[name] += _leave(since) - shared


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish(session):
    _coverage.stop()
    if not _fixtures:  # the process that hands tests to others
        return
    data = _coverage.get_data()
    lines = {
        str(Path(file).relative_to(ROOT)): data.contexts_by_lineno(file)
        for file in data.measured_files()
    }
    tests = {test: _fixtures[test] for test in _passed if test in _fixtures}
    record = {"tests": tests, "seconds": dict(_seconds), "lines": lines}
    (FOLDER / f"reached.{os.getpid()}.json").write_text(json.dumps(record))
