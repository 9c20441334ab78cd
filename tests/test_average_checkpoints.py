"""Averages of checkpoints: values, which checkpoints are chosen, use in decoding and training."""

import subprocess
import sys

import pytest
import tiny
import torch
from long_tests import LONG

from fairseq_docmt import average_checkpoints
from fairseq_docmt.average_checkpoints import AFTER_EPOCHS, AFTER_UPDATES, average, newest
from fairseq_docmt.errors import UserError

DOCUMENTS = ["--task", "full_document_translation"]
WINDOW_ATTENTION = tiny.window("--attention-window", "2")


@pytest.fixture(scope="module")
def trained(binarised, tmp_path_factory):
    """Checkpoints within the three epochs of a training, the oldest first."""
    folder = tmp_path_factory.mktemp("trained")
    saving = ["--save-interval-updates", "2", "--max-tokens", "40", "--max-epoch", "3"]
    options = [*DOCUMENTS, *saving, "--max-document-tokens", "20", "--lr", "0.05"]
    tiny.train(binarised, folder, *options, updates=100, model=WINDOW_ATTENTION)
    return [folder / f"checkpoint_{name}.pt" for name in ("1_2", "2_6", "3_10")]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["average_checkpoints", *map(str, arguments)])
    average_checkpoints.main()


def made_up(path, arch="a", text="t", seed=1, save_dir="run", task="b", window=3, **weights):
    """Write a checkpoint without a training."""
    path.parent.mkdir(exist_ok=True)
    training = {"common": {"seed": seed}, "checkpoint": {"save_dir": save_dir}}
    state = {
        "cfg": {"model": {"arch": arch}, "task": {"_name": task}, **training},
        "model": weights,
        "task_state": {"training_text": text, "document_options": {"window_size": window}},
        "last_optimizer_state": {"exp_avg": torch.zeros(3)},
    }
    torch.save(state, path)
    return str(path)


def test_mean_of_all_parameters(trained, monkeypatch, tmp_path):
    """As the loop over parameters and checkpoints; counts come from the newest."""
    out = tmp_path / "average.pt"
    run(monkeypatch, "--inputs", trained[0].parent, "--num-update-checkpoints", 3, "--output", out)
    inputs = [tiny.weights(path) for path in trained]
    found = tiny.weights(out)
    assert found.keys() == inputs[2].keys()
    moved = 0
    for name, value in found.items():
        if not value.is_floating_point():
            assert torch.equal(value, inputs[2][name])
            assert not torch.equal(value, inputs[0][name])
            continue
        want = torch.zeros_like(value, dtype=torch.float64)
        for weights in inputs:
            want += weights[name].double() / 3
        torch.testing.assert_close(value.double(), want, rtol=0, atol=1e-7)
        moved += not torch.allclose(value, inputs[2][name], atol=1e-4)
    assert moved > 20


def test_all_else_is_that_of_the_last(trained):
    found = average([str(path) for path in trained])
    last = torch.load(trained[-1], weights_only=False)
    del last["last_optimizer_state"]
    for state in (last, found):
        del state["model"]
    assert found.keys() == last.keys()
    assert found["task_state"] == last["task_state"] and found["cfg"] == last["cfg"]
    assert found["extra_state"]["train_iterator"]["epoch"] == 3


def test_an_average_translates_and_starts_another_training(trained, binarised, tmp_path):
    out = tmp_path / "average.pt"
    torch.save(average([str(path) for path in trained[1:]]), out)
    decoding = [*DOCUMENTS, "--decoding", "sequential"]
    output, single = (tiny.generate(binarised, path, *decoding) for path in (out, trained[-1]))
    assert tiny.lines_of(output).keys() == tiny.lines_of(single).keys()
    assert tiny.scores_of(output) != tiny.scores_of(single)
    start = [*DOCUMENTS, "--finetune-from-model", str(out), "--lr", "0"]
    again = tiny.train(binarised, tmp_path / "again", *start, updates=1, model=WINDOW_ATTENTION)
    for name, value in tiny.weights(out).items():
        if value.is_floating_point():
            assert torch.equal(tiny.weights(again)[name], value)


def test_half_precision_is_summed_in_single_precision(tmp_path):
    values = [2048.0, 1.0, 1.0]  # in half precision, 2048 + 1 is 2048
    paths = [
        made_up(tmp_path / f"{n}.pt", w=torch.tensor([value]).half())
        for n, value in enumerate(values)
    ]
    found = average(paths)["model"]["w"]
    assert found.dtype == torch.half
    assert found.item() == torch.tensor(2050 / 3).half().item()


def test_the_newest_checkpoints_by_number(tmp_path):
    for name in ("1", "2", "9", "10", "11", "_1_500", "_2_1000", "_11_90", "_best", ".best_1"):
        (tmp_path / f"checkpoint{name}.pt").touch()
    folder = str(tmp_path)

    def names(*arguments):
        return [path[len(folder) + 1 : -3].replace("checkpoint", "") for path in newest(*arguments)]

    assert names(folder, AFTER_EPOCHS, 3) == ["9", "10", "11"]
    assert names(folder, AFTER_EPOCHS, 2, 10) == ["9", "10"]
    assert names(folder, AFTER_UPDATES, 2) == ["_1_500", "_2_1000"]
    assert names(folder, AFTER_UPDATES, 2, 999) == ["_11_90", "_1_500"]
    with pytest.raises(UserError, match=r"has 5 checkpoints with .*12.pt, not 6; .*--keep-last"):
        newest(folder, AFTER_EPOCHS, 6)
    with pytest.raises(UserError, match="1 checkpoints .*1500.pt up to 90, not 2; .*--keep-inter"):
        newest(folder, AFTER_UPDATES, 2, 90)


@pytest.mark.parametrize("kind, last, want", [("epoch", 2, 0.5), ("update", 900, 3.5)])
def test_checkpoints_of_a_folder_by_the_command_line(monkeypatch, tmp_path, kind, last, want):
    for value, name in enumerate(("1", "2", "3", "_1_450", "_2_900", "_3_1350")):
        made_up(tmp_path / f"checkpoint{name}.pt", w=torch.tensor([float(value)]))
    options = [f"--num-{kind}-checkpoints", 2, "--checkpoint-upper-bound", last]
    run(monkeypatch, "--inputs", tmp_path, *options, "--output", tmp_path / "out.pt")
    assert torch.load(tmp_path / "out.pt", weights_only=False)["model"]["w"].item() == want


@pytest.mark.parametrize(
    "other, problem",
    [
        ({"arch": "b"}, "they have --arch a and b"),
        ({"w": torch.ones(3)}, r"w is \[2\] in the first and \[3\] in the second"),
        ({"v": torch.ones(3)}, r"v is missing in the first and \[3\] in the second"),
        ({"task": "c"}, "they were trained with --task b and c"),
        ({"window": 1}, "they were trained with --window-size 3 and 1"),
        ({"text": "u"}, "they were trained with other languages, dictionaries or subwords"),
    ],
)
def test_checkpoints_of_two_trainings(tmp_path, other, problem):
    one = made_up(tmp_path / "one.pt", w=torch.ones(2))
    two = made_up(tmp_path / "two.pt", **{"w": torch.ones(2), **other})
    with pytest.raises(UserError, match=f"one.pt and .*two.pt cannot be averaged: {problem}; give"):
        average([one, two])
    with pytest.raises(UserError, match="two.pt and .*one.pt cannot be averaged"):
        average([two, one])


def test_a_training_that_has_diverged(tmp_path):
    one = made_up(tmp_path / "one.pt", w=torch.ones(2))
    two = made_up(tmp_path / "two.pt", w=torch.tensor([1.0, torch.nan]))
    for paths in ([one, two], [two, one]):
        with pytest.raises(UserError, match="two.pt has parameters that are NaN or infinite"):
            average(paths)


def test_checkpoints_that_seem_to_be_of_two_trainings(tmp_path, capsys):
    """They are averaged, with one note."""
    one, same = (made_up(tmp_path / f"{name}.pt", w=torch.ones(2)) for name in ("one", "same"))
    average([same, one])
    assert capsys.readouterr().err == ""
    for options, said in [
        ({"seed": 2}, "--seed 2, {} with 1"),
        ({"save_dir": "other"}, "--save-dir other, {} with run"),
        ({"seed": 2, "save_dir": "other"}, "--seed 2, {} with 1"),
    ]:
        other = made_up(tmp_path / "other.pt", w=torch.zeros(2), **options)
        assert average([other, one])["model"]["w"].tolist() == [0.5, 0.5]
        said = f"note: {other} was trained with {said.format(one)}; averages are meant for one"
        assert capsys.readouterr().err == f"{said} training\n"


def test_checkpoints_with_other_options_of_the_model(tmp_path, capsys):
    paths = []
    for heads, dropout in ((2, 0.1), (4, 0.3)):
        paths.append(made_up(tmp_path / f"{heads}.pt", w=torch.ones(2)))
        state = torch.load(paths[-1])
        state["cfg"]["model"].update(heads=heads, dropout=dropout)
        torch.save(state, paths[-1])
    average(paths)
    said = f"note: {paths[0]} was trained with --heads 2, {paths[1]} with --heads 4; the average"
    assert capsys.readouterr().err == f"{said} has the options of the latter\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--inputs", "{one}", "{one}"], r"--inputs \{one\} is given twice; give each"),
        (["--inputs", "{folder}"], r"\{folder\} is a folder; say which of its checkpoints"),
        (["--inputs", "{one}", "{folder}"], r"\{folder\} is a folder; say which"),
        (["--inputs", "{one}", "--checkpoint-upper-bound", "3"], "upper-bound is for a folder"),
        (["--inputs", "{one}", "--num-epoch-checkpoints", "1"], r"one folder; got .*\{one\}"),
        (["--inputs", "{folder}", "{folder}", "--num-update-checkpoints", "1"], "for one folder"),
        (["--inputs", "nowhere.pt"], "checkpoint nowhere.pt not found"),
        (
            ["--inputs", "nowhere", "--num-epoch-checkpoints", "1"],
            "--inputs nowhere not found; give",
        ),
        (["--inputs", "{one}", "--output", "{folder}"], "--output .* is a folder; give a file"),
        (["--inputs", "{one}", "--output", "/dev/null"], "--output /dev/null is a device; give a"),
        (["--inputs", "{one}", "--output", "x" * 300], "xxx cannot be written: File name too long"),
        (["--inputs", "{one}", "--output", "{one}"], "--output .* is one of the checkpoints; giv"),
        (["--inputs", "{one}", "--output", "nowhere/x.pt"], "folder .*nowhere of --output not fou"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    places = {"folder": str(tmp_path / "folder"), "one": made_up(tmp_path / "folder" / "one.pt")}
    given = [argument.format(**places) for argument in arguments]
    for name, place in places.items():
        message = message.replace(rf"\{{{name}\}}", place)
    output = [] if "--output" in given else ["--output", tmp_path / "out.pt"]
    with pytest.raises(UserError, match=message):
        run(monkeypatch, *given, *output)
    assert not (tmp_path / "out.pt").exists()


def test_numbers_below_one(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--inputs", "x", "--output", "y", "--num-epoch-checkpoints", 0)
    assert "--num-epoch-checkpoints: must be at least 1, got 0" in capsys.readouterr().err


@LONG
def test_as_a_command(tmp_path):
    one = made_up(tmp_path / "one.pt", w=torch.zeros(2))
    two = made_up(tmp_path / "two.pt", w=torch.ones(2))
    command = [sys.executable, "-m", "fairseq_docmt", "average", "--inputs", one, two]
    out = str(tmp_path / "out.pt")
    done = subprocess.run([*command, "--output", out], capture_output=True, text=True, check=True)
    assert done.stdout == f"average of {one}, {two} in {out}\n" and done.stderr == ""
    assert torch.load(out, weights_only=False)["model"]["w"].tolist() == [0.5, 0.5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.pt", "out.pt", "two.pt"]


@pytest.mark.parametrize("matrix", ["layer.feature_map.pool", "decoder.causal_matrices.pool"])
def test_random_matrices_are_not_averaged(tmp_path, matrix):
    """With ``--share-random-matrices`` the decoder has them."""

    def drawn(name, pool):
        return made_up(tmp_path / name, **{matrix: torch.tensor(pool)})

    one, same, other = (drawn(*x) for x in (("1", [0.1]), ("2", [0.1]), ("3", [0.2])))
    assert average([one, same])["model"][matrix].tolist() == [torch.tensor(0.1)]
    with pytest.raises(UserError, match="cannot be averaged: they have other random matrices"):
        average([one, other])
