"""Worker processes end with the process that started them, however it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest
from long_tests import long

FORKED = """
import os, time
from fairseq_docmt._processes import forked_map

def work(number):
    print(os.getpid(), flush=True)
    time.sleep(600)

forked_map(work, [1])
"""
SPAWNED = """
import multiprocessing, sys, time
sys.argv[0] = "fairseq-docmt translate"
from fairseq_docmt.translate.engine import running

if __name__ == "__main__":
    with running("no settings", 2) as translate:
        results = translate([[(0, "a document")]])
        print(multiprocessing.active_children()[0].pid, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize(
    "by, program",
    [
        (signal.SIGKILL, SPAWNED),
        long(signal.SIGKILL, FORKED),
        long(signal.SIGTERM, SPAWNED),
        long(signal.SIGTERM, FORKED),
    ],
    ids=["killed translate", "killed metrics", "stopped translate", "stopped metrics"],
)
def test_workers_end_with_their_parent(program, by, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(program)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as parent:
        worker = int(parent.stdout.readline())
        time.sleep(0.5)
        assert is_running(worker)
        parent.send_signal(by)
    for _ in range(200):
        if not is_running(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    raise AssertionError("the worker goes on")


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
