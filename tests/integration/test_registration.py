"""The package is registered once, under any name and import order."""

import os
import subprocess
import sys

import pytest
import tiny

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
{before}
from argparse import Namespace
from fairseq import utils
utils.import_user_module(Namespace(user_dir={user_dir!r}))
from fairseq.tasks import TASK_REGISTRY
names = {{"sliding_window_translation", "full_document_translation"}}
assert names <= set(TASK_REGISTRY), sorted(TASK_REGISTRY)
assert all(TASK_REGISTRY[n].__module__ == f"fairseq_docmt.tasks.{{n}}" for n in names)
{after}
print("registered")
"""


def run(user_dir, cwd, before="", after=""):
    program = PROGRAM.format(root=str(tiny.ROOT), user_dir=user_dir, before=before, after=after)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=cwd, capture_output=True, text=True
    )


@pytest.mark.parametrize("before", ["", "import fairseq_docmt", "import fairseq_docmt.tasks"])
@pytest.mark.parametrize("user_dir", [tiny.USER_DIR, tiny.USER_DIR + "/", "fairseq_docmt"])
def test_paths_and_earlier_imports(before, user_dir):
    result = run(user_dir, cwd=tiny.ROOT, before=before)
    assert result.stdout.endswith("registered\n"), result.stderr[-1000:]


def test_spawned_workers_register_too(tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import torch.multiprocessing as mp\n"
        "import fairseq_docmt\n"
        "def work(queue):\n"
        "    from fairseq.tasks import TASK_REGISTRY\n"
        "    queue.put('full_document_translation' in TASK_REGISTRY)\n"
        "if __name__ == '__main__':\n"
        "    context = mp.get_context('spawn')\n"
        "    queue = context.SimpleQueue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    print(queue.get())\n"
        "    process.join()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tiny.ROOT)}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(worker)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.stdout == "True\n", result.stderr[-1000:]


def test_the_module_prints_its_directory(tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fairseq_docmt"],
        cwd=tiny.ROOT,
        capture_output=True,
        text=True,
    )
    assert result.stdout == tiny.USER_DIR + "\n"
