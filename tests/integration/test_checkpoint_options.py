"""Checkpoints of strangers run nothing, by whatever way they are opened.

Covers checkpoint_file.py.
"""

import argparse
import functools
import logging
import pickle
import re
import runpy
import zipfile
from importlib import import_module
from pathlib import Path

import fairseq
import pytest
import tiny
import torch
from fairseq import checkpoint_utils

from fairseq_docmt.checkpoint_file import (
    CheckpointFile,
    _by_group,
    _is_text,
    _names_of_texts,
    check_options,
    load_state,
    read_checkpoint,
)
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.scoring.reranking.document_lm import DocumentLanguageModel

WINDOW = ["--task", "sliding_window_translation"]
STOCK = ["--task", "translation"]
REFUSED = "may run a program when fairseq reads it; do not use this checkpoint"
#: architecture -> options that fairseq evaluates as Python when it builds the model
EVALUATED = {
    "lstm": ["decoder_attention", "adaptive_softmax_cutoff"],
    "transformer": ["adaptive_softmax_cutoff"],
    "fconv": ["encoder_layers", "decoder_layers", "decoder_attention"],
    "fconv_self_att": ["pretrained", "encoder_layers", "self_attention", "project_input"],
    "lightconv": ["adaptive_softmax_cutoff"],
    "rnnsearch": ["adaptive_softmax_cutoff"],
    "han_transformer": ["adaptive_softmax_cutoff"],
}
PAIRS = [(arch, name) for arch, names in EVALUATED.items() for name in names]


class Evil:
    """A checkpoint that would write a file, and that file."""

    def __init__(self, checkpoint: Path, folder: Path):
        self.state = torch.load(checkpoint, weights_only=True)
        self.marker, self.path = folder / "was_here", folder / "evil.pt"
        self.code = f"__import__('pathlib').Path('{self.marker}').touch()"

    def saved(self, *, arch=None, group="model", **options) -> Path:
        of_group = self.state["cfg"][group]
        if isinstance(of_group, argparse.Namespace):
            of_group = vars(of_group)
        of_group.update({**options, **({"arch": arch, "_name": arch} if arch else {})})
        torch.save(self.state, self.path)
        return self.path


@pytest.fixture
def evil(window_checkpoint, tmp_path):
    made = Evil(window_checkpoint, tmp_path)
    yield made
    assert not made.marker.exists()


@pytest.mark.parametrize("arch, option", PAIRS)
def test_options_that_fairseq_evaluates(evil, arch, option):
    """By a command that reads the file first, and by fairseq alone (``fairseq-validate``)."""
    path = str(evil.saved(arch=arch, **{option: evil.code}))
    with pytest.raises(UserError, match=f"{path} has the option {option} = .*{REFUSED}"):
        read_checkpoint(path)
    with pytest.raises(UserError, match=f"the checkpoint has the option {option} = .*{REFUSED}"):
        checkpoint_utils.load_model_ensemble_and_task([path])


def _validate(data, path):
    from fairseq_cli import validate

    options = ["--user-dir", tiny.USER_DIR, "--path", str(path), "--max-tokens", "200", "--cpu"]
    tiny.run_main(validate.cli_main, str(data), *options, *WINDOW)


def _average(data, path):
    options = ["--inputs", str(path), "--output", str(path.parent / "mean.pt")]
    _module("average_checkpoints", *options)


def _keep_weights(data, path):
    script = Path(tiny.USER_DIR).parent / "examples/tvsub_zh_en/keep_weights.py"
    runpy.run_path(str(script))["keep_weights"](path)


def _module(name, *arguments):
    tiny.run_main(import_module(f"fairseq_docmt.{name}").main, *arguments)


def _analysis(name, data, path):
    out = [] if name == "attention_share" else ["--out", str(path.parent / "out")]
    _module(f"analysis.{name}", str(data), "--path", str(path), *out)


def _rerank_model(data, path):
    DocumentLanguageModel.load(str(path))


ENTRANCES = {
    "generate": lambda data, path: tiny.generate(data, path, *WINDOW),
    "ensemble": lambda data, path: tiny.generate(
        data, f"{path.parent / 'good.pt'}:{path}", *WINDOW
    ),
    "interactive": lambda data, path: tiny.interactive(data, path, ["w1"], *WINDOW),
    "generate, task of fairseq": lambda data, path: tiny.generate(data, path, *STOCK),
    "interactive, task of fairseq": lambda data, path: tiny.interactive(data, path, ["w1"], *STOCK),
    "validate": _validate,
    "finetune": lambda data, path: tiny.train(
        data, path.parent / "ck", *WINDOW, "--finetune-from-model", str(path)
    ),
    "restore": lambda data, path: tiny.train(
        data, path.parent / "ck", *WINDOW, "--restore-file", str(path)
    ),
    "language model": lambda data, path: tiny.generate(
        data, path.parent / "good.pt", *WINDOW, "--lm-path", str(path), "--lm-weight", "0.1"
    ),
    "Python": lambda data, path: DocumentTranslator.from_pretrained(path, data=str(data)),
    "average": _average,
    "keep_weights.py": _keep_weights,
    "rerank": _rerank_model,
}
for name in ("attention_share", "gradient_attribution", "memory_attention", "cache_matching"):
    ENTRANCES[name] = functools.partial(_analysis, name)


@pytest.mark.parametrize("way", ENTRANCES)
def test_every_entrance(evil, way, binarised, window_checkpoint, caplog):
    caplog.set_level(logging.INFO)  # as in the commands of fairseq
    evil.path.with_name("good.pt").write_bytes(window_checkpoint.read_bytes())
    path = evil.saved(arch="lstm", decoder_attention=evil.code)
    with pytest.raises(UserError, match=REFUSED):
        ENTRANCES[way](binarised, path)


@pytest.mark.parametrize(
    "group, name, value",
    [
        ("model", "anything_new", [["print(1)"]]),
        ("criterion", "wer_args", "print(1)"),
        ("model", "dropout", "${oc.env:HOME}"),
        ("task", "data", "${oc.env:HOME}"),
        ("model", "dropout", "${${x}:HOME}"),
        ("model", "dropout", "${task.data}"),
        ("model", "dropout", "${task[data]}"),
        ("model", "dropout", b"print(1)"),
        ("model", "dropout", " [open('x') for _ in 'a']"),
        ("model", "dropout", "f'{print(1)}'"),
    ],
)
def test_values_that_are_refused(group, name, value):
    settings = {"common": {}, group: {name: value}}
    for form in (settings, argparse.Namespace(**{group: argparse.Namespace(**{name: value})})):
        with pytest.raises(UserError, match=REFUSED):
            check_options(form, "it")


@pytest.mark.parametrize(
    "name, value",
    [
        ("encoder_layers", "[(512, 3)] * 20"),
        ("decoder_attention", "True"),
        ("adam_betas", "(0.9, 0.98)"),
        ("eval_bleu_args", '{"beam": 4, "max_len_a": 1.2}'),
        ("data", "corpora/wmt(en-de)/bin"),
        ("save_dir", "runs(1)"),
        ("user_dir", "../plugin(2)"),
        ("tensorboard_logdir", "logs(1)"),
        ("encoder_embed_path", "words(3).vec"),
        ("max_target_positions", "${task.max_target_positions}"),
        ("best_checkpoint_metric", "loss"),
        ("post_process", "@@ "),
        ("lr", [0.001, 2]),
        ("something", None),
    ],
)
def test_values_that_stay_allowed(name, value):
    check_options({"model": {name: value}}, "it")


def test_no_text_is_evaluated_by_fairseq():
    """What may hold any text is no option that the installed fairseq evaluates."""
    call = re.compile(r"\beval(?:_\w+)?\(\s*(?:\w+\.)*(?:args|cfg)\.(\w+)")
    root = Path(fairseq.__file__).parent
    files = [*root.glob("models/**/*.py"), *root.glob("tasks/*.py"), *root.glob("modules/*.py")]
    files += [*root.glob("criterions/*.py"), *root.glob("model_parallel/**/*.py")]
    found = {name for file in files for name in call.findall(file.read_text(encoding="utf-8"))}
    assert {"decoder_attention", "adaptive_softmax_cutoff", "pipeline_balance"} <= found
    texts = _names_of_texts()
    assert [name for name in sorted(found) if _is_text(name, texts)] == []


def test_old_options_come_first_as_in_fairseq(evil):
    """A clean configuration hides no options of the old form, which fairseq prefers."""
    evil.state["args"] = argparse.Namespace(arch="lstm", decoder_attention=evil.code)
    torch.save(evil.state, evil.path)
    with pytest.raises(UserError, match=REFUSED):
        read_checkpoint(str(evil.path))


def test_a_second_file_that_fairseq_would_read(evil, window_checkpoint):
    """A shard, or a checkpoint that an option names."""
    evil.saved(arch="lstm", decoder_attention=evil.code)
    good = evil.path.with_name("good.pt")
    good.write_bytes(window_checkpoint.read_bytes())
    read_checkpoint(str(good))
    evil.path.rename(good.with_name("good-shard0.pt"))
    with pytest.raises(UserError, match="good-shard0.pt has the option"):
        read_checkpoint(str(good))
    good.with_name("good-shard0.pt").rename(evil.path)
    naming = Evil(window_checkpoint, evil.path.parent)
    naming.path = good
    naming.saved(w2v_path=str(evil.path))
    with pytest.raises(UserError, match="evil.pt has the option"):
        read_checkpoint(str(good))


@pytest.mark.parametrize("at", [0.0, 0.5, 0.9])
def test_a_flipped_bit(window_checkpoint, tmp_path, at):
    content = bytearray(window_checkpoint.read_bytes())
    with zipfile.ZipFile(window_checkpoint) as archive:
        largest = max(archive.infolist(), key=lambda part: part.file_size)
        tensor = archive.read(largest)
    content[content.index(tensor) + int(at * len(tensor))] ^= 1
    (tmp_path / "bad.pt").write_bytes(content)
    with pytest.raises(UserError, match="is damaged or not a checkpoint"):
        load_state(str(tmp_path / "bad.pt"))


def test_a_file_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(3)}, tmp_path / "plain.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert load_state(str(tmp_path / "plain.pt"))["a"].tolist() == [1, 1, 1]


class RunsPrograms:
    def __reduce__(self):
        return (open, ("was_here", "w"))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("content", [RunsPrograms(), {"model": RunsPrograms()}])
def test_pickles_that_would_run_a_program_are_not_called_damaged(tmp_path, protocol, content):
    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(UserError, match="has objects that may run programs"):
        load_state(str(path))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_archives_that_would_run_a_program_are_not_called_damaged(tmp_path, protocol):
    torch.save({"model": RunsPrograms()}, tmp_path / "evil.pt", pickle_protocol=protocol)
    with pytest.raises(UserError, match="has objects that may run programs"):
        load_state(str(tmp_path / "evil.pt"))


@pytest.mark.parametrize("form", ["of an old version", "of today"])
def test_options_of_models_of_old_tasks(form):
    """These tasks store the options of the model too."""
    stored = {"arch": "mbart_base", "encoder_attention_heads": 2, "activation_fn": "gelu"}
    others = {"lr": [0.1], "source_lang": "de", "max_source_positions": 9}
    task = "translation_from_pretrained_bart"
    groups = _by_group(argparse.Namespace(task=task, **stored, **others))
    if form == "of today":
        whole = argparse.Namespace(_name=task, task=task, **stored, **others)
        groups = _by_group({"task": whole, "model": whole})
    file = CheckpointFile("path", groups, {}, {})
    assert (file.task, file.arch) == (task, "mbart_base")
    assert file.model_options == {"encoder_attention_heads": 2, "activation_fn": "gelu"}
