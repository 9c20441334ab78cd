"""Arguments of the scripts in examples/: examples/flags.sh."""

import re
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
            assert flag.name in head, flag


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


@pytest.mark.parametrize(
    "script", [name for name in recipes.SCRIPTS if re.search("/(generate|make_drafts).sh", name)]
)
def test_a_recipe_that_reads_its_translations_needs_all_of_them(script, tmp_path):
    recipes.write_files(tmp_path)
    run = next(run for run in recipes.RUNS if run.script == script)
    name = script.split("/")[1]
    wanted = (
        "--gen-subset --results-path --quiet --score-reference --num-shards --shard-id "
        "--distributed-world-size --distributed-rank"
    )
    for option in wanted.split():
        done = recipes.run_in(tmp_path, script, *run.arguments.split(), option, "x")
        message = f"error: {name} does not accept {option}; leave it out\n"
        assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.parametrize("option", ["--seed", "--window-size"])
def test_round_trips_are_of_single_sentences_with_seeds_of_their_own(tmp_path, option):
    recipes.write_files(tmp_path)
    command = ["voita2019_docrepair/round_trips.sh", *"MONO WORK DATA BACK FORTH".split()]
    done = recipes.run_in(tmp_path, *command, option, "5")
    wanted = f"error: round_trips.sh does not accept {option}; leave it out\n"
    assert (done.returncode, done.stderr) == (1, wanted)


#: values that are refused, by what a value has to be, and what is said
NUMBERS = {
    "count": ("x 0 -1 1.5 08", "give a whole number from 1"),
    "number": ("x -1 1.5 08", "give a whole number from 0"),
    "positive": ("x 0 0.0 -1 . 0,5", "give a number above 0"),
    "share": ("x 2 1.5 -1 . 0,5", "give a number from 0 to 1"),
}
#: flags that need to say what their values have to be, whatever their default looks like
DECLARED = {"--window-size", "--target-tokens", "--test-sets", "--limit", "--stages", "--device"}
WITH_FLAGS = [
    str(path.relative_to(recipes.EXAMPLES))
    for path in sorted(recipes.EXAMPLES.glob("**/*.sh"))
    if re.search("^read_arguments ", path.read_text(), re.M)
]


def values_of(flag):
    """Refused values of a flag, and what is said of each."""
    if not flag.kind:
        return {}
    kind = flag.kind.split(":")[1]
    values, wanted = NUMBERS.get(kind, (f"x -1 {kind}", "choose "))
    return {value: f"error: {flag.name} is {value}; {wanted}" for value in values.split()}


@pytest.mark.parametrize("name", WITH_FLAGS)
def test_bad_values_of_every_flag_are_refused(name, tmp_path):
    """Those that look like numbers have to be declared as numbers."""
    script = recipes.EXAMPLES / name
    declared = re.search(r"^read_arguments (.*?)(?: --\w| -- |$)", script.read_text(), re.M)[1]
    places = [word for word in re.findall(r'"[^"]*"|\S+', declared) if word[0] not in '"\\']
    if name == "context_probe/run_options.sh":
        places.append("window")
    for flag in recipes.flags(name):
        assert flag.kind or not (flag.name in DECLARED or re.search(r"\d", flag.default)), flag
        for value, message in values_of(flag).items():
            done = subprocess.run(
                ["bash", str(script), *places, flag.name, value],
                cwd=tmp_path,
                capture_output=True,
                text=True,
            )
            assert refused(done).startswith(message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind, values",
    [
        ("count", "1 10 37500000"),
        ("number", "0 1 20"),
        ("positive", "1 0.5 .5 10"),
        ("share", "0 1 1.0 0.1 .1"),
        ("cpu/cuda", "cpu cuda"),
        ("segment", "segment"),
    ],
)
def test_values_that_are_taken(script, kind, values):
    for value in values.split():
        assert given(script("W", "--value", value, more=f"--value:{kind}=")) == DEFAULTS


def test_lists_of_values(script):
    """In one word or in several; spaces do not count."""

    def run(*arguments):
        more = "--parts...:train/score=train --beams...:count=4"
        return script("W", *arguments, more=more, end='echo "$parts|$beams"')

    assert given(run())[-1] == "train|4"
    assert given(run("--parts= score\n train ", "--beams", "1  4"))[-1] == "score train|1 4"
    for arguments, message in (
        (["--parts=train,score"], "--parts is train,score; put spaces where it has commas"),
        (["--parts=train test"], "--parts is test; choose train or score"),
        (["--parts=train score train"], "--parts has train twice; give it once"),
        (["--parts= "], "--parts needs a value; usage: bash script.sh WORK [SYSTEM...] "),
        (["--beams", "4 x"], "--beams is x; give a whole number from 1"),
        (["a", "a"], "SYSTEM has a twice; give it once"),
    ):
        assert refused(run(*arguments)).startswith(f"error: {message}")


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("run_cache", "W 25 x", "SLOT is x; give a whole number from 0"),
        ("run_documents", "W lst x", "SYSTEM is x; choose transformer, lst, group, sentences or"),
        ("run_memnet", "W x", "SYSTEM is x; choose source, target or both"),
        ("run_memnet", "W --from NOWHERE", "--from is NOWHERE, which is no folder"),
        ("run_memnet", "W --from /", "--from: / has no bin/dict.src.txt; train it there first"),
        ("run_one_sided", "W both/source", "SYSTEM is both/source; choose both, source or target"),
        ("run_options", "W window x", "SYSTEM is x; choose window, stride2, "),
        ("run_stream", "W both multi-encoder-x", "SYSTEM is multi-encoder-x; choose both, "),
    ],
)
def test_systems_of_the_probe_are_looked_at_first(name, arguments, message, tmp_path):
    done = subprocess.run(
        ["bash", str(recipes.EXAMPLES / "context_probe" / f"{name}.sh"), *arguments.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert refused(done).startswith(f"error: {message}") and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("maruf2018_memnet/train.sh", "WORK base-output SAVE"),
        ("maruf2018_memnet/generate.sh", "WORK source-x MODEL OUT"),
        ("tu2018_cache/generate.sh", "WORK cache-x MODEL OUT"),
        ("li2020_multi_encoder/generate.sh", "WORK inside-x MODEL OUT"),
    ],
)
def test_names_that_begin_or_end_like_a_system(name, arguments, tmp_path):
    recipes.write_files(tmp_path)
    done = recipes.run_in(tmp_path, name, *arguments.split())
    system = arguments.split()[1]
    script = name.split("/")[1]
    assert refused(done) == f"error: unknown system {system}; see bash {script} --help"
