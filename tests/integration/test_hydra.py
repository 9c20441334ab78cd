"""fairseq-hydra-train gives what fairseq-train gives, for each architecture and task."""

import subprocess
import sys
from pathlib import Path

import pytest
import tiny
import yaml
from architectures import OWN
from long_tests import LONG, long_but_for

WINDOWS = ["--task", "sliding_window_translation", "--window-size", "3"]
DOCUMENTS = ["--task", "full_document_translation", "--max-document-tokens", "20"]
STREAM = ["--task", "sentence_stream_translation", "--chunk-sentences", "2"]
#: options of a training with few updates, in the words of both commands
SHARED = {
    "common": {"cpu": True, "no_progress_bar": True, "user_dir": tiny.USER_DIR},
    "dataset": {"num_workers": 0, "validate_interval": 1000},
    "optimization": {"max_update": 2, "lr": [0.003]},
    "checkpoint": {"no_epoch_checkpoints": True, "save_interval": 1000},
    "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
    "optimizer": {"_name": "adam"},
    "lr_scheduler": {"_name": "fixed"},
}
#: task, model and size of batches by a name of the run
RUNS = {
    "transformer": (WINDOWS, tiny.MODEL),
    "transformer_iwslt_de_en": (WINDOWS, ["--arch", "transformer_iwslt_de_en", *tiny.MODEL[2:-4]]),
    "rfa_transformer": (WINDOWS, tiny.rfa("--sentence-gate", "decay")),
    "rfa_transformer_iwslt": (
        DOCUMENTS,
        # without --decoder-embed-dim, which follows --encoder-embed-dim
        ["--arch", "rfa_transformer_iwslt", "--encoder-embed-dim", "16", "--random-matrices", "8"],
    ),
    "window_attn_transformer": (DOCUMENTS, tiny.window("--full-cross-attention")),
    "lst_transformer": (DOCUMENTS, tiny.lst()),
    "g_transformer": (DOCUMENTS, tiny.group()),
    "han_transformer": (STREAM, tiny.han("--context-side", "target")),
    "multi_encoder_transformer": (STREAM, tiny.multi_encoder("--context-fusion", "sum")),
    "memory_transformer": (STREAM, tiny.memory("--memory-layers", "0")),
    "rnnsearch": (WINDOWS, tiny.rnnsearch()),
    "rnnsearch_512": (WINDOWS, ["--arch", "rnnsearch_512", "--dropout", "0.3"]),
    "cache_rnn": (STREAM, tiny.cache("--context-integration", "shallow")),
    "memnet_rnn": (
        ["--task", "document_rows_translation", "--gold-drafts"],
        tiny.memnet("--context-side", "target"),
    ),
    "context_rnn": (STREAM, tiny.context("--context", "hierarchical")),
}
#: each task, with and without a dataclass
FAST = ["transformer", "memory_transformer", "memnet_rnn"]


def group(flags) -> dict:
    """Flags as a group of a configuration: ``--memory-size 8`` is ``memory_size: 8``."""
    found, flags = {}, list(flags)
    while flags:
        name = flags.pop(0)[2:].replace("-", "_")
        name = "_name" if name in ("task", "arch") else name
        valued = flags and not flags[0].startswith("--")
        found[name] = yaml.safe_load(flags.pop(0)) if valued else True
    return found


def batches(task) -> dict:
    """The option that limits batches, which is not the same for streams."""
    return {"batch_size": 2} if task[1] == STREAM[1] else {"max_tokens": 200}


@pytest.fixture
def hydra_train(binarised, tmp_path, monkeypatch):
    """Function that trains with a configuration and overrides, and returns the folder to run in."""

    def run(task, model, *overrides: str) -> Path:
        monkeypatch.chdir(tmp_path)
        config = {
            **SHARED,
            "dataset": {**SHARED["dataset"], **batches(task)},
            "task": {**group(task), "data": str(binarised)},
            "model": group(model),
        }
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config))
        tiny.hydra_train(tmp_path, "tiny", *overrides)
        return tmp_path

    return run


def state_of(checkpoint: Path) -> dict:
    from fairseq import checkpoint_utils

    return checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))


def losses(state: dict) -> list:
    """Sums of the losses of training and validation."""
    found = [
        (group, name, meter["sum"])
        for group, meters in state["extra_state"]["metrics"].items()
        for _, name, kind, meter in meters
        if name == "loss"
    ]
    return [*found, state["extra_state"]["val_loss"]]


@pytest.mark.parametrize("name", long_but_for(FAST, RUNS))
def test_the_loss_is_that_of_fairseq_train(binarised, hydra_train, tmp_path, name):
    task, model = RUNS[name]
    ((option, value),) = batches(task).items()
    by_flags = tiny.train(
        binarised,
        tmp_path / "flags",
        *task,
        *[f"--{option.replace('_', '-')}", str(value), "--label-smoothing", "0.1"],
        updates=2,
        model=model,
    )
    by_flags = state_of(by_flags)
    by_hydra = state_of(hydra_train(task, model) / "run" / "checkpoints" / "checkpoint_last.pt")
    assert losses(by_flags) == losses(by_hydra)
    assert len(losses(by_flags)) > 1
    assert by_flags["model"].keys() == by_hydra["model"].keys()
    for key, value in by_flags["model"].items():
        assert value.equal(by_hydra["model"][key]), key


@pytest.mark.long  # a process that imports everything
def test_the_loss_is_that_of_a_new_process(hydra_train):
    """Where fairseq reads the configuration before it imports the package."""
    here = hydra_train(*RUNS["memory_transformer"])
    command = "import sys; from fairseq_cli.hydra_train import cli_main; cli_main()"
    options = ["--config-dir", str(here), "--config-name", "tiny", "hydra.run.dir=new"]
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", command, *options],
        cwd=here,
        check=True,
        capture_output=True,
    )
    last = "checkpoints/checkpoint_last.pt"
    assert losses(state_of(here / "run" / last)) == losses(state_of(here / "new" / last))


def test_all_architectures_are_trained():
    assert OWN.keys() <= RUNS.keys(), f"add {OWN.keys() - RUNS.keys()} to RUNS"
    assert {run[0][1] for run in RUNS.values()} == {
        *(WINDOWS[1], DOCUMENTS[1], STREAM[1]),
        "document_rows_translation",
    }


# ---- overrides, --multirun, decoding -------------------------------------------------------------


def test_overrides_change_options_of_each_group(hydra_train):
    folder = hydra_train(
        *RUNS["memory_transformer"],
        *["model.memory_size=6", "+model.dropout=0.3", "task.chunk_sentences=1"],
        *["+task.max_source_positions=50", "optimization.max_update=1", "~model.decoder_embed_dim"],
    )
    state = state_of(folder / "run" / "checkpoints" / "checkpoint_last.pt")
    model = state["cfg"]["model"]
    assert (model["memory_size"], model["dropout"], model["max_source_positions"]) == (6, 0.3, 50)
    assert model["decoder_embed_dim"] == model["encoder_embed_dim"] == 16
    assert state["optimizer_history"][-1]["num_updates"] == 1
    assert state["model"]["encoder.memories.0.initial"].shape[0] == 6


def test_each_run_of_multirun_has_its_own_best_checkpoint(hydra_train):
    """Also one that is worse than the run before it in the same process."""
    folder = hydra_train(
        *RUNS["memory_transformer"],
        *["--multirun", "optimization.lr=[0.01],[0.00001]", "hydra.sweep.dir=runs"],
        *["hydra.sweep.subdir=${hydra.job.num}", "checkpoint.save_interval=1"],
        *["dataset.validate_interval=1", "checkpoint.patience=1", "optimization.max_epoch=2"],
        "optimization.max_update=0",
    )
    found = []
    for number in range(2):
        checkpoints = folder / "runs" / str(number) / "checkpoints"
        best, last = (state_of(checkpoints / f"checkpoint_{name}.pt") for name in ("best", "last"))
        found += best["cfg"]["optimization"]["lr"]
        assert best["extra_state"]["best"] == best["extra_state"]["val_loss"]
        assert last["extra_state"]["train_iterator"]["epoch"] == 3
    assert found == [0.01, 0.00001]


def test_a_checkpoint_is_decoded_and_its_options_overridden(binarised, hydra_train):
    task, model = RUNS["window_attn_transformer"]
    checkpoint = hydra_train(task, model) / "run" / "checkpoints" / "checkpoint_last.pt"
    narrow = ["--model-overrides", "{'full_cross_attention': False}"]
    printed = [
        tiny.generate(binarised, checkpoint, *DOCUMENTS, *more, "--max-tokens", "100")
        for more in ([], narrow)
    ]
    assert tiny.lines_of(printed[0]).keys() == tiny.lines_of(printed[1]).keys()
    assert tiny.scores_of(printed[0]) != tiny.scores_of(printed[1])


# ---- configurations of the recipes ---------------------------------------------------------------

SMALL = {
    "transformer": "encoder_layers=1 decoder_layers=1 encoder_embed_dim=16 encoder_ffn_embed_dim=8 "
    "share_all_embeddings=false",
    "rnn": "encoder_embed_dim=8 decoder_embed_dim=8 encoder_hidden_size=8 decoder_hidden_size=8",
}


@pytest.mark.parametrize(
    "recipe, system, sizes, more",
    [
        ("wu2022_rfa", "rfa-sgate", "transformer", "random_matrices=8"),
        pytest.param("feng2022_memory", "both", "transformer", "memory_layers=0", marks=LONG),
        pytest.param(
            *("herold2023_window_attention", "window", "transformer", "attention_window=3"),
            marks=LONG,
        ),
        pytest.param("tu2018_cache", "cache", "rnn", "cache_size=3", marks=LONG),
        pytest.param(
            *("maruf2018_memnet", "target", "rnn", "context_integration=output"), marks=LONG
        ),
    ],
)
def test_a_recipe_trains(binarised, tmp_path, monkeypatch, recipe, system, sizes, more):
    monkeypatch.chdir(tmp_path)
    alone = {  # without drafts, and without the first pass of training
        "maruf2018_memnet": ["task.drafts=null", "+task.gold_drafts=true"],
        "tu2018_cache": ["task.freeze_pretrained=false"],
    }.get(recipe, [])
    tiny.hydra_train(
        tiny.ROOT / "examples" / recipe / "config",
        recipe.split("_")[0],
        *[f"system={system}", f"common.user_dir={tiny.USER_DIR}", f"task.data={binarised}"],
        *[f"++model.{size}" for size in [*SMALL[sizes].split(), more]],
        *["common.cpu=true", "dataset.num_workers=0", "optimization.max_update=1", *alone],
    )
    state = state_of(tmp_path / "run" / "checkpoints" / "checkpoint_best.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 1


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "override, message",
    [
        ("model.memory_size=0", "--memory-size must be at least 1, got 0"),
        ("task.chunk_sentences=0", "--chunk-sentences must be at least 1, got 0"),
        ("task.data=nowhere", "data directory nowhere not found"),
        ("task.data=null", "no data directory given; give the folder of fairseq-preprocess"),
    ],
)
def test_a_wrong_value_gets_one_sentence(hydra_train, capfd, override, message):
    with pytest.raises(SystemExit):
        hydra_train(*RUNS["memory_transformer"], override)
    printed = capfd.readouterr().err
    assert message in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    "name, override, message",
    [
        ("rfa_transformer", "+model.rfa=true", "Key 'rfa' not in 'rfa_transformer_options'"),
        ("rfa_transformer_iwslt", "+model.rfa=1", "Key 'rfa' not in 'rfa_transformer_options'"),
        ("memory_transformer", "model.memory_size=large", "Value 'large'"),
        ("memory_transformer", "+model.context_side=left", "Invalid value 'left'"),
        ("memory_transformer", "+task.chunk=2", "Key 'chunk' not in 'SentenceStream"),
    ],
)
def test_unknown_options_and_wrong_types_are_refused(hydra_train, capfd, name, override, message):
    """By fairseq, with a traceback before the message."""
    with pytest.raises(SystemExit):
        hydra_train(*RUNS[name], override)
    assert message in capfd.readouterr().err
