"""Early stopping by consistency: train_consistency.sh with stub programs."""

import json
import os
import subprocess
import sys

import best_epoch
import pytest
import recipes
from long_tests import LONG

#: mean accuracy of the two dev sets after each epoch: the best is the third, whose first set is not
ACCURACIES = {1: (0.5, 0.5), 2: (0.9, 0.3), 3: (0.6, 0.7), 4: (0.7, 0.6), 5: (0.5, 0.6)}
TRAIN = """#!/usr/bin/env bash
while [ "$1" != --max-epoch ]; do shift; done
echo $2 >> trained
mkdir -p SAVE
echo epoch $2 > SAVE/checkpoint$2.pt
rm -f SAVE/checkpoint$(($2 - 11)).pt
if [ -e stop$2 ]; then rm stop$2; exit 1; fi
"""
SCORE = """#!{python}
import json, sys
where = sys.argv.index("--out") + 1
epoch = int(sys.argv[where].split(".")[-2])
assert open(sys.argv[sys.argv.index("--path") + 1]).read() == f"epoch {{epoch}}\\n"
pair = {accuracies}.get(epoch, (0.1, 0.1))
with open(sys.argv[where], "w") as out:
    json.dump({{n: {{"all": {{"accuracy": x}}}} for n, x in zip("ab", pair)}}, out)
"""
PYTHON = """#!{python}
import os, sys
if sys.argv[1] != "-m":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def train(tmp_path):
    """Run the script in a new folder and return its exit status."""
    (tmp_path / "bin").mkdir()
    programs = {"fairseq-train": TRAIN, "fairseq-docmt": SCORE, "python": PYTHON}
    for name, text in programs.items():
        text = text.replace("{python}", sys.executable).replace("{accuracies}", str(ACCURACIES))
        text = text.replace("{{", "{").replace("}}", "}")
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)

    (tmp_path / "SETS").mkdir()
    for name in ("deixis", "lex_cohesion"):
        (tmp_path / "SETS" / f"{name}_dev.json").touch()

    def run(arguments="WORK rfa-sgate SAVE --sets SETS"):
        script = recipes.EXAMPLES / "wu2022_rfa" / "train_consistency.sh"
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        command = ["bash", str(script), *arguments.split()]
        environment = {**os.environ, "PATH": path}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize("interrupted", [pytest.param(False, marks=LONG), True])
def test_ten_epochs_after_the_best(train, tmp_path, interrupted):
    if interrupted:
        assert train("WORK rfaa SAVE --sets SETS").returncode == 1
        (tmp_path / "stop5").touch()
        assert train().returncode == 1
    done = train()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "best epoch: 3"
    assert (tmp_path / "SAVE" / "checkpoint_best_consistency.pt").read_text() == "epoch 3\n"
    # A finished folder is only for the same command.
    for arguments in ("WORK rfa SAVE --sets SETS", "WORK rfa-sgate SAVE --sets SETS --fp16"):
        done = train(arguments)
        assert (done.returncode, done.stdout) == (1, "")
        made = "WORK rfa-sgate --sets SETS --window-size group"
        wanted = f"error: SAVE was made with other options ({made}); give another folder\n"
        assert done.stderr == wanted
    trained = [int(line) for line in (tmp_path / "trained").read_text().split()]
    assert trained == [*range(1, 6), *([5] if interrupted else []), *range(6, 14)]


def test_sets_are_looked_for_before_training(train, tmp_path):
    (tmp_path / "SETS" / "deixis_dev.json").unlink()
    done = train()
    message = "error: test set SETS/deixis_dev.json not found; give --sets\n"
    assert (done.returncode, done.stderr) == (1, message)
    assert not (tmp_path / "trained").exists()


def test_what_ends_within_an_epoch_is_refused(train):
    done = train("WORK rfa-sgate SAVE --max-update 6")
    wanted = "error: train_consistency.sh does not accept --max-update; leave it out\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", wanted)


def test_a_folder_without_results(tmp_path):
    """Other files of the same kind of name are no results of an epoch."""
    (tmp_path / "consistency.test.json").write_text("{}")
    script = recipes.EXAMPLES / "wu2022_rfa" / "best_epoch.py"
    command = [sys.executable, str(script), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1 and not ended.stdout
    assert ended.stderr == (
        f"error: {tmp_path} has no results of consistency.sh (consistency.EPOCH.json)\n"
    )
    (tmp_path / "consistency.1.json").write_text('{"deixis": {"all": {}}}')
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1 and not ended.stdout
    damaged = f"error: {tmp_path}/consistency.1.json is damaged; run consistency.sh again for this"
    assert ended.stderr == f"{damaged} epoch\n"


@pytest.mark.parametrize(
    "second, said",
    [
        ({"a": 0.5, "b": 0.5}, None),
        ({"a": 0.9}, "consistency.1.json and .*consistency.2.json are of different sets; run cons"),
        ({"a": 0.9, "c": 0.9}, "are of different sets; run consistency.sh for both"),
        ({"a": float("nan"), "b": 0.9}, "consistency.2.json is damaged"),
        ({"a": -0.1, "b": 0.9}, "consistency.2.json is damaged"),
        ({}, "consistency.2.json is damaged"),
    ],
)
def test_only_epochs_with_results_on_the_same_sets_are_compared(tmp_path, second, said):
    for epoch, sets in ((1, {"a": 0.3, "b": 0.6}), (2, second)):
        found = {name: {"all": {"accuracy": accuracy}} for name, accuracy in sets.items()}
        (tmp_path / f"consistency.{epoch}.json").write_text(json.dumps(found))
    if said is None:
        assert best_epoch.best_epoch(tmp_path) == 2
    else:
        with pytest.raises(SystemExit, match=said):
            best_epoch.best_epoch(tmp_path)
