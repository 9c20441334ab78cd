"""The package is registered once, under any name and import order."""

import importlib.util
import os
import shutil
import subprocess
import sys
from unittest import mock

import pytest
import tiny

from fairseq_docmt.errors import UserError

#: imports fairseq once, and goes on in a process of its own for each way to come to the package
PROGRAM = """
import os, sys
from argparse import Namespace
from fairseq import utils
from fairseq.tasks import TASK_REGISTRY
names = {"sliding_window_translation", "full_document_translation"}
assert not names & set(TASK_REGISTRY) and "fairseq_docmt" not in sys.modules
sys.path.insert(0, sys.argv[1])
for user_dir in sys.argv[2:]:
    for before in ("", "import fairseq_docmt", "import fairseq_docmt.tasks"):
        if os.fork() == 0:
            exec(before)
            utils.import_user_module(Namespace(user_dir=user_dir))
            assert names <= set(TASK_REGISTRY), sorted(TASK_REGISTRY)
            for name in names:
                assert TASK_REGISTRY[name].__module__ == f"fairseq_docmt.tasks.{name}"
            print(user_dir, before, flush=True)
            os._exit(0)
        assert os.wait()[1] == 0, (user_dir, before)
"""


@pytest.mark.parametrize(
    "paths",
    [
        ["fairseq_docmt"],
        pytest.param([tiny.USER_DIR, tiny.USER_DIR + "/"], marks=pytest.mark.long),
    ],
    ids=["relative", "absolute"],
)
def test_paths_and_earlier_imports(paths, tmp_path):
    link = tmp_path / "plugin"
    link.symlink_to(tiny.USER_DIR)
    paths = [*paths, str(link)]
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tiny.ROOT), *paths],
        cwd=tiny.ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr[-1000:]
    assert len(result.stdout.splitlines()) == 3 * len(paths)


@pytest.mark.long  # three processes that import everything
def test_spawned_workers_register_too(tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import torch.multiprocessing as mp\n"
        "if __name__ != '__main__':\n"  # in the worker; importing takes seconds
        "    import fairseq_docmt\n"
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


def test_a_copy_under_another_name_is_refused(tmp_path):
    copy = tmp_path / "plugin"
    copy.mkdir()
    shutil.copy(f"{tiny.USER_DIR}/__init__.py", copy)
    spec = importlib.util.spec_from_file_location(
        "plugin", copy / "__init__.py", submodule_search_locations=[str(copy)]
    )
    with mock.patch.object(sys, "path", list(sys.path)):
        with pytest.raises(UserError, match="plugin is a copy of the package under another name"):
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
