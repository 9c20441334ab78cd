"""run.sh from raw text to tables, with tiny models: systems of both kinds, cut contexts, resuming.

The commands of all systems are compared in tests/integration/test_recipes.py.
"""

import json
import random
import shutil
from pathlib import Path

import pytest
import tables
import tiny
from commands import Shell

NAMES = "base base2 control2 memory-both2 memory-control2 lst rnnsearch rnn-control memnet-both"
RUN = f'bash run.sh CORPUS WORK {NAMES} --prepare="--bpe-operations 50"'


def write_corpus(folder: Path) -> None:
    """Documents of random words, and a copy of one source with a marked pronoun in each line."""
    folder.mkdir()
    draw = random.Random(1)
    words = {"zh": "我们 你们 走吧 看见 书架 这是 那里", "en": "I you go away see this book it"}
    for name, lengths in (
        ("train", [6] * 12),
        ("valid", [8] * 2),
        ("test", [4, 3]),
        ("zpdev", [3, 4]),
    ):
        for language, text in words.items():
            lines = [[" ".join(draw.choices(text.split(), k=4)) for _ in range(n)] for n in lengths]
            (folder / f"{name}.{language}").write_text(tiny.text_of(lines), encoding="utf-8")
    marked = (folder / "zpdev.zh").read_text(encoding="utf-8").splitlines()
    marked = [f"<我>_S{line}" if line else "" for line in marked]
    (folder / "zpdev.zp.zh").write_text("\n".join(marked) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Folder of the recipe, and a function that runs commands there."""
    shell = Shell(tmp_path_factory.mktemp("run"))
    folder = shell.top / "examples" / "tvsub_zh_en"

    def run(command: str):
        done = shell.run(command, str(folder), COMMIT="c")
        assert done.returncode == 0, f"{command}\n{(done.stdout + done.stderr)[-3000:]}"

    try:
        write_corpus(folder / "CORPUS")
        run(RUN)
        yield folder, run
    finally:
        shell.close()


def records(folder: Path) -> dict:
    """Return when each record was written."""
    return {path: path.stat().st_mtime_ns for path in (folder / "WORK").glob("**/*.json")}


@pytest.mark.long  # a few minutes; test_recipes.py has a dry run
def test_every_stage_of_every_system(recipe):
    folder, _ = recipe
    systems = json.loads((folder / "WORK" / "results.json").read_text())["systems"]
    assert set(systems) == set(NAMES.split())
    for name, system in systems.items():
        scores, (decoding, *_) = system["scores"], system["decodings"]
        assert len(system["curve"]) >= 1 and system["runs"]["train"][-1]["commit"] == "c"
        for part in ("test", "zpdev"):
            found = tables.metric(scores[part], "s-BLEU")["scores"]
            assert {f"{name}-{decoding}-{beam}" for beam in (4, 1)} <= set(found)
        reads = name in ("memory-both2", "lst", "memnet-both")
        assert all((part in scores) == reads for part in ("usage", "contexts", "context-pronouns"))
    for name, control in (("memory-both2", "control2"), ("memnet-both", "rnn-control")):
        found = tables.metric(systems[name]["scores"]["test"], "s-BLEU")
        assert next(iter(found["scores"])) == control
    cut = systems["memory-control2"]["scores"]
    for part in ("test", "zpdev"):
        assert {f"with-context-{part}", f"with-gold-{part}"} <= set(cut)
    gold = systems["memory-both2"]["runs"]["gold/test-4"][-1]["command"]
    assert "--gold-context" in gold
    command = systems["memnet-both"]["runs"]["train"][-1]["command"]
    assert command[command.index("--drafts") + 1] == "WORK/rnnsearch/drafts"


@pytest.mark.long
def test_only_what_is_missing_is_done_again(recipe):
    folder, run = recipe
    before = records(folder)
    missing = folder / "WORK" / "lst" / "sequential"
    shutil.rmtree(missing)
    run(RUN)
    after = records(folder)
    written = {path for path in after if after[path] != before[path]}
    again = {path for path in before if missing in path.parents}
    assert before.keys() == after.keys() and len(again) == 4
    assert written == {*again, folder / "WORK" / "results.json"}


@pytest.mark.long
def test_tables_of_what_was_run(recipe):
    folder, run = recipe
    for name in ("results.json", "repeated.json"):
        (folder / name).unlink()
    shutil.copy(folder / "WORK" / "results.json", folder)
    run("python tables.py")
    readme = (folder / "results.md").read_text(encoding="utf-8")
    begin, end = (readme.index(mark) for mark in tables.MARKS)
    rows = [line.split("|")[1].strip() for line in readme[begin:end].splitlines() if "|" in line]
    assert rows.count("lst") == 4  # two ways of decoding, context, training
    assert rows.count("memory-control2") == 2
    assert rows.count("zpdev") == 2  # its own translations as context, and references
