"""Options that decide what an epoch of training reads.

Each of them works with resuming in the middle of an epoch, several workers, several processes and
several batches per update, and leaves validation alone.

Covers tasks/_training_examples.py.
"""

import shutil
from types import SimpleNamespace

import pytest
import tiny
import torch
from fairseq import options as parsing
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from long_tests import LONG, long_but_for

from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks._option_checks import report_of_start

WINDOWS = ["--task", "sliding_window_translation", "--window-size", "3"]
DOCUMENTS = ["--task", "full_document_translation", "--max-document-tokens", "20"]
STREAM = ["--task", "sentence_stream_translation"]
OPTIONS = {
    "stride": [*WINDOWS, "--window-stride", "2"],
    "sizes": [*WINDOWS, "--sample-window-size", "--loss-on", "last"],
    "next": [*WINDOWS, "--next-sentences", "1", "--sample-window-size"],
    "pairs": [*WINDOWS, "--sentence-data", "PAIRS", "--sentence-ratio", "0.3"],
    "documents and pairs": [*DOCUMENTS, "--sentence-data", "PAIRS"],
    "lengths": [*DOCUMENTS, "--document-parts", "1,2,9", "--sample-document-parts"],
    "words": [*WINDOWS, "--coword-dropout", "0.3"],
    "words of both sides": [*DOCUMENTS, "--word-dropout", "0.3", "--word-dropout-epochs", "3"],
}


@pytest.fixture(scope="module")
def sentence_pairs(binarised, made_once):
    """Folder of binarised sentence pairs in the dictionaries of the documents."""
    words = ["--srcdict", binarised / "dict.src.txt", "--tgtdict", binarised / "dict.tgt.txt"]

    def build(folder):
        for split in ("train", "valid"):
            tiny.write_split(folder, split, tiny.documents((25, 9), 8))
        tiny.preprocess(folder, ["train", "valid"], *map(str, words))

    return made_once("sentence pairs", build) / "bin"


@pytest.fixture(params=long_but_for(["documents and pairs"], OPTIONS))
def options(request, sentence_pairs):
    return [str(sentence_pairs) if word == "PAIRS" else word for word in OPTIONS[request.param]]


def task_of(data, *arguments, from_checkpoint=False):
    command = [str(data), "--user-dir", tiny.USER_DIR, *tiny.MODEL, *tiny.TRAINING, *arguments]
    args = parsing.parse_args_and_arch(parsing.get_training_parser(), command)
    cfg = convert_namespace_to_omegaconf(args).task
    return tasks.setup_task(cfg, from_checkpoint=from_checkpoint)


def remembered(arguments):
    """Of the options those that validation and decoding have too."""
    names = ("--task", "--window-size", "--loss-on", "--next-sentences", "--max-document-tokens")
    places = [place for place, name in enumerate(arguments) if name in names]
    return [word for place in places for word in arguments[place : place + 2]]


def read(data, arguments, *, split="train", epoch=1, shards=1, workers=0, from_checkpoint=False):
    """Return source and target of the examples that all processes read in one epoch, sorted."""
    examples = []
    for shard in range(shards):
        task = task_of(data, *arguments, "--max-tokens", "60", from_checkpoint=from_checkpoint)
        task.load_dataset(split)
        batches = task.get_batch_iterator(
            task.dataset(split),
            max_tokens=60,
            max_positions=(1024, 1024),
            num_shards=shards,
            shard_id=shard,
            num_workers=workers,
            epoch=epoch,
        )
        pad = task.source_dictionary.pad()
        for sample in batches.next_epoch_itr(shuffle=True):
            inputs = sample["net_input"]
            sides = (inputs["src_tokens"], inputs["prev_output_tokens"], sample["target"])
            for rows in zip(*sides):
                examples.append(tuple(tuple(row[row.ne(pad)].tolist()) for row in rows))
    return sorted(examples)


def test_resuming_in_the_middle_of_an_epoch(binarised, tmp_path, options):
    """The second run begins within a later epoch and has other processes that read examples."""
    shared = ["--max-tokens", "40", "--dropout", "0.1", "--update-freq", "2", "--lr", "0.01"]
    whole = tiny.train(binarised, tmp_path / "whole", *options, *shared, updates=14)
    for updates in (7, 8):  # one of them is within an epoch
        stopped = tiny.train(binarised, tmp_path / "parts", *options, *shared, updates=updates)
        progress = torch.load(stopped, weights_only=False)["extra_state"]["train_iterator"]
        if progress["iterations_in_epoch"] > 0:
            break
    assert progress["epoch"] > 1 and progress["iterations_in_epoch"] > 0
    workers = ["--num-workers", "2"]
    parts = tiny.train(binarised, tmp_path / "parts", *options, *shared, *workers, updates=14)
    tiny.assert_same_weights(whole, parts)


def test_processes_and_workers_agree(binarised, options):
    one = read(binarised, options, epoch=3)
    assert read(binarised, options, epoch=3, shards=2) == one
    assert read(binarised, options, epoch=3, workers=2) == one
    assert read(binarised, options, epoch=3) == one


def test_epochs_and_seeds_differ(binarised, options):
    found = [read(binarised, options, epoch=epoch) for epoch in (1, 2, 3, 4)]
    assert any(other != found[0] for other in found)
    assert read(binarised, [*options, "--seed", "7"], epoch=1) != found[0]


def test_epochs_after_word_dropout(binarised):
    few = [*WINDOWS, "--word-dropout", "0.5", "--word-dropout-epochs", "1"]
    plain = read(binarised, WINDOWS)
    assert read(binarised, few, epoch=2) == plain != read(binarised, few, epoch=1)


@pytest.mark.parametrize(
    "task, others",
    [
        (
            WINDOWS,
            [
                ["--window-stride", "2"],
                ["--sample-window-size"],
                ["--window-size", "2"],
                ["--loss-on", "last"],
                ["--next-sentences", "1"],
                ["--mark-document-start"],
                ["--truncate-source"],
                ["--max-source-positions", "20"],
                ["--max-target-positions", "20"],
                DOCUMENTS,
            ],
        ),
        (
            DOCUMENTS,
            [
                ["--max-document-tokens", "10"],
                ["--document-parts", "1,2"],
                ["--word-dropout", "0.1"],
                WINDOWS,
            ],
        ),
    ],
    ids=["windows", "documents"],
)
def test_options_of_an_epoch_stay_as_they_are(binarised, tmp_path, task, others):
    arguments = ["--max-tokens", "30", "--override-checkpoint-options"]
    tiny.train(binarised, tmp_path, *task, *arguments, updates=2)
    for given in others:
        with pytest.raises(UserError, match=f"in the middle of an epoch with {given[0]} "):
            kind = [] if given[0] == "--task" else task
            tiny.train(binarised, tmp_path, *kind, *arguments, *given, updates=4)


@pytest.mark.parametrize(
    "task, model",
    [(WINDOWS, tiny.MODEL), (DOCUMENTS, tiny.MODEL), (STREAM, tiny.memory())],
    ids=["windows", "documents", "stream"],
)
def test_the_text_of_an_epoch_stays_as_it_is(binarised, tmp_path, task, model):
    """Another text with as many documents and sentences; between epochs it is allowed."""
    shutil.copytree(binarised, tmp_path / "data")
    other = tiny.corpus(tmp_path / "other", train=(1, 4, 6, 3, 5))
    options = [*task, "--batch-size", "2"]
    tiny.train(tmp_path / "data", tmp_path / "ck", *options, model=model, updates=2)
    for path in other.glob("train.*"):
        shutil.copy(path, tmp_path / "data")
    with pytest.raises(UserError, match="in the middle of an epoch with text of checksum .*, not "):
        tiny.train(tmp_path / "data", tmp_path / "ck", *options, model=model, updates=4)
    tiny.train(
        tmp_path / "data", tmp_path / "ck", *options, "--reset-dataloader", model=model, updates=4
    )


def test_validation_is_that_of_the_task(binarised, options):
    plain = remembered(options)
    assert read(binarised, options, split="valid") == read(binarised, plain, split="valid")


def test_a_checkpoint_reads_the_training_set_as_a_validation_set(binarised, options):
    """As ``fairseq-validate --valid-subset train`` does."""
    found = read(binarised, options, from_checkpoint=True)
    assert found == read(binarised, remembered(options))


def test_a_checkpoint_keeps_the_ratio_of_lengths_that_it_learned(binarised):
    task = task_of(binarised, *DOCUMENTS, from_checkpoint=True)
    task.options["target_ratio"] = 2.5
    task.load_dataset("train")
    assert task.options["target_ratio"] == 2.5


def test_documents_in_several_lengths_are_all_read(binarised, tmp_path):
    """Each document is read once for each number of parts, whole sentences at a time."""
    several = [*DOCUMENTS, "--document-parts", "1,99"]
    epoch = read(binarised, several)
    assert set(read(binarised, DOCUMENTS)) <= set(epoch)
    single = set(read(binarised, [*WINDOWS, "--window-size", "1"]))
    assert single <= set(epoch)
    assert read(binarised, several, split="valid") == read(binarised, DOCUMENTS, split="valid")
    arguments = [*several, "--max-tokens", "60", "--update-freq", "2"]
    tiny.train_in_processes(binarised, tmp_path, *arguments, "--max-epoch", "2")


def test_options_of_an_optimizer_that_a_resumed_training_does_not_take(binarised, tmp_path, caplog):
    decay = ["--optimizer", "adam", "--weight-decay", "0.1"]
    tiny.train(binarised, tmp_path, *WINDOWS, *decay, updates=2)
    others = ["--optimizer", "adam", "--weight-decay", "0.2", "--adam-betas", "(0.9, 0.98)"]
    tiny.train(binarised, tmp_path, *WINDOWS, *others, "--lr", "0.02", updates=4)
    named = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert named == [
        f"training goes on with {used}, from the checkpoint or --optimizer-overrides, not with "
        f"{given}; to change it, give --optimizer-overrides \"{{'{used.split()[0]}': ...}}\""
        for used, given in (("betas (0.9, 0.999)", "(0.9, 0.98)"), ("weight_decay 0.1", "0.2"))
    ]
    caplog.clear()
    tiny.train(binarised, tmp_path, *WINDOWS, *decay, updates=6)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize(
    "model, before, changed, said",
    [
        (
            tiny.han(),
            ["--context-sentences", "3", "--dropout", "0.1"],
            ["--context-sentences", "1", "--dropout", "0.3"],
            "--dropout 0.3 (before: 0.1), --context-sentences 1 (before: 3)",
        ),
        pytest.param(
            None,
            [],
            ["--encoder-attention-heads", "1"],
            "--encoder-attention-heads 1 (before: 2)",
            marks=LONG,
        ),
    ],
)
def test_options_of_the_model_that_change_at_resume(
    binarised, tmp_path, caplog, model, before, changed, said
):
    task = "sentence_stream_translation" if model else "sliding_window_translation"
    options = ["--task", task, "--max-epoch", "1", "--batch-size", "4", "--dropout", "0.1"]
    model = {} if model is None else {"model": model}
    tiny.train(binarised, tmp_path, *options, **model)
    warned = lambda: [r.message for r in caplog.records if "options of the" in r.message]  # noqa: E731
    goes_on = f"training goes on with other options of the model: {said}"
    for more, wanted in ([], []), (changed, [goes_on]):
        options[3] = str(int(options[3]) + 1)
        tiny.train(binarised, tmp_path, *options, *more, updates=99, **model)
        assert warned() == wanted
    caplog.clear()
    start = ["--finetune-from-model", str(tmp_path / "checkpoint_last.pt")]
    for more, known in (changed, []), (before, [said.split(", ")[-1]]):
        tiny.train(binarised, tmp_path / f"{len(known)}", *options, *start, *more, **model)
        assert len(warned()) == len(known)
        for text in known:
            name, now, _, then = text.split(" ")
            starts = "training starts from a checkpoint with other options of the model: "
            assert warned() == [f"{starts}{name} {then[:-1]} (before: {now})"]


@pytest.mark.parametrize("shares", [True, False])
def test_an_option_that_another_sets_has_not_changed(caplog, shares):
    """While it builds a model, fairseq adds the second to --share-all-embeddings."""
    stored = {"share_all_embeddings": shares, "share_decoder_input_output_embed": True}
    start = SimpleNamespace(resumes=False, file=SimpleNamespace(model_options=stored, settings={}))
    given = {**stored, "share_decoder_input_output_embed": False}
    report_of_start(SimpleNamespace(start=start, cfg=None), SimpleNamespace(**given))
    assert ("--share-decoder-input-output-embed False (before: True)" in caplog.text) != shares


def test_sentence_pairs_with_swapped_sides_are_noted(binarised, tmp_path, caplog):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.src").write_text("v1 v2\nv3\n")
        (tmp_path / f"{split}.tgt").write_text("w1 w2\nw3\n")
    dictionaries = [
        "--srcdict",
        binarised / "dict.src.txt",
        "--tgtdict",
        binarised / "dict.tgt.txt",
    ]
    pairs = tiny.preprocess(tmp_path, ["train", "valid"], *map(str, dictionaries))
    tiny.train(binarised, tmp_path / "a", *WINDOWS, "--sentence-data", str(pairs), updates=1)
    for side in ("source", "target"):
        assert f"100 % of the {side} tokens are not in the dictionary; look whether" in caplog.text
    path = pairs / "train.src-tgt.tgt.bin"
    path.write_bytes(b"\5\0" + path.read_bytes()[2:])  # another first word
    again = [*WINDOWS, "--sentence-data", str(pairs), "--reset-dataloader"]
    tiny.train(binarised, tmp_path / "a", *again, updates=2)
    changed = "goes on with other files of --sentence-data than before, which changed: train.src-"
    assert changed in caplog.text


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_layers_of_a_stock_transformer_are_kept(binarised, tmp_path, side):
    """fairseq reads the option as a list, and then splits it at commas."""
    model = [*tiny.MODEL, f"--{side}-layers", "3", f"--{side}-layers-to-keep", "0,2"]
    path = tiny.train(binarised, tmp_path, *WINDOWS, updates=1, model=model)
    found = {name.split(".")[2] for name in tiny.weights(path) if f"{side}.layers" in name}
    assert found == {"0", "1"}


def test_a_training_resumed_without_the_state_of_the_optimizer(binarised, tmp_path, caplog):
    options = [*WINDOWS, "--no-save-optimizer-state"]
    tiny.train(binarised, tmp_path, *options, updates=2)
    assert "has no state of the optimizer" not in caplog.text
    tiny.train(binarised, tmp_path, *options, updates=3)
    sentence = f"{tmp_path}/checkpoint_last.pt has no state of the optimizer"
    start = ["--finetune-from-model", str(tmp_path / "checkpoint_last.pt")]
    tiny.train(binarised, tmp_path / "new", *WINDOWS, *start, updates=1)
    found = [record.levelname for record in caplog.records if sentence in record.message]
    assert found == ["WARNING"]
