"""The TVSub recipe: recorded commands, limited contexts, and tables written from one file."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import contexts
import keep_weights
import measured
import pytest
import results
import tables
import torch
import updates

from fairseq_docmt.errors import UserError

COUNT = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit(int(sys.argv[2]))"


def test_a_command_is_run_until_it_ends_well(tmp_path, capsys):
    record, runs = tmp_path / "stage" / "train.json", tmp_path / "runs"
    fails, works = ([sys.executable, "-c", COUNT, str(runs), status] for status in "10")
    assert measured.main(record, fails) == 1
    assert "failed: see" in capsys.readouterr().err
    assert measured.main(record, works) == 0
    assert measured.main(record, works) == 0  # not run again
    assert runs.read_text() == "xx"
    first, second = json.loads(record.read_text())
    assert (first["exit"], second["exit"]) == (1, 0) and second["command"] == works
    assert second["peak_megabytes"] > 1 and second["hardware"]["cores"] >= 1
    assert measured.main(record, fails) == 1
    assert "was made by another command" in capsys.readouterr().err
    record.write_text(record.read_text()[:50])
    assert measured.main(record, works) == 1
    assert f"{record} is damaged; restore it, or remove" in capsys.readouterr().err
    assert runs.read_text() == "xx"


def test_a_command_that_goes_on_keeps_the_lock(tmp_path):
    """Although the process that began it was killed, so that no second one begins meanwhile."""
    waits = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    record, log = tmp_path / "train.json", tmp_path / "train.log"
    command = [sys.executable, measured.__file__, str(record), sys.executable, "-c", waits]
    with subprocess.Popen(command) as parent:
        while not (log.exists() and log.read_text().endswith("\n")):
            time.sleep(0.01)
        parent.kill()
    with open(tmp_path / "train.lock", encoding="utf-8") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(int(log.read_text()), signal.SIGKILL)
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_a_record_has_the_commit_of_the_code_that_ran(tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    monkeypatch.setattr(measured, "commit", lambda: "later" if runs.exists() else "first")
    measured.main(tmp_path / "train.json", [sys.executable, "-c", COUNT, str(runs), "0"])
    assert json.loads((tmp_path / "train.json").read_text())[0]["commit"] == "first"


def test_a_command_is_stopped_at_its_limit_and_goes_on_later(tmp_path, capsys, monkeypatch):
    code = "import pathlib, sys, time; p = pathlib.Path(sys.argv[1]); n = p.exists(); p.touch()\n"
    command = [sys.executable, "-c", f"{code}time.sleep(0 if n else 60)", str(tmp_path / "begun")]
    monkeypatch.setenv("LIMIT", "2")
    assert measured.main(tmp_path / "train.json", command) == 124
    assert "train: stopped after 2 s; give the same command to go on" in capsys.readouterr().err
    assert measured.main(tmp_path / "train.json", command) == 0
    first, second = json.loads((tmp_path / "train.json").read_text())
    assert first["command"] == second["command"] == command and first["seconds"] < 30
    # It does not go on as another command.
    (tmp_path / "train.json").write_text(json.dumps([first]))
    assert measured.main(tmp_path / "train.json", ["true"]) == 1
    assert "train.json was made by another command: " in capsys.readouterr().err


def test_an_interrupted_command_is_not_recorded(tmp_path, capsys, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(measured, "run", interrupted)
    assert measured.main(tmp_path / "train.json", ["train"]) == 130
    assert capsys.readouterr().err == "" and not (tmp_path / "train.json").exists()


def test_a_gpu_without_room_is_one_sentence(tmp_path, capsys):
    code = "import sys; sys.exit('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate')"
    assert measured.main(tmp_path / "train.json", [sys.executable, "-c", code]) == 1
    said = capsys.readouterr().err
    assert said.endswith(
        "train.json: the GPU has no room for this; free its memory, or take one with more\n"
    )
    assert said.count("\n") == 1


def test_contexts_of_the_own_and_of_another_document(tmp_path):
    for side in ("zh", "en"):
        lines = [[f"{side}{d}.{i}" for i in range(14)] for d in range(3)]
        (tmp_path / f"text.{side}").write_text("\n\n".join("\n".join(doc) for doc in lines) + "\n")
    contexts.make(10, str(tmp_path / "text.zh"), str(tmp_path / "text.en"), tmp_path)
    own, other, target = (
        [doc.split("\n") for doc in (tmp_path / name).read_text().rstrip("\n").split("\n\n")]
        for name in ("own.zh", "other.zh", "other.en")
    )
    wanted = [f"zh{d}.{i}" for d in range(3) for i in range(14)]
    assert [doc[-1] for doc in own] == [doc[-1] for doc in other] == wanted
    for number, (mine, theirs) in enumerate(zip(own, other)):
        document, place = divmod(number, 14)
        assert mine[:-1] == wanted[number - min(place, 10) : number]
        assert len(theirs) == len(mine)
        named = {sentence.split(".")[0] for sentence in theirs[:-1]}
        assert len(named) == min(place, 1) and f"zh{document}" not in named
        first = [int(sentence.split(".")[1]) for sentence in theirs[:-1]]
        assert first == list(range(first[0], first[0] + len(first))) if first else place == 0
    assert [[s.replace("en", "zh") for s in doc] for doc in target] == other


def test_the_last_sentence_of_each_document_is_taken(tmp_path):
    lines = {0: "a", 1: "b", 3: "c", 5: "d", 6: "e", 7: "f"}
    output = "".join(f"T-{n}\tt\nH-{n}\t-0.5\t{text}\n" for n, text in lines.items())
    (tmp_path / "out").write_text(output)
    (tmp_path / "text").write_text("x\nx\n\nx\n\nx\nx\nx\n")
    (tmp_path / "test").write_text("x\nx\n\nx\n")
    taken = contexts.take(*(str(tmp_path / name) for name in ("out", "text", "test")))
    assert taken == ["b", "c", "", "f"]


@pytest.mark.parametrize("text", ["x\n", "x\n\nx\nx\n"])
def test_the_text_must_be_the_one_that_got_contexts(tmp_path, text):
    (tmp_path / "out").write_text("T-0\tt\nH-0\t-0.5\tx\nT-2\tt\nH-2\t-0.5\tx\n")
    (tmp_path / "text").write_text("x\n\nx\n")
    (tmp_path / "test").write_text(text)
    message = f"/text has 2 documents, but .*/test has {text.count('x')} sentences; give the test"
    with pytest.raises(UserError, match=message):
        contexts.take(*(str(tmp_path / name) for name in ("out", "text", "test")))


@pytest.mark.parametrize("missing", [1, 6])
def test_no_sentence_takes_the_place_of_a_missing_one(tmp_path, missing):
    output = "".join(f"T-{n}\tt\nH-{n}\t-0.5\tx\n" for n in (0, 1, 3, 4, 6) if n != missing)
    (tmp_path / "out").write_text(output)
    (tmp_path / "text").write_text("x\nx\n\nx\nx\n\nx\n")
    message = f"/out has no translation of line {missing + 1} of .*/text; generate it again"
    with pytest.raises(UserError, match=message):
        contexts.take(str(tmp_path / "out"), str(tmp_path / "text"), "")


@pytest.mark.parametrize(
    "sentences, target, out, message",
    [
        (0, "t.en", "out", "SENTENCES must be at least 1, got 0"),
        (1, "en/t.zh", "out", "both texts end in '.zh'; give each language its own suffix"),
        (1, "t.en", "t.en", "/t.en cannot be a folder: File exists"),
    ],
)
def test_contexts_that_cannot_be_made(tmp_path, sentences, target, out, message):
    (tmp_path / "en").mkdir()
    for name in ("t.zh", "t.en", "en/t.zh"):
        (tmp_path / name).write_text("a\nb\n\nc\nd\n")
    with pytest.raises(UserError, match=message):
        contexts.make(sentences, str(tmp_path / "t.zh"), str(tmp_path / target), tmp_path / out)


def test_what_is_no_result(tmp_path, capsys):
    for text, problem in (("", "is damaged; make it again"), ("{}", "is no JSON of fairseq-docmt")):
        (tmp_path / "scores.json").write_text(text)
        with pytest.raises(UserError, match=f"scores.json {problem}"):
            results.best(tmp_path / "scores.json")
    for text in ("{}", '["sets", "systems", "tried"]'):
        (tmp_path / "scores.json").write_text(text)
        with pytest.raises(UserError, match="scores.json has no results of results.py collect"):
            tables.load(tmp_path / "scores.json")
    with pytest.raises(UserError, match="results.json cannot be read: No such file"):
        tables.load(tmp_path)
    with pytest.raises(UserError, match="systems.txt not found; give the folders of run.sh and"):
        results.collect(tmp_path, tmp_path / "recipe", ["test"])
    with pytest.raises(UserError, match="/none not found; give the folders of run.sh and"):
        results.collect(tmp_path / "none", tables.HERE, ["test"])
    assert measured.main(tmp_path / "train.json", [str(tmp_path / "none")]) == 127
    said = f"error: {tmp_path}/none cannot be run: No such file or directory\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "train.json").exists()
    with pytest.raises(UserError, match="give --user-dir and --arch of fairseq-train"):
        updates.updates(1000, ["data"])


def test_weights_are_kept_in_half_precision(tmp_path):
    weights = {"a": torch.tensor([0.1, 2.0]), "position": torch.tensor([3])}
    iterator = {"version": 2, "epoch": 4, "iterations_in_epoch": 5, "lanes": torch.ones(9)}
    state = {
        "cfg": {"x": 1},
        "model": weights,
        "last_optimizer_state": {"step": 7},
        "optimizer_history": [{"num_updates": 7}],
        "extra_state": {"train_iterator": iterator, "best": 4.5},
    }
    torch.save(state, tmp_path / "checkpoint.pt")
    keep_weights.keep_weights(tmp_path / "checkpoint.pt")
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    kept = torch.load(tmp_path / "checkpoint.pt")
    assert kept["model"]["a"].equal(torch.tensor([0.1, 2.0]).half())
    assert kept["model"]["position"].dtype == torch.int64
    del iterator["lanes"], state["last_optimizer_state"]
    assert {**kept, "model": weights} == state


EXAMPLES = tables.HERE.parent
RECIPES = (
    tables.HERE,
    EXAMPLES / "ende_docs",
    EXAMPLES / "tu2018_cache/subtitle/small",
    EXAMPLES / "tu2018_cache/subtitle/transformer",
    EXAMPLES / "tu2018_cache/subtitle/paper",
)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda folder: folder.name)
def test_settings_have_each_system_once(recipe):
    files = [path for path in (recipe / "systems.txt", recipe / "tried.txt") if path.exists()]
    systems = {name: line for path in files for name, line in results.settings(path).items()}
    assert all(s["start"] == "-" or s["start"] in systems for s in systems.values())
    assert all(s["options"].startswith("--task ") for s in systems.values())
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(systems) == len([line for line in lines if not line.startswith("#")])


def test_tensors_that_start_anew_are_read_from_the_log():
    assert results.begun_anew("INFO | nothing\n") == ""
    line = "| 12 tensors are not in the checkpoint and keep their initial values, for example a.b\n"
    assert results.begun_anew(line) == "12: a.b ..."


def test_the_curve_is_read_from_the_log():
    line = "| valid | epoch 002 | valid on 'valid' subset | loss 5.2 | ppl 16 | num_updates {}\n"
    found = results.curve(line.format(200) + "train | loss 4\n" + line.format(400))
    assert found == [{"updates": 200, "loss": 5.2}, {"updates": 400, "loss": 5.2}]


def test_the_budget_is_read_from_the_log():
    line = (
        "| train_inner | epoch 001: 50 / 2523 loss=9, wps=1, ups=0, wpb={}, bsz=8, num_updates=50\n"
    )
    valid = "| valid | epoch 001 | valid on 'valid' subset | loss 5.2 | ppl 16 | num_updates 100\n"
    log = "| grouped total_num_itrs = 400\n" + line.format("7,800.5") + line.format(8200) + valid
    found = results.budget(log, 2000)
    assert found == {"epochs": 0.25, "tokens": 100 * 8000.25, "sentences": 500}
    assert results.budget("", 2000) == {}


LOG = """{}| INFO | fairseq_cli.train | x
| valid | epoch 001 | valid on 'valid' subset | loss 5.2 | ppl 16 | num_updates 200
"""
RANK = "| rank   0: capabilities =  9.0  ; total memory = 79.179 GB ; name = NVIDIA H100        \n"


@pytest.mark.parametrize("rank, gpu", [("", ""), (RANK, "NVIDIA H100")])
def test_settings_that_were_tried_need_only_a_validation_in_a_log(tmp_path, rank, gpu):
    line = "{} | base | stream | --task t --arch {}\n"
    work, recipe = tmp_path / "work", tmp_path / "recipe"
    for folder in (work / "long", work / "begun", recipe):
        folder.mkdir(parents=True)
    (recipe / "systems.txt").write_text(line.format("memory", "m"))
    tried = (line.format(name, "l") for name in ("long", "begun", "not-yet"))
    (recipe / "tried.txt").write_text("".join(tried))
    (work / "long" / "train.log").write_text(LOG.format(rank))
    (work / "begun" / "train.log").write_text("| INFO | fairseq_cli.train | x\n")
    found = results.collect(work, recipe, ["test"])
    assert found["systems"] == {} and found["tried"] == {
        "long": {
            "start": "base",
            "decodings": ["stream"],
            "options": "--task t --arch l",
            "curve": [{"updates": 200, "loss": 5.2}],
            "gpu": gpu,
            "scores": {},
        }
    }


def test_results_do_not_have_paths_of_a_machine(tmp_path):
    command = ["fairseq-train", f"{tmp_path}/data/bin", "--user-dir", "/home/me/top/fairseq_docmt"]
    script = ["bash", "/home/me/top/examples/tvsub_zh_en/prepare.sh", "a /b/fairseq_docmt"]
    found = json.loads(results.without_places(json.dumps([command, script]), tmp_path))
    assert found[0] == ["fairseq-train", "WORK/data/bin", "--user-dir", "fairseq_docmt"]
    assert found[1] == ["bash", "examples/tvsub_zh_en/prepare.sh", "a /b/fairseq_docmt"]


GAIN = "0.200 (0.100 to 0.300)"


def made_up():
    """Return results of one system in the form that run.sh writes."""

    def scores(*names):
        def found(label, first):
            tests = {
                "bootstrap": {name: {"p": 0.01} for name in names},
                "sign": {name: {"p": 0.2} for name in names},
            }
            values = {name: first + n for n, name in enumerate(names)}
            return {"label": label, "signature": f"sig-{label}", "scores": values, "tests": tests}

        return {"metrics": [found("s-BLEU", 10), found("d-BLEU", 20), found("chrF2", 30)]}

    pronouns = {"all": {"precision": 0.5, "recall": 0.25, "f1": 1 / 3}}
    gains = {"sentence": {"mean": 0.2, "low": 0.1, "high": 0.3}}
    run = {
        "seconds": 90,
        "cpu_seconds": 120,
        "peak_megabytes": 300,
        "commit": "abc",
        "hardware": {"processor": "P", "cores": 2, "torch": "2", "settings": {}},
    }
    on_gpu = {**run, "hardware": {**run["hardware"], "gpu": "G"}}
    both = ("memory-stream-4", "memory-stream-1")
    return {
        "sets": ["test", "zpdev"],
        "systems": {
            "memory": {
                "start": "base",
                "decodings": ["stream"],
                "curve": [{"updates": 7, "loss": 4.5}],
                "anew": "3: memory.initial ...",
                "budget": {"epochs": 0.4, "tokens": 8.1e6, "sentences": 860378.0},
                "length_ratios": {"stream/test-4": 0.987},
                "runs": {"train": [run, on_gpu], "stream/test-4": [run]},
                "scores": {
                    "test": scores(*both),
                    "zpdev": scores(*both),
                    "contexts": scores("own", "other"),
                    "pronouns": {
                        "systems": dict.fromkeys(both, pronouns),
                        "differences": {both[0]: {"f1": 0.1, "low": 0.05, "high": 0.2}},
                    },
                    "test-pronouns": {
                        "systems": {both[0]: {"all": {"f1": 0.4}}},
                        "differences": {both[0]: {"f1": 0.1, "low": -0.05, "high": 0.2}},
                    },
                    "context-pronouns": {"systems": dict.fromkeys(("own", "other"), pronouns)},
                    "usage": {
                        "usage": {"3": gains, "3 over other-document:3": gains},
                        "dropped_pronouns": {"pronouns": 12, **gains["sentence"]},
                        "beginnings": {
                            "first_tokens": 0.15,
                            "lower_case": 0.123,
                            "lower_case_gain": 0.678,
                        },
                    },
                },
            }
        },
        "tried": {
            "memory-long": {
                "start": "base",
                "options": "--arch m --max-update 90 --total-num-update 90 --lr 1",
                "curve": [{"updates": 30, "loss": 4.8}, {"updates": 60, "loss": 4.7}],
                "scores": {"usage": {"usage": {"3": gains, "3 over other-document:3": gains}}},
            },
            "memory-short": {
                "start": "base",
                "options": "--arch m",
                "curve": [{"updates": 5, "loss": 5}],
                "scores": {"test": scores("memory-short-stream-4")},
            },
        },
        "repeated": {},
        "passages": [
            {
                "before": ["zh 1"],
                "source": "zh 2",
                "reference": "a|b",
                "outputs": {"base": "x", "memory": "y"},
                "gains": {"memory": 7.1},
            }
        ],
    }


def cells(text):
    """Return the cells of each line."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")]


def headings(text):
    return [line[4:] for line in text.split("\n") if line.startswith("### ")]


def test_tables():
    text = tables.text(made_up())
    titles = ["Translations", "Use of context", "Training", "Further settings", "Passages"]
    assert headings(text) == titles
    rows = cells(text)
    scores = ["10.0*", "20.0*", "30.0*", "11.0", "0.99", "10.0*", "30.0*"]
    of_pronouns = ["50.0", "25.0", "33.3*", "40.0"]
    assert ["memory", "`stream`", *scores, *of_pronouns, "120", "300"] in rows
    assert ["memory", GAIN, GAIN, "0.150", "68%", "10.0", "11.0", GAIN, "33.3", "33.3"] in rows
    assert [
        "memory",
        "base",
        "`3: memory.initial ...`",
        "7",
        "8.10",
        "0.86",
        "4.500",
        "3",
        "G, torch 2",
        "abc",
    ] in rows
    assert ["memory-long", "base", "60 of 90", "4.700", GAIN, GAIN, "`--arch m --lr 1`"] in rows
    assert ["memory-short", "base", "5", "5.000", "", "", "`--arch m`"] in rows
    assert "on `test`: 12 pronouns of persons" in text and "On `test` a pronoun counts if" in text
    assert "s-BLEU `sig-s-BLEU`" in text and "12% of the references begin in lower" in text
    (passage,) = (line for line in text.split("\n") if "zh 2" in line)
    assert [cell.strip() for cell in passage.replace("\\|", "/").split("|")[1:-1]] == [
        "zh 1<br>**zh 2**",
        "a/b",
        "7",
        "x",
        "y",
    ]


@pytest.mark.parametrize(("score", "better", "expected"), [(11, 3, "*"), (11, 1, ""), (9, 1, "*")])
def test_no_star_for_a_sign_test_that_points_the_other_way(score, better, expected):
    tests = {
        "bootstrap": {"x": {"p": 0.2}},
        "sign": {"x": {"p": 0.01, "better": better, "worse": 2}},
    }
    assert tables.stars({"scores": {"control": 10, "x": score}, "tests": tests}, "x") == expected


@pytest.mark.parametrize("low", [None, -0.1, 0.0])
def test_no_share_of_a_gain_that_may_be_zero(low):
    results = made_up()
    usage = results["systems"]["memory"]["scores"]["usage"]["usage"]
    usage["3 over other-document:3"] = {"sentence": {"mean": 0.2, "low": low, "high": 0.3}}
    other = json.loads(json.dumps(results["systems"]["memory"]).replace("memory-", "other-"))
    gain = made_up()["systems"]["memory"]["scores"]["usage"]["usage"]
    other["scores"]["usage"]["usage"] = gain
    rows = cells(tables.text({**results, "systems": {**results["systems"], "other": other}}))
    assert [row[4] for row in rows if row[1:2] == [GAIN]] == ["", "68%"]
    # A column that would be empty is left out.
    header = "share of the gain in lower-case references"
    assert header in tables.context_headers(True) and header not in tables.text(results)


def test_a_system_whose_context_is_cut_is_compared_with_the_same_with_context():
    results = made_up()
    scores = results["systems"]["memory"]["scores"]
    assert tables.cut_rows("memory", scores, results["sets"]) == []
    values = {"memory": 10.123, "full": 11}
    tests = {"bootstrap": {"full": {"p": 0.0321}}, "sign": {"full": {"p": 0.2}}}
    found = [{"label": label, "scores": values, "tests": tests} for label in ("s-BLEU", "chrF2")]
    scores["with-context-zpdev"] = {"metrics": found}
    gold = json.dumps({"metrics": found}).replace("full", "full-gold").replace("11", "12")
    scores["with-gold-zpdev"] = json.loads(gold)
    both = ["10.12", "11.00", "0.032", "0.200"]
    lines = tables.text(results).split("\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert ["zpdev", "memory", "full", *both, *both] in rows
    with_gold = ["10.12", "12.00", *both[2:]]
    assert ["zpdev", "memory", "full-gold", *with_gold, *with_gold] in rows
    assert "With and without context" in headings(tables.text(results))
    del scores["with-gold-zpdev"]
    assert tables.OF_GOLD in "\n".join(lines) and tables.OF_GOLD not in tables.text(results)


def test_a_system_that_was_also_trained_from_another_base():
    def system(bleu, f1, gain):
        tests = {"bootstrap": {"m-stream-4": {"p": 0.01}}, "sign": {"m-stream-4": {"p": 0.2}}}
        values = {"control": 10, "m-stream-4": bleu, "m-stream-1": 9}
        difference = {"f1": f1, "low": f1 - 0.01, "high": f1 + 0.01}
        over = {"sentence": {"mean": gain, "low": None, "high": None}}
        scores = {
            "test": {"metrics": [{"label": "s-BLEU", "scores": values, "tests": tests}]},
            "pronouns": {"differences": {"m-stream-4": difference}},
            "usage": {"usage": {"3": {}, "3 over other-document:3": over}},
        }
        return {"decodings": ["stream", "window"], "scores": scores}

    row = tables.repeated_row("m", [system(10.256, 0.031, 0.5), system(9.9, -0.002, 0.25)])
    assert row[1:3] == ["+0.26*", "-0.10*"] and row[5:] == ["0.500", "0.250"]
    assert row[3:5] == ["+3.1 (2.1 to 4.1)", "-0.2 (-1.2 to 0.8)"]
    assert len(row) == len(tables.REPEATED)
    results = made_up()
    assert "with the other base" not in tables.text(results)
    memory = results["systems"]["memory"]
    repeated = {**results, "repeated": {"memory": memory, "unknown": memory}}
    assert "with the other base" in tables.text(repeated)


def test_tables_of_a_corpus_with_one_test_set_and_no_pronouns():
    results = {**made_up(), "sets": ["test"], "passages": [], "tried": {}}
    for name in ("pronouns", "test-pronouns", "context-pronouns"):
        del results["systems"]["memory"]["scores"][name]
    del results["systems"]["memory"]["scores"]["usage"]["dropped_pronouns"]
    text = tables.text(results)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")]
    scores = ["10.0*", "20.0*", "30.0*", "11.0", "0.99"]
    assert ["memory", "`stream`", *scores, "120", "300"] in rows
    assert ["memory", *["0.200 (0.100 to 0.300)"] * 2, "0.150", "68%", "10.0", "11.0"] in rows
    assert "ronoun" not in text and "passages" not in text and "tried" not in text
    assert headings(text) == ["Translations", "Use of context", "Training"]


def test_systems_that_were_run_on_other_hardware_and_on_fewer_test_sets():
    results = made_up()
    assert "Decoding: P, torch 2, 2 cores, one process each, {}." in tables.text(results)
    memory = results["systems"]["memory"]
    run = memory["runs"]["stream/test-4"][0]
    other = {**run, "hardware": {**run["hardware"], "processor": "Q"}}
    scores = {name: found for name, found in memory["scores"].items() if name != "zpdev"}
    results["systems"]["later"] = {
        **memory,
        "runs": {**memory["runs"], "stream/test-4": [other]},
        "scores": json.loads(json.dumps(scores).replace("memory-", "later-")),
    }
    text = tables.text(results)
    row = next(line for line in text.split("\n") if line.startswith("| later") and "stream" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[2:5] == ["10.0*", "20.0*", "30.0*"] and cells[7:9] == ["", ""]
    assert cells[-3] == "40.0"
    assert "Decoding: `memory`: P, torch 2, 2 cores" in text and "; `later`: Q, torch 2" in text


def test_scores_of_a_paper_beside_ours(tmp_path):
    (tmp_path / "published.tsv").write_text(
        "paper\tours\ttest\tzpdev\nM\tmemory\t32.92\t\nN\t\t33.00\t1\n"
    )
    found = {**made_up(), "published": results.published(tmp_path / "published.tsv")}
    found["systems"]["other"] = json.loads(
        json.dumps(found["systems"]["memory"]).replace("memory-", "other-")
    )
    rows = cells(tables.text(found))
    assert ["M", "32.92", "", "memory", "10.0*", "10.0*"] in rows
    assert ["N", "33.00", "1", "", "", ""] in rows
    assert ["", "", "", "other", "10.0*", "10.0*"] in rows
    assert headings(tables.text(found))[0] == "Beside the paper"
    assert results.published(tmp_path / "none.tsv") == []


def test_without_pronouns_there_is_no_share():
    found = made_up()
    nothing = {"all": {"precision": None, "recall": 0.0, "f1": None}}
    scores = found["systems"]["memory"]["scores"]
    for name in ("pronouns", "context-pronouns"):
        scores[name]["systems"] = dict.fromkeys(scores[name]["systems"], nothing)
    (row,) = tables.translation_rows("memory", found["systems"]["memory"], found["sets"])
    assert row[-6:-2] == ["", "0.0", "", "40.0"]
    assert tables.context_row("memory", scores)[-2:] == ["", ""]


def test_results_of_a_file_are_printed(tmp_path, capsys):
    results_file = tmp_path / "results.json"
    results_file.write_text(json.dumps(made_up()))
    tables.main(results_file)
    assert capsys.readouterr().out == tables.text(made_up())
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "losses.svg"}


def test_losses_before_training():
    before = {"note": "How.", "headers": ["task", "loss"], "losses": [["`a`", 6.2], ["b", 5]]}
    text = tables.text({**made_up(), "before": before})
    assert "### Before training\n\nHow.\n\n| task" in text and "| `a`    | 6.20   |" in text
    assert "Before training" not in tables.text(made_up())


def test_an_interval_with_zero_is_no_difference():
    found = [{"low": low, "high": high} for low, high in ((0.1, 0.2), (-0.1, 0.2), (-0.2, -0.1))]
    assert [tables.is_other(difference) for difference in found] == [True, False, True]
    assert not tables.is_other(None) and not tables.is_other({"low": None, "high": None})


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda folder: folder.name)
def test_the_readme_has_the_tables_of_the_results(recipe):
    found = tables.load(recipe)
    readme = tables.page_of(recipe).read_text(encoding="utf-8")
    assert all(readme.count(mark) == 1 for mark in tables.MARKS)
    assert tables.inserted(readme, tables.text(found)) == readme
