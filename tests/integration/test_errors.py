"""Error messages for wrong input.

Covers _checkpoint_classes.py, checkpoint_file.py, error_sentences.py, errors.py,
tasks/starts/checkpoints.py, tasks/_config.py, tasks/_training_text.py.
"""

import functools
import pickle
import re
import subprocess
import sys

import pytest
import tiny
import torch

from fairseq_docmt import error_sentences, errors
from fairseq_docmt.error_sentences import reason_of
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.tasks.sliding_window_translation import SlidingWindowTranslationTask

WINDOW = ["--task", "sliding_window_translation"]


@pytest.fixture
def binarise(binarised):
    """Return a function that binarises a corpus with the dictionaries of the checkpoints."""
    return functools.partial(_binarise, binarised)


def _binarise(dictionaries, folder, src, tgt, split="test"):
    """Return a corpus whose split has the given text; the other splits are valid."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(("train", "valid", "test")):
        tiny.write_split(folder, name, tiny.documents((2, 3), number))
    (folder / f"{split}.src").write_bytes(src)
    (folder / f"{split}.tgt").write_bytes(tgt)
    known = ["--srcdict", dictionaries / "dict.src.txt", "--tgtdict", dictionaries / "dict.tgt.txt"]
    return tiny.preprocess(folder, ["train", "valid", "test"], *known)


@pytest.mark.parametrize(
    "src, tgt, message",
    [
        (b"w1\n\nw2\n", b"v1\nv3\nv2\n", r"test.src-tgt: line 2 is blank on the source side only"),
        (b"w1\nw3\nw2\n", b"v1\nv3\n\n", r"line 3 is blank on the target side only"),
        (b"w1\nw2\n", b"v1\n", r"different numbers of lines \(src 2, tgt 1\)"),
        (b"\n\n", b"\n\n", r"test.src-tgt holds no sentence"),
    ],
)
def test_sides_that_disagree(binarise, tmp_path, window_checkpoint, src, tgt, message):
    data = binarise(tmp_path, src, tgt)
    with pytest.raises(UserError, match=message):
        tiny.generate(data, window_checkpoint, *WINDOW)


def test_training_refuses_them_too(binarise, tmp_path):
    data = binarise(tmp_path, b"w1\n\nw2\n", b"v1\nv3\nv2\n", split="train")
    with pytest.raises(UserError, match="train.src-tgt: line 2 is blank"):
        tiny.train(data, tmp_path / "ck", *WINDOW)


def test_blank_lines_at_both_ends_and_windows_line_ends(binarise, tmp_path, window_checkpoint):
    text = b"\r\n\r\nw1 w2\r\nw3\r\n\r\n \r\nw4\r\n\r\n"
    data = binarise(tmp_path, text, text.replace(b"w", b"v"))
    output = tiny.generate(data, window_checkpoint, *WINDOW)
    assert tiny.lines_of(output, "T") == {2: "v1 v2", 3: "v3", 6: "v4"}
    assert sorted(tiny.lines_of(output)) == [2, 3, 6]


def test_missing_things(tmp_path, binarised, window_checkpoint):
    with pytest.raises(UserError, match="data directory .*nowhere not found"):
        tiny.train(tmp_path / "nowhere", tmp_path, *WINDOW)
    with pytest.raises(UserError, match="path of a checkpoint is empty; .* leave out the : beside"):
        tiny.generate(binarised, f"{window_checkpoint}:", *WINDOW)
    with pytest.raises(UserError, match=r"nosplit.src-tgt.\* not found"):
        tiny.generate(binarised, window_checkpoint, *WINDOW, "--gen-subset", "nosplit")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match="dict.src.txt not found"):
        tiny.train(empty, tmp_path / "ck", *WINDOW, "-s", "src", "-t", "tgt")


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_truncated_files(tmp_path, window_checkpoint, suffix):
    data = tiny.corpus(tmp_path)
    path = data / f"test.src-tgt.tgt.{suffix}"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=rf"tgt\.{suffix} is truncated"):
        tiny.generate(data, window_checkpoint, *WINDOW)


def test_invalid_values(binarised, tmp_path):
    with pytest.raises(UserError, match="--window-size must be at least 1, got 0"):
        tiny.train(binarised, tmp_path, *WINDOW, "--window-size", "0")
    with pytest.raises(UserError, match="--max-document-tokens must be at least 1"):
        tiny.train(
            binarised,
            tmp_path,
            *["--task", "full_document_translation", "--max-document-tokens", "0"],
        )
    with pytest.raises(UserError, match="--load-alignments is not supported"):
        tiny.train(binarised, tmp_path, *WINDOW, "--load-alignments")


def test_a_sentence_of_4000_tokens(binarise, tmp_path, window_checkpoint):
    long = b" ".join([b"w1"] * 4000)
    text = b"w2\n" + long + b"\nw3\n"
    data = binarise(tmp_path, text, text.replace(b"w", b"v"))
    with pytest.raises(UserError, match=r"line 2 has more tokens than the model's 1024 source"):
        tiny.generate(data, window_checkpoint, *WINDOW)
    output = tiny.generate(
        data, window_checkpoint, *WINDOW, "--skip-invalid-size-inputs-valid-test"
    )
    assert sorted(tiny.lines_of(output)) == [0, 1, 2]
    assert tiny.lines_of(output)[1] == ""
    output = tiny.generate(data, window_checkpoint, *WINDOW, "--truncate-source")
    assert sorted(tiny.lines_of(output)) == [0, 1, 2]


def test_cutting_sources_keeps_documents_apart(binarise, tmp_path, window_checkpoint):
    """Also with a mark at the beginning of documents, and in fairseq-interactive."""
    lines = ["w1 w2 w3 w4 w5 w6 w7 w8 w9", "w3", "", "w4 w5"]
    short = [" ".join(line.split()[:5]) for line in lines]
    options = [*WINDOW, "--max-source-positions", "6", "--truncate-source"]
    found = []
    for number, text in enumerate((lines, short)):
        src = "".join(f"{line}\n" for line in text).encode()
        data = binarise(tmp_path / str(number), src, src.replace(b"w", b"v"))
        found.append(tiny.lines_of(tiny.generate(data, window_checkpoint, *options)))
        typed = tiny.interactive(data, window_checkpoint, text, *options)
        found.append({row: line for row, line in tiny.lines_of(typed).items() if text[row]})
    assert sorted(found[0]) == [0, 1, 3]
    assert found[0] == found[1] == found[2] == found[3]


def test_training_leaves_out_only_the_sentence_that_is_too_long(binarise, tmp_path):
    long = b" ".join([b"w1"] * 4000)
    text = b"w2\n" + long + b"\nw3\n"
    data = binarise(tmp_path, text, text.replace(b"w", b"v"), split="train")
    checkpoint = tiny.train(data, tmp_path / "ck", *WINDOW, updates=2)
    assert checkpoint.exists()


def test_the_command_line_shows_the_sentence_and_no_traceback(tmp_path):
    run = subprocess.run(
        [
            *[sys.executable, "-m", "fairseq_cli.train", str(tmp_path / "nowhere")],
            *["--user-dir", tiny.USER_DIR, *tiny.MODEL, *tiny.TRAINING, *WINDOW],
            *["--max-tokens", "10", "--save-dir", str(tmp_path / "ck")],
        ],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("error: data directory")
    assert "Traceback" not in run.stderr


def test_refusals_of_fairseq_are_sentences(binarised, window_checkpoint, monkeypatch):
    """Its commands check some options before they set up a task; other errors have tracebacks."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for options, sentence in (
        (["--sampling"], "--sampling requires --nbest to be equal to --beam"),
        (["--bpe", "characters"], "--bpe characters cannot be used in this fairseq"),
        (
            ["--bpe", "sentencepiece"],
            "--sentencepiece-model is missing, which another option needs",
        ),
        (
            ["--tokenizer", "moses"],
            "--source-lang is missing, which --tokenizer needs; give both",
        ),
        (
            ["--bpe", "hf_byte_bpe"],
            "Please install huggingface/tokenizers with: pip install tokenizers",
        ),
        (["--seed", "-1"], "--seed must be from 0 to 4294967295"),
    ):
        with pytest.raises(Exception) as caught:
            tiny.generate(binarised, window_checkpoint, *WINDOW, *options)
        assert reason_of(caught.value) == sentence
    lines = ["w1"]
    with pytest.raises(AssertionError) as caught:
        tiny.interactive(binarised, window_checkpoint, lines, *WINDOW, "--batch-size", "2")
    assert reason_of(caught.value) == "--batch-size cannot be larger than --buffer-size"
    assert reason_of(AssertionError("--beam is 3")) is None  # not of fairseq
    assert reason_of(UserError("x lacks document a\nb")) == "x lacks document a b"  # one line


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.skipif(
    not hasattr(torch.serialization, "add_safe_globals"), reason="needs a torch that loads safely"
)
def test_a_malicious_checkpoint_is_refused_and_runs_nothing(binarised, window_checkpoint, tmp_path):
    state = torch.load(window_checkpoint, weights_only=True)
    state["extra_state"] = Malicious(str(tmp_path / "was_here"))
    torch.save(state, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="has objects that may run programs"):
        tiny.generate(binarised, tmp_path / "evil.pt", *WINDOW)
    assert not (tmp_path / "was_here").exists()


def test_a_file_that_only_torch_has_read_is_refused_in_one_sentence(capsys, monkeypatch):
    """As in fairseq-validate, which loads the checkpoint before the task exists."""
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    error_sentences.show_user_errors_plainly()
    error = pickle.UnpicklingError("Weights only load failed ...")
    sys.excepthook(pickle.UnpicklingError, error, None)
    assert capsys.readouterr().err == f"error: {error_sentences.REFUSED}\n"


def test_a_file_as_the_folder_of_checkpoints(binarised, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as error:
        tiny.train(binarised, tmp_path / "file", *WINDOW)
    wanted = f"--save-dir: {tmp_path / 'file' / 'dummy'}: Not a directory; give a folder to write"
    assert error_sentences.reason_of(error.value).startswith(wanted)


def test_more_examples_than_memory_holds(binarised, tmp_path):
    options = [*WINDOW, "--sentence-data", binarised, "--sentence-ratio", "1e12"]
    with pytest.raises(MemoryError) as error:
        tiny.train(binarised, tmp_path, *options)
    assert re.match(
        "not enough memory .Unable to allocate.*; give", error_sentences.reason_of(error.value)
    )


@pytest.mark.parametrize(
    "error, message",
    [
        ("gradients are Nan/Inf", "gradients are Nan/Inf"),
        (
            "Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering",
            "Minimum loss scale reached (0.0001)",
        ),
    ],
)
def test_the_end_of_a_training_that_diverges(capsys, monkeypatch, error, message):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    error_sentences.show_user_errors_plainly()
    sys.excepthook(FloatingPointError, FloatingPointError(error), None)
    assert capsys.readouterr().err == f"error: {message}; {errors.DIVERGED}\n"


PROCESSES = {
    "spawned without GPUs": (
        ["--distributed-port", "9"],
        "several processes without GPUs need a command for each --distributed-rank, with "
        "--distributed-no-spawn and --distributed-init-method",
    ),
    "not connected": (
        ["--distributed-init-method", "no", "--distributed-no-spawn", "--distributed-rank", "0"],
        "the processes cannot connect (No rendezvous handler for ://); check the options "
        "--distributed-...",
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_processes_that_cannot_start(binarised, tmp_path, name):
    options, sentence = PROCESSES[name]
    with pytest.raises((ValueError, RuntimeError)) as caught:
        tiny.train(binarised, tmp_path, *WINDOW, "--distributed-world-size", "2", *options)
    assert reason_of(caught.value) == sentence


def test_processes_with_the_default_backend_of_gradients(binarised, tmp_path):
    options = [*tiny.TRAINING, "--batch-size", "2", "--ddp-backend", "pytorch_ddp"]
    with pytest.raises(RuntimeError) as caught:
        tiny.train_in_processes(binarised, tmp_path, *WINDOW, *options)
    kind, message = str(caught.value).strip().split("\n")[-1].split(": ", 1)
    assert kind == "ValueError"
    sentence = "several processes without GPUs need --ddp-backend legacy_ddp"
    assert reason_of(ValueError(message)) == sentence


@pytest.mark.parametrize(
    "place, name, kind",
    [
        (torch.Tensor, "backward", TypeError),
        (SlidingWindowTranslationTask, "valid_step", KeyError),
        (SlidingWindowTranslationTask, "valid_step", FileNotFoundError),
    ],
)
def test_unexpected_errors_are_not_of_options(binarised, tmp_path, monkeypatch, place, name, kind):
    def fails(*args):
        raise kind(2, "unexpected", "file")

    monkeypatch.setattr(place, name, fails)
    with pytest.raises(kind) as caught:
        tiny.train(binarised, tmp_path, *WINDOW, updates=1)
    assert reason_of(caught.value) is None


def test_a_learning_rate_at_which_parameters_overflow(binarised, tmp_path):
    with pytest.raises(UserError, match="gradients are Nan/Inf; training has diverged; lower --lr"):
        tiny.train(binarised, tmp_path / "ck", *WINDOW, "--lr", "1e30", updates=9)


@pytest.mark.parametrize("content, problem", [(b"PK\3\4 cut", "is damaged"), (None, "not found")])
def test_a_checkpoint_that_fairseq_validate_cannot_read(
    binarised, tmp_path, capsys, content, problem
):
    from fairseq_cli import validate

    path = tmp_path / "bad.pt"
    if content is not None:
        path.write_bytes(content)
    options = [binarised, "--user-dir", tiny.USER_DIR, *WINDOW, "--path", path, "--cpu"]
    with pytest.raises(Exception) as raised:
        tiny.run_main(validate.cli_main, *options, "--max-tokens", "100")
    capsys.readouterr()
    sys.excepthook(raised.type, raised.value, raised.tb)
    said = capsys.readouterr().err
    assert said.startswith(f"error: checkpoint {path} {problem}") and said.count("\n") == 1


def test_a_checkpoint_without_some_parameters(binarised, window_checkpoint, tmp_path):
    """In the commands and in Python."""
    state = torch.load(window_checkpoint, weights_only=True)
    for name in ("encoder.layers.0.fc1.weight", "encoder.layers.0.fc1.bias"):
        del state["model"][name]
    path = tmp_path / "cut.pt"
    torch.save(state, path)
    sentence = (
        "the checkpoint does not fit the model: the checkpoint lacks encoder.layers.0.fc1.weight "
        "and 1 more; give a checkpoint as training has saved it, without --model-overrides that "
        "change the model"
    )
    with pytest.raises(RuntimeError) as caught:
        tiny.generate(binarised, path, "--task", "sliding_window_translation")
    assert reason_of(caught.value) == sentence
    with pytest.raises(UserError) as caught:
        DocumentTranslator.from_pretrained(path, data=str(binarised))
    assert str(caught.value) == sentence


def test_a_document_model_in_a_stock_task(binarised, window_checkpoint, tmp_path):
    """Its dictionaries have other symbols."""
    stock = ["--task", "translation", "--required-batch-size-multiple", "1"]
    with pytest.raises(Exception) as caught:
        start = ["--finetune-from-model", str(window_checkpoint)]
        tiny.train(binarised, tmp_path, *stock, *start, updates=1)
    assert reason_of(caught.value) == (
        f"Cannot load model parameters from checkpoint {window_checkpoint}; give --task, --arch "
        "and the options of its training"
    )


@pytest.mark.parametrize("arch", ["fconv", "lightconv"])
def test_decoders_without_features_are_refused(binarised, tmp_path, arch):
    """Before training: the decodings of documents could not read them."""
    message = f"--arch {arch} cannot be used: its decoder lacks extract_features, which the decod"
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *WINDOW, model=["--arch", arch])
