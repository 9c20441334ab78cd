"""Training with attention regularization: with stock commands, in windows, documents, processes.

Covers tasks/_training_examples.py.
"""

import json
import shutil

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from integration.test_hydra import SHARED, group
from long_tests import LONG

from fairseq_docmt.errors import UserError

WINDOWS = ["--task", "sliding_window_translation", "--window-size", "3"]
DOCUMENTS = ["--task", "full_document_translation"]
REGULARIZED = ["--criterion", "attention_regularization", "--label-smoothing", "0.1"]


@pytest.fixture
def data(binarised, tmp_path):
    """Corpus in which first words of sentences support first words of the next sentences."""
    folder = tmp_path / "data"
    shutil.copytree(binarised, folder)
    for split in ("train", "valid"):
        lines = data_utils.load_indexed_dataset(str(folder / f"{split}.src-tgt.src"))
        sizes = lines.sizes.tolist()  # in memory that goes with `lines`
        records = [
            {
                "line": line,
                "source": [0],
                "target": [0],
                "supporting_source": {str(line - 1): [0]},
                "supporting_target": {str(line - 1): [0]},
            }
            for line in range(1, len(sizes))
            if sizes[line - 1] > 1 and sizes[line] > 1
        ]
        path = folder / f"{split}.src-tgt.supporting.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def attention_masses(checkpoint):
    """The mean attention to supporting words in training and in validation, up to a checkpoint."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    return {
        group: meter["sum"] / meter["count"]
        for group, meters in state["extra_state"]["metrics"].items()
        for _, name, _, meter in meters
        if name == "attention_mass"
    }


@pytest.mark.long  # a real training; the other tests hold the loss
def test_attention_is_drawn_to_supporting_words(data, tmp_path):
    """In two processes, some of whose batches have no ambiguous word."""
    options = [*tiny.TRAINING, *WINDOWS, *REGULARIZED, "--max-tokens", "40", "--lr", "0.01"]
    found = []
    for epochs in ("1", "12"):
        tiny.train_in_processes(data, tmp_path / "ck", *options, "--max-epoch", epochs)
        found.append(attention_masses(tmp_path / "ck/checkpoint_last.pt"))
    first, last = found
    assert "valid" in first and "valid" in last
    assert first["train"] < 0.3 and 0.4 < last["train"] < 1


@pytest.mark.parametrize(
    "task",
    [
        WINDOWS,
        pytest.param(DOCUMENTS, marks=LONG),
        pytest.param([*WINDOWS, "--loss-on", "last"], marks=LONG),
        pytest.param([*WINDOWS, "--ignore-prefix-size", "2"], marks=LONG),
    ],
)
def test_without_weight_training_is_that_of_cross_entropy(data, tmp_path, task):
    smoothed = ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"]
    weights = {
        name: tiny.weights(tiny.train(data, tmp_path / name, *task, *options))
        for name, options in {
            "stock": smoothed,
            "without": [*REGULARIZED, "--attention-weight", "0"],
            "with": REGULARIZED,
        }.items()
    }
    for name, stock in weights["stock"].items():
        torch.testing.assert_close(weights["without"][name], stock)
    name = "encoder.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(weights["with"][name], weights["stock"][name])


@pytest.mark.parametrize("size, warned", [("1", True), ("2", False)])
def test_a_warning_of_examples_without_supporting_words(data, tmp_path, caplog, size, warned):
    """Words are supported by words of the sentence before, which windows of 1 lack."""
    windows = ["--task", "sliding_window_translation", "--window-size", size]
    tiny.train(data, tmp_path, *windows, *REGULARIZED, updates=1)
    found = [r.getMessage() for r in caplog.records if "supporting words" in r.getMessage()]
    assert len(found) == (2 if warned else 0)
    assert all("no attention is regularized; read longer windows" in message for message in found)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_warning_of_attention_without_supporting_words(data, tmp_path, caplog, side):
    """Only words of one side are marked, so that attention to the other has nothing to learn."""
    for path in data.glob("*.supporting.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        records = [{k: r[k] for k in ("line", side, f"supporting_{side}")} for r in records]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    without = {
        "source": "cross and decoder (target words to source words; target words to target words)",
        "target": "encoder and cross (source words to source words; target words to source words)",
    }
    own = {"source": "encoder:0", "target": "decoder:0"}[side]
    for attention, part in (
        ([], f"for {without[side]}, so that {without[side].split(' (')[0]} "),
        (["--regularized-attention", "cross:0"], "no attention is regularized"),
        (["--regularized-attention", own], None),
    ):
        caplog.clear()
        tiny.train(data, tmp_path, *WINDOWS, *REGULARIZED, *attention, updates=1)
        found = [text for text in caplog.messages if "no example has an ambiguous word" in text]
        assert len(found) == (2 if part else 0) and all(part in text for text in found)


def test_a_validation_set_without_supporting_words(data, tmp_path):
    (data / "valid.src-tgt.supporting.jsonl").unlink()
    tiny.train(data, tmp_path / "ck", *WINDOWS, *REGULARIZED)
    # The checkpoint is like any other: translating needs neither the files nor the criterion.
    (data / "train.src-tgt.supporting.jsonl").unlink()
    output = tiny.generate(data, tmp_path / "ck/checkpoint_last.pt", *WINDOWS[:2])
    assert len(tiny.lines_of(output)) == 15


def test_configurations_give_the_same(data, tmp_path, monkeypatch):
    """With fairseq-hydra-train, whose configuration has the criterion's options."""
    weight = ["--attention-weight", "3", "--regularized-attention", "cross:0"]
    flags = tiny.train(data, tmp_path / "flags", *WINDOWS, *REGULARIZED, *weight, updates=2)
    monkeypatch.chdir(tmp_path)
    criterion = {"_name": "attention_regularization", "attention_weight": 3}
    config = {
        **SHARED,
        "criterion": {**SHARED["criterion"], **criterion, "regularized_attention": "cross:0"},
        "dataset": {**SHARED["dataset"], "max_tokens": 200},
        "task": {**group(WINDOWS), "data": str(data)},
        "model": group(tiny.MODEL),
    }
    (tmp_path / "tiny.yaml").write_text(json.dumps(config))
    tiny.hydra_train(tmp_path, "tiny")
    tiny.assert_same_weights(flags, tmp_path / "run/checkpoints/checkpoint_last.pt")


@pytest.mark.parametrize(
    "option, message",
    [
        (["--regularized-head", "7"], "--regularized-head 7: the attention has 2 heads"),
        (["--regularized-attention", "encoder:9"], "encoder:9: the encoder has no such layer"),
    ],
)
def test_mistakes_leave_no_files(data, tmp_path, option, message):
    """The model is known in the first update, after which fairseq may save a checkpoint."""
    with pytest.raises(UserError, match=message):
        tiny.train(data, tmp_path / "ck", *WINDOWS, *REGULARIZED, *option, updates=1)
    assert not list((tmp_path / "ck").glob("*"))


def test_resuming_without_the_file_is_refused(data, tmp_path):
    options = [*WINDOWS, *REGULARIZED, "--max-tokens", "40"]
    tiny.train(data, tmp_path, *options, "--max-epoch", "1", updates=99)
    (data / "train.src-tgt.supporting.jsonl").unlink()
    with pytest.raises(UserError, match="supporting.jsonl not found or empty"):
        tiny.train(data, tmp_path, *options, "--max-epoch", "3", updates=99)


def test_resuming_is_exact(data, tmp_path):
    options = [*WINDOWS, *REGULARIZED, "--max-tokens", "40"]
    whole = tiny.train(data, tmp_path / "whole", *options, updates=9)
    tiny.train(data, tmp_path / "parts", *options, updates=5)
    tiny.assert_same_weights(whole, tiny.train(data, tmp_path / "parts", *options, updates=9))
