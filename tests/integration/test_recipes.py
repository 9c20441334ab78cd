"""The parsers of fairseq accept every command of the recipes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import recipes
import results
from long_tests import LONG, long, long_but_for

STOCK = ("fairseq-train", "fairseq-generate", "fairseq-interactive", "fairseq-preprocess")
TRANSLATE = "fairseq-interactive fairseq-docmt"
#: how a script finds the package
NEEDS = "$(python -m fairseq_docmt"
#: what is said of options that are passed on
PASSING = re.compile(r"\[options of fairseq-(train|generate|interactive)\]")
#: the same commands as for another corpus, with other numbers
ALIKE = ("tvsub_zh_en/run.sh ende_docs", "tu2018_cache/subtitle.sh transformer")
RUNS = [
    pytest.param(run, id=str(run), marks=[LONG] if str(run) in ALIKE else [])
    for run in recipes.RUNS
]


@pytest.mark.parametrize("run", RUNS)
def test_commands_are_understood(run):
    """Commands that differ in paths and numbers only are parsed once."""
    calls = {}
    for call in run.calls():
        kind = [re.sub(r"\S*/\S*|[0-9]+", "0", argument) for argument in call.arguments]
        calls[call.program, tuple(kind)] = call
    for call in calls.values():
        if call.program in STOCK:
            recipes.parse(*call)


def test_every_script_is_run():
    assert sorted({run.script for run in recipes.RUNS}) == recipes.SCRIPTS


@pytest.mark.parametrize("script", [*recipes.SCRIPTS, "context_probe/run_options.sh"])
def test_usage_without_arguments(script, tmp_path):
    done = subprocess.run(
        ["bash", str(recipes.EXAMPLES / script)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0
    [line] = done.stderr.splitlines()
    assert "usage: " in line and f" bash {Path(script).name} " in line
    assert not list(tmp_path.iterdir())


def test_language_models_of_another_size_are_refused(tmp_path):
    """fairseq would end with a traceback where it reads the checkpoint of the first call."""
    recipes.write_files(tmp_path)
    command = ["maruf2018_memnet/train_sentence_lm.sh", "train", "valid", "DICT", "LM"]
    assert recipes.run_in(tmp_path, *command, "--lm-size", "0x").returncode == 1
    assert recipes.run_in(tmp_path, *command, "--lm-size", "16").returncode == 0
    # The stub of fairseq-train has saved nothing to go on with.
    assert recipes.run_in(tmp_path, *command, "--lm-size", "8").returncode == 0
    (tmp_path / "LM" / "forward").mkdir()
    (tmp_path / "LM" / "forward" / "checkpoint_last.pt").touch()
    assert recipes.run_in(tmp_path, *command, "--lm-size", "8", "--max-epoch", "2").returncode == 0
    done = recipes.run_in(tmp_path, *command, "--lm-size", "16")
    message = (
        r"error: LM was made with other options \(--lm-size 8 checksum .*\); give another folder\n"
    )
    assert done.returncode == 1 and re.fullmatch(message, done.stderr)
    (tmp_path / "valid").write_text("other text\n")
    done = recipes.run_in(tmp_path, *command, "--lm-size", "8")
    assert done.returncode == 1 and re.fullmatch(message, done.stderr)


@pytest.mark.parametrize(
    "system, options, noted",
    [("joint", [], True), ("joint", ["--finetune-from-model", "a.pt"], False), ("sentence", [], 0)],
)
def test_a_second_stage_without_the_first_is_noted(system, options, noted, tmp_path):
    recipes.write_files(tmp_path)
    script = "miculicich2018_han/train.sh"
    done = recipes.run_in(tmp_path, script, "WORK", system, "SAVE", *options)
    note = f"note: {system} starts from random parameters; for parameters of the first stage give "
    assert done.stderr == (f"{note}--finetune-from-model CHECKPOINT\n" if noted else "")


def test_drafts_of_no_split(tmp_path):
    script = recipes.EXAMPLES / "maruf2018_memnet/make_drafts.sh"
    done = subprocess.run(
        ["bash", str(script), "bin", "model.pt", "drafts", "--cpu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and done.stderr.startswith("usage: bash make_drafts.sh")
    assert not list(tmp_path.iterdir())


def test_drafts_are_one_translation_in_pieces_of_words(tmp_path):
    recipes.write_files(tmp_path)
    options = ["bin", "model.pt", "drafts", "test", "--nbest", "2"]
    done = recipes.run_in(tmp_path, "maruf2018_memnet/make_drafts.sh", *options)
    assert done.stderr == "error: make_drafts.sh does not accept --nbest; leave it out\n"


@pytest.mark.parametrize(
    "script, programs",
    [
        (
            "bao2021_group/generate.sh",
            "fairseq-generate join_documents.py fairseq-docmt",
        ),
        ("bao2021_group/prepare.sh", 3 * "marked_documents.py " + "prepare.py"),
        ("bao2021_group/train.sh", "fairseq-train"),
        ("ende_docs/prepare.sh", "prepare.py"),
        ("feng2022_memory/generate.sh", "fairseq-generate join_documents.py" + 3 * " sacrebleu"),
        ("feng2022_memory/prepare.sh", 3 * "marked_documents.py " + "prepare.py"),
        ("feng2022_memory/train.sh", "fairseq-train"),
        ("herold2023_window_attention/generate.sh", "fairseq-generate sacrebleu"),
        (
            "herold2023_window_attention/prepare.sh",
            "tab_separated.py" + 2 * " tagged_documents.py" + " prepare.py",
        ),
        ("herold2023_window_attention/train.sh", "fairseq-train"),
        ("li2020_multi_encoder/generate.sh", "fairseq-generate join_documents.py sacrebleu"),
        ("li2020_multi_encoder/prepare.sh", 3 * "sentence_groups.py " + "prepare.py"),
        ("li2020_multi_encoder/train.sh", "fairseq-train"),
        ("maruf2018_memnet/generate.sh", "fairseq-generate join_documents.py sacrebleu python"),
        ("maruf2018_memnet/make_drafts.sh", 3 * "fairseq-generate fairseq-preprocess "),
        (
            "maruf2018_memnet/prepare.sh",
            3 * "check_documents.py " + 6 * "python " + "prepare.py fairseq-preprocess",
        ),
        (
            "maruf2018_memnet/prepare_ted.sh",
            "tagged_documents.py hold_out.py "
            + 3 * "check_documents.py "
            + 6 * "python "
            + "prepare.py fairseq-preprocess",
        ),
        ("maruf2018_memnet/train.sh", "fairseq-train"),
        ("maruf2018_memnet/train_sentence_lm.sh", 2 * "fairseq-preprocess fairseq-train "),
        ("miculicich2018_han/generate.sh", "fairseq-generate join_documents.py sacrebleu"),
        ("miculicich2018_han/train.sh", "fairseq-train"),
        ("tu2018_cache/generate.sh", "fairseq-generate join_documents.py sacrebleu"),
        ("tu2018_cache/train.sh", "fairseq-train"),
        ("tvsub_zh_en/generate.sh", 6 * "fairseq-generate sacrebleu "),
        ("tvsub_zh_en/prepare.sh", "prepare.py"),
        ("tvsub_zh_en/train.sh", 3 * "fairseq-train "),
        ("voita2019_docrepair/repair.sh", f"fairseq-docmt {TRANSLATE}"),
        (
            "voita2019_docrepair/round_trips.sh",
            2 * f"fairseq-docmt {TRANSLATE} "
            + 2 * f"{TRANSLATE} "
            + "add_noise.py fairseq-preprocess",
        ),
        ("voita2019_docrepair/train.sh", "fairseq-train"),
        ("voita2019_docrepair/translate.sh", TRANSLATE),
        ("wu2022_rfa/consistency.sh", "fairseq-docmt"),
        ("wu2022_rfa/generate.sh", "fairseq-generate join_documents.py" + 3 * " sacrebleu"),
        ("wu2022_rfa/prepare_iwslt15.sh", 3 * "tagged_documents.py " + "prepare.py"),
        ("wu2022_rfa/prepare_opensubtitles.sh", 3 * "sentence_groups.py " + "prepare.py"),
        ("wu2022_rfa/train.sh", "fairseq-train"),
        (
            "wu2022_rfa/train_consistency.sh",
            10 * "fairseq-train fairseq-docmt best_epoch.py ",
        ),
    ],
)
def test_programs_of_a_script(script, programs):
    run = next(run for run in recipes.RUNS if run.script == script)
    assert [call.program for call in run.calls()] == programs.split()


def test_stages_of_a_comparison_from_one_base():
    """Two test sets and beams; dropped pronouns are marked in the second set."""
    run = recipes.Run("tvsub_zh_en/run.sh", "CORPUS WORK base control memory-both")
    scoring, generate = "fairseq-docmt ", "fairseq-generate "
    base = f"fairseq-train keep_weights.py {8 * generate}{scoring}results.py {4 * generate}"
    programs = [
        "python bash contexts.py fairseq-preprocess",
        base + 4 * scoring,
        f"updates.py fairseq-train keep_weights.py {4 * generate}{4 * scoring}",
        f"updates.py fairseq-train keep_weights.py {4 * generate}{scoring}{2 * generate}",
        f"{4 * scoring}{2 * 'contexts.py '}{2 * scoring}results.py",
    ]
    calls = run.calls()
    assert [call.program for call in calls] == " ".join(programs).split()
    pronouns = [call.arguments for call in calls if "dropped-pronouns" in call.arguments]
    marked, without_marks = pronouns[4:6]
    for words, testset, subset in ((marked, "zpdev", "test1"), (without_marks, "test", "test")):
        places = [word.split("/WORK/")[1] for word in words if "=" in word]
        own = [f"memory-both/stream/{testset}-{beam}/generate-{subset}.txt" for beam in (4, 1)]
        assert places == [f"control/window/{testset}-4/generate-{subset}.txt", *own]
        assert ("--from-reference" in words) == (testset == "test")
    (contexts,) = (
        c.arguments for c in calls if "bootstrap,sign" in c.arguments and own_and_other(c)
    )
    assert contexts[contexts.index("--reference") + 1].endswith("/raw/test1.en")


def own_and_other(call) -> bool:
    """Whether a call compares translations with the own and another document's context."""
    return sum(word.startswith(("own=", "other=")) for word in call.arguments) == 2


def test_part_of_a_comparison():
    """The first test set, without translations of limited contexts."""
    arguments = "CORPUS WORK base control memory-both memory-control --test-sets 1 --beams 4"
    run = recipes.Run(
        "tvsub_zh_en/run.sh", f"{arguments} --recipe {recipes.EXAMPLES / 'ende_docs'}"
    )
    train = "fairseq-train keep_weights.py "
    programs = [
        f"python bash contexts.py fairseq-preprocess {train}{8 * 'fairseq-generate '}",
        "fairseq-docmt results.py fairseq-generate fairseq-docmt",
        f"updates.py {train}fairseq-generate fairseq-docmt",
        f"updates.py {train}fairseq-generate {2 * 'fairseq-docmt '}",
        f"updates.py {train}fairseq-generate {2 * 'fairseq-docmt '}results.py",
    ]
    calls = run.calls("--stages", "train translate usage score")
    assert [call.program for call in calls] == " ".join(programs).split()
    # The last scores compare the memory with the same system whose memory is cut.
    places = [word.split("/WORK/")[1] for word in calls[-2].arguments if "=" in word]
    assert places == [f"memory-{x}/stream/test-4/generate-test.txt" for x in ("control", "both")]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("base windows4", r"windows4 is not in .*/tvsub_zh_en/systems\.txt"),
        ("window.", r"window\. is not in .*/tvsub_zh_en/systems\.txt"),
        ("--recipe R", r"--recipe is R, which has no corpus\.sh"),
        ("--beams 1", "--beams is 1; systems are compared with a beam of 4, so add it"),
        ("--test-sets 1", "--test-sets is 1; give a number from 2 to 2"),
        ("--test-sets 3", "--test-sets is 3; give a number from 2 to 2"),
    ],
)
def test_a_comparison_that_cannot_be_done_is_not_begun(arguments, message, tmp_path):
    """Contexts are limited in the second test set."""
    recipes.write_files(tmp_path)
    arguments = ["CORPUS", "WORK", *arguments.split()]
    done = recipes.run_in(tmp_path, "tvsub_zh_en/run.sh", *arguments)
    assert done.returncode == 1 and re.fullmatch(f"error: {message}\n", done.stderr)
    assert not (tmp_path / "calls").exists()


def test_a_comparison_with_nothing_says_what_is_missing(tmp_path):
    recipes.write_files(tmp_path)
    arguments, scores = ["tvsub_zh_en/run.sh", "CORPUS", "WORK"], ["--stages", "score"]
    done = recipes.run_in(tmp_path, *arguments, "base", "memory-both", *scores)
    wanted = (
        "error: memory-both is compared with control, which has no scores; give the same command "
        "with control before memory-both to go on\n"
    )
    assert (done.returncode, done.stderr) == (1, wanted)
    done = recipes.run_in(tmp_path, *arguments, "control", "memory-both", *scores)
    assert (done.returncode, done.stderr) == (0, "")


def test_marked_pronouns_that_are_missing_are_named(tmp_path):
    recipes.write_files(tmp_path)
    (tmp_path / "CORPUS" / "zpdev.zp.zh").unlink()
    done = recipes.run_in(tmp_path, "tvsub_zh_en/run.sh", "CORPUS", "WORK", "base")
    wanted = "error: CORPUS lacks zpdev.zp.zh, the source of zpdev with dropped pronouns marked\n"
    assert (done.returncode, done.stderr) == (1, wanted)


def test_a_folder_of_earlier_scripts_goes_on(tmp_path):
    """Which called scripts of other recipes with other arguments."""
    recipes.write_files(tmp_path)
    arguments = "CORPUS WORK rnnsearch memnet-both --stages memories".split()
    made = [("lm/record", [{"exit": 124}, {"exit": 0, "seconds": 1}])]
    made += [("rnnsearch/drafts/record", [{"exit": 1}])]
    for name, runs in made:
        path = tmp_path / "WORK" / f"{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(runs, indent=1))
    calls = recipes.calls_in(tmp_path, "tvsub_zh_en/run.sh", *arguments)
    scripts = [Path(c.arguments[0]).name for c in calls if c.program == "bash"]
    assert scripts == ["prepare.sh", "make_drafts.sh"]


@pytest.fixture
def measured_for_real(tmp_path):
    """Function that runs run.sh for its corpus, with records; returns its status, and what it said.

    The corpus is prepared by a program that fails where there is a file "broken".
    """
    recipes.write_files(tmp_path)
    (tmp_path / "OTHER").mkdir()
    (tmp_path / "OTHER" / "zpdev.zp.zh").write_text("A\n")
    (tmp_path / "bin" / "python").rename(tmp_path / "bin" / "noting")
    python = tmp_path / "bin" / "python"
    python.write_text(
        "#!/bin/sh\ncase $1 in *measured.py) exec "
        f'{sys.executable} "$@" ;; *prepare.py) [ ! -e broken ] || exit 1 ;; esac\n'
        f'exec {tmp_path}/bin/noting "$@"\n'
    )
    python.chmod(0o755)

    def run(*arguments, script="tvsub_zh_en/run.sh", stages="memories"):
        given = [*arguments[:2], "control", *arguments[2:], "--stages", stages]
        done = recipes.run_in(tmp_path, script, *given, COMMIT="c")
        return done.returncode, done.stderr

    return run


def prepared(folder: Path) -> int:
    """Return how often a corpus was prepared."""
    return (folder / "calls").read_text().count("data_prep/prepare.py")


@pytest.mark.parametrize("script", ["tvsub_zh_en/run.sh", long("tu2018_cache/subtitle.sh")])
def test_a_folder_keeps_its_corpus(measured_for_real, tmp_path, script):
    options = "--prepare=--bpe-operations 9"
    for corpus in ("CORPUS", f"{tmp_path}/./CORPUS"):
        assert measured_for_real(corpus, "WORK", options, script=script) == (0, "")
    assert prepared(tmp_path) == 1
    for others in (["OTHER", "WORK", options], ["CORPUS", "WORK"]):
        status, said = measured_for_real(*others, script=script)
        assert status == 1 and said.count("\n") == 1
        made = f"prepare.sh {tmp_path}/CORPUS {tmp_path}/WORK --bpe-operations 9"
        assert said.startswith(f"error: {tmp_path}/WORK/data.json was made by another command: ")
        assert said.endswith(f"{made}; to begin anew, remove {tmp_path}/WORK\n")
    assert prepared(tmp_path) == 1


def test_a_preparation_that_failed_is_made_again(measured_for_real, tmp_path):
    (tmp_path / "broken").touch()
    status, said = measured_for_real("CORPUS", "WORK")
    assert status == 1 and f"failed: see {tmp_path}/WORK/data.log" in said
    (tmp_path / "broken").unlink()
    assert measured_for_real("CORPUS", "WORK") == (0, "")
    assert prepared(tmp_path) == 1


def test_a_preparation_that_was_stopped_is_made_again(measured_for_real, tmp_path):
    """In the middle of the limited contexts, too."""
    assert measured_for_real("CORPUS", "WORK") == (0, "")
    for name in ("data", "contexts/made"):
        record = tmp_path / "WORK" / f"{name}.json"
        (run,) = json.loads(record.read_text())
        record.write_text(json.dumps([{**run, "exit": 124}]))
    assert measured_for_real("CORPUS", "WORK", "--limit", "60") == (0, "")
    assert prepared(tmp_path) == 2
    assert (tmp_path / "calls").read_text().count("contexts.py") == 2


@pytest.mark.parametrize("change", long_but_for(["batches"], ["batches", "tokens", None]))
def test_a_system_keeps_what_its_updates_were_counted_from(measured_for_real, tmp_path, change):
    """Although its training was interrupted, so that no record of it says with what it began."""
    recipe, stock = tmp_path / "recipe", recipes.EXAMPLES / "tvsub_zh_en"
    recipe.mkdir()
    shutil.copy(stock / "corpus.sh", recipe)
    shutil.copy(stock / "systems.txt", recipe)
    (recipe / "prepare.sh").write_text(f'exec bash {stock}/prepare.sh "$@"\n')
    arguments = ["CORPUS", "WORK", "--recipe", str(recipe)]
    assert measured_for_real(*arguments, stages="train") == (0, "")
    folder = tmp_path / "WORK" / "control"
    assert (folder / "updates").read_text() == "7\n"
    (folder / "train.json").unlink()
    if change == "tokens":
        arguments += ["--target-tokens", "99"]
    if change == "batches":
        text = (recipe / "systems.txt").read_text()
        (recipe / "systems.txt").write_text(text.replace("--max-tokens ", "--max-tokens 1"))
    status, said = measured_for_real(*arguments, stages="train")
    if change is None:
        assert (status, said) == (0, "")
        return
    assert status == 1 and said.startswith(f"error: {folder}/updates.json was made by another com")
    assert said.endswith(f"to begin anew, remove {folder}\n")


def test_references_as_context():
    """Only for a system that is compared with the same without context."""
    arguments = "CORPUS WORK base control memory-both memory-control"
    run = recipes.Run(
        "tvsub_zh_en/run.sh", f"{arguments} --recipe {recipes.EXAMPLES / 'ende_docs'}"
    )
    calls = run.calls("--stages", "translate gold")
    places = [
        words[words.index("--results-path") + 1].split("/WORK/")[1]
        for words in (call.arguments for call in calls)
        if "--gold-context" in words
    ]
    assert places == [f"memory-both/gold/{name}-4" for name in ("test", "news", "europarl")]


@pytest.mark.parametrize(
    "recipe",
    [
        "tvsub_zh_en",
        long("ende_docs"),
        "tu2018_cache/subtitle/small",
        long("tu2018_cache/subtitle/transformer"),
        "tu2018_cache/subtitle/paper",
    ],
)
def test_every_setting_can_be_trained(recipe):
    """Those that were only tried, too; their updates are counted with the options of training."""
    files = [recipes.EXAMPLES / recipe / f"{name}.txt" for name in ("systems", "tried")]
    names = [name for file in files for name in results.settings(file)]
    run = recipes.Run("tvsub_zh_en/run.sh", f"CORPUS WORK {' '.join(names)}")
    calls = run.calls("--stages", "train", "--recipe", str(recipes.EXAMPLES / recipe))
    trained = [call.arguments for call in calls if call.program == "fairseq-train"]
    folders = [words[words.index("--save-dir") + 1] for words in trained]
    assert [Path(folder).name for folder in folders] == names
    counted = [call.arguments[2:] for call in calls if call.program == "updates.py"]
    assert len(counted) == sum("--finetune-from-model" in words for words in trained)
    for words in trained + counted:
        recipes.parse("fairseq-train", words)


def values(script: str, name: str, *more: str) -> list:
    """Values of an option in all calls of a script with this option; the last counts."""
    runs = [run for run in recipes.RUNS if run.script == script]
    given = [call.arguments[::-1] for run in runs for call in run.calls(*more)]
    return [words[words.index(name) - 1] for words in given if name in words]


def test_every_system_of_herold2023_is_trained():
    found = values("herold2023_window_attention/train.sh", "--arch")
    one = ["transformer"] * 3 + ["lst_transformer"] + ["window_attn_transformer"] * 3
    assert found == 3 * one
    positions = values("herold2023_window_attention/train.sh", "--position")
    assert positions == 3 * ["relative", "absolute", "relative"]
    decodings = values("herold2023_window_attention/generate.sh", "--decoding")
    assert decodings == 3 * 2 * ["segment", "sequential"]


def test_every_system_of_wu2022_is_trained_with_windows_and_with_groups():
    for corpus, sizes in (("iwslt", ["4"]), ("opensubtitles", ["group"]), ("consistency", ["2"])):
        gates = {}
        for run in recipes.RUNS:
            system, _, size = run.system.partition(":")
            if (run.script, run.corpus) == ("wu2022_rfa/train.sh", corpus) and size in sizes:
                words = run.calls()[0].arguments
                gate = (
                    words[words.index("--sentence-gate") + 1] if "--sentence-gate" in words else ""
                )
                gates[system] = (words[words.index("--arch") + 1], gate)
        assert gates == {
            "transformer": ("transformer_iwslt_de_en", ""),
            "rfa": ("rfa_transformer_iwslt", ""),
            "rfa-sgate": ("rfa_transformer_iwslt", "decay"),
            "rfa-sgate-avg": ("rfa_transformer_iwslt", "average"),
        }


def test_every_system_of_feng2022_is_trained_and_decoded():
    script = "feng2022_memory/train.sh"
    assert values(script, "--context-side") == 3 * ["both"] + 3 * ["source"] + 3 * ["target"]
    assert values(script, "--arch") == 3 * ["transformer"] + 9 * ["memory_transformer"]
    tasks = values("feng2022_memory/generate.sh", "--task")
    assert tasks == ["sliding_window_translation"] + 3 * ["sentence_stream_translation"]


def test_every_system_of_tu2018_is_trained():
    script = "tu2018_cache/train.sh"
    archs = ["rnnsearch"] + 3 * ["cache_rnn"] + 2 * ["context_rnn"]
    assert values(script, "--arch") == archs
    assert values(script, "--context-integration") == ["deep", "shallow", "deep"]
    assert values(script, "--context") == ["hierarchical", "previous-source-attention"]


def test_every_system_of_maruf2018_is_trained():
    script = "maruf2018_memnet/train.sh"
    archs = ["rnnsearch_512"] + 6 * ["memnet_rnn"] + 3 * ["context_rnn"]
    assert values(script, "--arch") == [*archs, "memnet_rnn"]
    sides = ["source", "source", "target", "target", "both", "both", "target"]
    assert values(script, "--context-side") == sides
    assert values(script, "--context-integration") == 3 * ["context", "output"] + ["context"]


def test_every_system_of_bao2021_is_trained_and_decoded():
    script = "bao2021_group/train.sh"
    assert values(script, "--arch") == ["transformer", "g_transformer", "g_transformer"]
    assert values(script, "--optimizer") == ["adam", "grouped_adam", "adam"]
    without = ("--context-layers", "0")
    for part in ("encoder", "decoder", "cross"):
        assert values(script, f"--{part}-context-layers", *without) == ["0", "0"]
    # Without context, the second stage has no new parameters, but the rate of the others.
    assert values(script, "--optimizer", *without) == ["adam", "adam", "adam"]
    script = "bao2021_group/generate.sh"
    tasks = values(script, "--task")
    assert tasks == ["sliding_window_translation"] + 2 * ["full_document_translation"]
    # Only the search over whole outputs can go wrong in their number.
    for run in (run for run in recipes.RUNS if run.script == script and "group" in run.system):
        for decoding, forced in (("segment", True), ("sequential", False)):
            calls = run.calls("--decoding", decoding)
            (call,) = (c for c in calls if c.program == "fairseq-generate")
            assert ("--force-sentence-count" in call.arguments) == forced


def test_every_system_of_miculicich2018_is_trained_and_decoded():
    script = "miculicich2018_han/train.sh"
    assert values(script, "--arch") == ["transformer"] + 3 * ["han_transformer"]
    assert values(script, "--context-side") == ["source", "target", "both"]
    tasks = values("miculicich2018_han/generate.sh", "--task")
    assert tasks == ["sliding_window_translation"] + 3 * ["sentence_stream_translation"]


def test_every_system_of_li2020_is_trained_and_decoded():
    script = "li2020_multi_encoder/train.sh"
    assert values(script, "--arch") == ["transformer"] + 6 * ["multi_encoder_transformer"]
    assert values(script, "--context-integration") == 3 * ["outside"] + 3 * ["inside"]
    assert values(script, "--context-side") == 2 * ["source", "target", "both"]
    tasks = values("li2020_multi_encoder/generate.sh", "--task")
    assert tasks == ["sliding_window_translation"] + 6 * ["sentence_stream_translation"]


@pytest.mark.parametrize(
    "script, option, value",
    [
        ("wu2022_rfa/train.sh", "--gate-bias-init", "0.5"),
        ("herold2023_window_attention/train.sh", "--dropout", "0.7"),
        ("herold2023_window_attention/prepare.sh", "--bpe-operations", "99"),
        ("feng2022_memory/train.sh", "--warmup-updates", "99"),
        ("bao2021_group/generate.sh", "--decoding", "sequential-full-source"),
    ],
)
def test_a_given_option_overrides_that_of_the_recipe(script, option, value):
    assert set(values(script, option, option, value)) == {value}


@pytest.mark.parametrize(
    "script",
    [s for s in recipes.SCRIPTS if PASSING.search((recipes.EXAMPLES / s).read_text())],
)
def test_options_reach_every_training_and_translation(script):
    """And win over those that the recipe sets."""
    run = next(run for run in recipes.RUNS if run.script == script)
    intervals = [
        recipes.parse(*call).log_interval
        for call in run.calls("--log-interval", "37")
        if call.program in ("fairseq-train", "fairseq-generate", "fairseq-interactive")
    ]
    assert set(intervals) == {37}


def test_scripts_read_no_settings_from_the_environment():
    """Except for what a machine needs."""
    found = set()
    for path in recipes.EXAMPLES.glob("**/*.sh"):
        found |= set(re.findall(r"\$\{?([A-Z][A-Z_]+)", path.read_text()))
    assert found == {"OMP_NUM_THREADS", "PYTHONPATH"}


@pytest.mark.parametrize("name", ["herold2023_window_attention", "feng2022_memory", "wu2022_rfa"])
def test_an_unknown_corpus_is_refused(name):
    run = next(run for run in recipes.RUNS if run.script == f"{name}/train.sh")
    message = "error: unknown corpus other; see bash train.sh --help"
    with pytest.raises(AssertionError, match=message):
        run.calls("--corpus", "other")


@pytest.mark.parametrize(
    "script", [s for s in recipes.SCRIPTS if "unknown system" in (recipes.EXAMPLES / s).read_text()]
)
def test_an_unknown_system_is_refused(script):
    run = next(run for run in recipes.RUNS if run.script == script)
    _, _, *rest = run.arguments.split()
    run = run._replace(arguments=" ".join(["WORK", "other", *rest]))
    with pytest.raises(
        AssertionError,
        match=f"error: unknown system other.*; see bash .*{Path(script).name} --help",
    ):
        run.calls()


@pytest.mark.parametrize(
    "script", [s for s in recipes.SCRIPTS if NEEDS in (recipes.EXAMPLES / s).read_text()]
)
def test_an_installation_without_the_package_is_noticed(script, tmp_path):
    """The script ends with what Python says, not without a word."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho No module named fairseq_docmt >&2\nexit 1\n")
    python.chmod(0o755)
    run = next(run for run in recipes.RUNS if run.script == script)
    run = subprocess.run(
        ["bash", str(recipes.EXAMPLES / script), *run.arguments.split()],
        cwd=str(tmp_path),
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.returncode == 1 and run.stderr == "No module named fairseq_docmt\n"
