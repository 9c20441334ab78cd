"""Arguments of the scripts in examples/: examples/flags.sh."""

import subprocess

import pytest
import recipes

SCRIPT = """#!/usr/bin/env bash
# What it does.
#
#   bash script.sh WORK SAVE
set -euo pipefail
# not the head
source "$FLAGS"
read_arguments WORK "[SYSTEM...]" --corpus=news --stages="train score" --window-size= {more} -- "$@"
printf '%s\\n' "$work" "${{systems[*]}}" "$corpus" "$stages" "$window_size" "${{more[@]}}"
"""
DEFAULTS = ["W", "", "news", "train score", ""]


@pytest.fixture
def script(tmp_path):
    """Function that runs a script with arguments; its other options go to fairseq-train."""

    def run(*arguments, more='"[options of fairseq-train]"', end=""):
        path = tmp_path / "script.sh"
        path.write_text(SCRIPT.format(more=more) + end)
        return subprocess.run(
            ["bash", str(path), *arguments],
            env={"PATH": "/usr/bin:/bin", "FLAGS": str(recipes.EXAMPLES / "flags.sh")},
            capture_output=True,
            text=True,
        )

    return run


def given(done) -> list:
    assert done.returncode == 0 and not done.stderr
    return done.stdout.split("\n")[:-1]


def refused(done) -> str:
    assert done.returncode == 1 and not done.stdout
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("arguments", [[], ["--corpus", "ted"], ["--fp16"], [""]])
def test_a_missing_argument(script, arguments):
    assert refused(script(*arguments)) == (
        'usage: bash script.sh WORK [SYSTEM...] [--corpus news] [--stages "train score"] '
        "[--window-size VALUE] [options of fairseq-train]"
    )


def test_defaults(script):
    assert given(script("W")) == DEFAULTS


@pytest.mark.parametrize(
    "arguments",
    [
        "W a b --corpus ted --window-size 4 --lr 0.1 --fp16",
        "W a b --lr 0.1 --window-size 4 --fp16 --corpus ted",
        "W a b --lr 0.1 --fp16 --corpus=ted --window-size=4",
        "W a b --corpus os --lr 0.1 --fp16 --corpus ted --window-size -1 --window-size 4",
    ],
)
def test_options_in_any_order(script, arguments):
    found = given(script(*arguments.split()))
    assert found == ["W", "a b", "ted", "train score", "4", "--lr", "0.1", "--fp16"]


def test_other_options_keep_their_values(script):
    more = ["--adam-betas", "(0.9, 0.98)", "-s", "de", "--path=a b", "--corpora", "x", ""]
    assert given(script("W", *more, "--corpus", "ted")) == ["W", "", "ted", *DEFAULTS[3:], *more]


def test_values_that_look_like_options(script):
    assert given(script("W", "--stages=--x 1=2"))[3] == "--x 1=2"


@pytest.mark.parametrize("arguments", [["--corpus"], ["--corpus", "--fp16"]])
def test_a_flag_without_value(script, arguments):
    message = "error: --corpus needs a value; usage: bash script.sh WORK "
    assert refused(script("W", *arguments)).startswith(message)


def test_other_options_are_refused_where_none_are_read(script):
    message = "error: unknown option --lr; usage: bash script.sh WORK "
    assert refused(script("W", "--lr", "1", more="")).startswith(message)


def test_one_argument_too_many(tmp_path):
    script = recipes.EXAMPLES / "maruf2018_memnet" / "prepare_ted.sh"
    done = subprocess.run(
        ["bash", str(script), "a", "b", "c"], cwd=tmp_path, capture_output=True, text=True
    )
    wanted = "error: unexpected argument c; usage: bash prepare_ted.sh DOWNLOADS WORK"
    assert refused(done) == wanted and not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["--help"], ["W", "--lr", "1", "--help"]])
def test_help_is_the_head_of_the_script(script, arguments):
    assert given(script(*arguments)) == ["What it does.", "", "  bash script.sh WORK SAVE"]


@pytest.mark.parametrize(
    "path",
    sorted(recipes.EXAMPLES.glob("**/*.sh")),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_heads_name_all_flags(path):
    """With the defaults that the script has."""
    text = path.read_text()
    if "read_arguments" in text and path.name != "flags.sh":
        head = text.split("\nset -euo")[0]
        assert f"#   bash {path.name} " in head
        for flag in recipes.flags(str(path.relative_to(recipes.EXAMPLES))):
            assert flag in head, flag


@pytest.mark.parametrize(
    "options, noted", [((), True), (("--finetune-from-model", "m"), False), (("--lr", "1"), True)]
)
def test_a_second_stage_without_the_first_is_noted(script, options, noted):
    done = script("W", *options, end="system=both; note_start")
    note = "note: both starts from random parameters; for parameters of the first stage give "
    note += "--finetune-from-model CHECKPOINT\n"
    assert (done.returncode, done.stderr) == (0, note if noted else "")


@pytest.mark.parametrize("options", [("--beam", "4", "--gen-subset", "valid"), ("--gen-subset=v",)])
def test_options_that_the_script_sets(script, options):
    end = "refuse --results-path --gen-subset >&2\n"
    done = script("W", *options, end=end)
    wanted = "error: script.sh does not accept --gen-subset; leave it out\n"
    assert (done.returncode, done.stderr) == (1, wanted)
    assert script("W", "--beam", "4", end=end).returncode == 0
