"""The command ``fairseq-docmt``."""

import gzip
import os
import re
import subprocess
import sys

import pytest
import tiny
from long_tests import LONG

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError


def test_the_directory_for_user_dir():
    for words in ([], ["user-dir"]):
        command = [sys.executable, "-m", "fairseq_docmt", *words]
        found = subprocess.run(command, capture_output=True, text=True, check=True)
        assert found.stdout == f"{tiny.USER_DIR}\n"
    found = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("usage: fairseq-docmt user-dir ")


def test_the_directory_for_user_dir_has_no_options():
    with pytest.raises(UserError, match="user-dir takes no arguments; leave out x y"):
        tiny.run_main(command_line.main, "user-dir", "x", "y")


def test_the_list_of_commands():
    listed = tiny.run_main(command_line.main)
    assert listed == tiny.run_main(command_line.main, "--help")
    lines = [line.split(maxsplit=1) for line in listed.splitlines() if line.startswith("  ")]
    assert [name for name, _ in lines] == [*command_line.COMMANDS]
    assert all(line[-1] in ".?" for _, line in lines)


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_help(name, capsys, monkeypatch):
    """It has an example and fits on a screen of 50 lines, 100 columns wide."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", ["fairseq-docmt", name, "--help"])
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 50 and any(map(re.compile(" *(fairseq-docmt|python) ").match, lines))


def test_two_dashes_are_no_value():
    """argparse of Python 3.8 to 3.12 takes them for a list."""
    with pytest.raises(UserError, match="^--seed=--: an option cannot have the value --; give an"):
        tiny.run_main(command_line.main, "mbr", "x", "--seed=--")


def test_an_unknown_command():
    message = "^metric is no command; do you mean metrics[?]$"
    with pytest.raises(UserError, match=message):
        tiny.run_main(command_line.main, "metric")
    with pytest.raises(
        UserError, match="^xyz is no command; choose from translate, export-ctranslate2, metrics, "
    ):
        tiny.run_main(command_line.main, "xyz")


def test_a_command_runs(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("w1 w2 w3 w4\n")
    options = ["--metrics", "s-bleu", "--reference", tmp_path / "a", f"x={tmp_path / 'b'}"]
    assert "100.0" in tiny.run_main(command_line.main, "metrics", *options)


def test_preparation_needs_a_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(command_line, "PACKAGE", tmp_path / "fairseq_docmt")
    with pytest.raises(UserError, match="prepare.py is missing; run prepare in a checkout"):
        tiny.run_main(command_line.main, "prepare")


@pytest.mark.parametrize(
    "words",
    [
        ["user-dir"],
        ["--help"],
        ["metrics", "--metrics", "s-bleu,chrf", "--reference", "FILE", "x=FILE"],
        ["convert", "--out", "OUT", "FILE"],
        ["mbr", "--source", "FILE", "--out", "OUT", "x=FILE", "y=FILE"],
    ],
    ids=lambda words: words[0],
)
def test_commands_without_a_model_load_neither_fairseq_nor_torch(words, tmp_path):
    """Importing the two takes seconds."""
    (tmp_path / "text").write_text("w1 w2 w3 w4\n")
    paths = {"FILE": str(tmp_path / "text"), "OUT": str(tmp_path / "out")}
    for name, path in paths.items():
        words = [word.replace(name, path) for word in words]
    program = (
        "import sys; sys.argv[0] = '-m'\n"
        "from fairseq_docmt import command_line\n"
        "command_line.main()\n"
        "slow = {'fairseq', 'torch', 'scipy', 'matplotlib', 'spacy'} & {*sys.modules}\n"
        "sys.exit(f'loaded {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@LONG
def test_commands_with_a_model_register_the_systems():
    program = (
        "import os, sys\n"
        "from fairseq.tasks import TASK_REGISTRY\n"  # once for all, which takes seconds
        "for name in ('-m', 'fairseq-docmt', 'python'):\n"
        "    if os.fork() == 0:\n"
        "        sys.argv[0] = name\n"
        "        from fairseq_docmt import register; register()\n"
        "        os._exit('sliding_window_translation' not in TASK_REGISTRY)\n"
        "    assert os.wait()[1] == 0, name\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path):
    for name in ("a", "b", "r"):
        (tmp_path / name).write_text("w1 w2 w3 w4\n")
    return tmp_path


def run(*words):
    return tiny.run_main(command_line.main, *map(str, words))


@pytest.mark.parametrize(
    "words",
    [
        "convert a --out a",
        "convert a --to text --out c --write-docids a",
        "metrics --reference r x=a --out a",
        "metrics --reference r x=a --out r",
        "report --reference r x=a --out a",
        "mbr --source r x=a y=b --out b",
        "rerank --source r --score length x=a y=b --out a",
        "dropped-pronouns --source r --reference r --from-reference x=a --tags a",
        "metrics --reference r x=a#text --out a",
    ],
)
def test_what_is_read_is_not_written(texts, monkeypatch, words):
    monkeypatch.chdir(texts)
    with pytest.raises(
        UserError, match="^--[a-z-]+ [abr] is read, too; give another file to write"
    ):
        run(*words.split())
    assert all((texts / name).read_text() == "w1 w2 w3 w4\n" for name in "abr")
    (texts / "link").symlink_to("a")
    with pytest.raises(UserError, match="is read, too"):
        run("convert", "link", "--out", "a")


def test_scores_of_rerank_are_not_overwritten(texts, monkeypatch):
    monkeypatch.chdir(texts)
    for words in ("--out a", "--out o --list a"):
        with pytest.raises(UserError, match="a is read, too"):
            run(*f"rerank x=b y=b --source r --score length --score a:0.5 {words}".split())
    assert (texts / "a").read_text() == "w1 w2 w3 w4\n"


def test_two_outputs_have_two_names(texts, monkeypatch):
    monkeypatch.chdir(texts)
    for words in (
        "convert a --to text --out o --write-docids o",
        "rerank --source r --score length x=a y=b --out o --list ./o",
    ):
        with pytest.raises(UserError, match="are both .*o; give two files"):
            run(*words.split())
    assert not (texts / "o").exists()


@pytest.mark.parametrize(
    "words, option",
    [
        ("convert a --out =", "out"),
        ("metrics --reference = x=a", None),
        ("metrics --reference r x=a --out =", "out"),
        ("metrics --reference r --source = x=a", "source"),
    ],
)
def test_empty_names(texts, monkeypatch, words, option):
    monkeypatch.chdir(texts)
    words = ["" if word == "=" else word for word in words.split()]
    with pytest.raises(
        UserError, match=f"--{option} is empty" if option else "--reference is empty"
    ):
        run(*words)


def test_outputs_are_not_renamed_over_links_and_pipes(texts):
    """Nor is a device replaced."""
    link, target, pipe = texts / "link", texts / "target", texts / "pipe"
    link.symlink_to(target)
    run("convert", texts / "a", "--to", "text", "--out", link)
    assert link.is_symlink() and target.read_text() == "w1 w2 w3 w4\n"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    run("convert", texts / "a", "--to", "text", "--out", pipe)
    assert reader.communicate(timeout=60)[0] == b"w1 w2 w3 w4\n" and pipe.is_fifo()
    assert run("convert", texts / "a", "--to", "text", "--out", "-") == (texts / "a").read_text()
    run("convert", texts / "a", "--to", "text", "--out", texts / "z.gz")
    assert gzip.decompress((texts / "z.gz").read_bytes()) == b"w1 w2 w3 w4\n"
