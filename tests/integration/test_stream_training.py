"""Training on streams through the stock commands: exact resumption, several processes.

Covers tasks/sentence_stream_translation.py.
"""

import re
import signal
from argparse import Namespace
from pathlib import Path

import pytest
import tiny
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import distributed_fairseq_model
from fairseq_cli import validate
from long_tests import LONG, long, long_but_for
from torch.nn.parallel import DistributedDataParallel

from fairseq_docmt._quiet import keep_logging_settings
from fairseq_docmt.errors import UserError

TRACING = str(Path(__file__).resolve().parent / "tracing")
STREAM = ["--user-dir", TRACING, "--task", "traced_stream", "--dropout", "0.1"]
STREAM += ["--batch-size", "2"]
PLAIN = ["--task", "sentence_stream_translation"]
VARIANTS = {
    "one sentence": ["--chunk-sentences", "1"],
    "random chunks": ["--chunk-sentences", "3", "--sample-chunk-sentences"],
    # Workers take their time to end, so that there are few of them.
    "workers": ["--num-workers", "1", "--chunk-sentences", "4", "--disable-validation"],
    "update frequency": ["--update-freq", "3"],
    "update frequency, chunks": ["--update-freq", "3", "--chunk-sentences", "2"],
    "no validation": ["--disable-validation", "--chunk-sentences", "2"],
}

FAST = ["update frequency, chunks"]


@pytest.fixture
def traced(monkeypatch, tmp_path):
    """Path of the trace of a run by name, after making the run write there."""

    def name(run):
        monkeypatch.setenv("TRACE", str(tmp_path / run))
        return tmp_path / f"{run}.0"

    return name


def losses(trace):
    """Lines of a trace by the number of their update."""
    found = {}
    for line in trace.read_text().splitlines():
        found.setdefault(int(line.split()[0]), []).append(line)
    return found


@pytest.mark.parametrize("variant", long_but_for(FAST, VARIANTS))
def test_losses_after_resuming_are_the_same_to_the_bit(binarised, tmp_path, traced, variant):
    arguments = [*STREAM, *VARIANTS[variant]]
    whole = traced("whole")
    tiny.train(binarised, tmp_path / "a", *arguments, updates=14, model=tiny.memory())
    parts = traced("parts")
    stops = (3, 4, 9, 14)  # in the midst of an epoch, at once again, in another epoch
    for updates in stops if variant != "workers" else (4, 14):
        tiny.train(binarised, tmp_path / "b", *arguments, updates=updates, model=tiny.memory())
    assert losses(parts) == losses(whole)
    assert len(losses(whole)) == 14


@pytest.mark.long  # test_two_processes_learn_the_same_as_one has the default
def test_pytorch_ddp(binarised, tmp_path, traced, monkeypatch):
    """torch's data parallelism gives the same result as fairseq's.

    fairseq passes numbers of GPUs, which torch refuses on a CPU.
    """

    def on_a_cpu(module, device_ids, output_device, **options):
        (tmp_path / "used").touch()
        return DistributedDataParallel(module, **options)

    monkeypatch.setattr(distributed_fairseq_model, "DistributedDataParallel", on_a_cpu)
    traced("both")
    arguments = ["--chunk-sentences", "2", "--max-update", "5", "--dropout", "0"]
    for number, backend in enumerate(("legacy_ddp", "pytorch_ddp")):
        options = [*STREAM, *arguments, "--ddp-backend", backend]
        tiny.train_in_processes(binarised, tmp_path / str(number), *options, model=tiny.memory())
        assert (tmp_path / "used").exists() == (backend == "pytorch_ddp")
    first, second = (
        tiny.weights(tmp_path / str(number) / "checkpoint_last.pt") for number in (0, 1)
    )
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    "model",
    [
        tiny.cache(),
        pytest.param(tiny.context(), marks=LONG),
        pytest.param(tiny.context("--context", "hierarchical"), marks=LONG),
    ],
    ids=["cache", "previous target", "previous sources"],
)
def test_other_document_states_resume(binarised, tmp_path, traced, model):
    """Document states with integer tensors (words, ages of slots) and float tensors resume."""
    arguments = [*STREAM, "--chunk-sentences", "2"]
    whole = traced("whole")
    tiny.train(binarised, tmp_path / "a", *arguments, updates=9, model=model)
    parts = traced("parts")
    for updates in (3, 9):
        tiny.train(binarised, tmp_path / "b", *arguments, updates=updates, model=model)
    assert losses(parts) == losses(whole)


def test_resuming_between_epochs(binarised, tmp_path, traced):
    whole = traced("whole")
    options = [*STREAM, "--chunk-sentences", "2"]
    tiny.train(
        binarised, tmp_path / "a", *options, "--max-epoch", "3", updates=99, model=tiny.memory()
    )
    parts = traced("parts")
    for epoch in ("1", "3"):
        arguments = [*options, "--max-epoch", epoch]
        tiny.train(binarised, tmp_path / "b", *arguments, updates=99, model=tiny.memory())
    assert losses(parts) == losses(whole)


def train_in_processes(data, save_dir, *arguments):
    tiny.train_in_processes(data, save_dir, *STREAM, *arguments, model=tiny.memory())


def test_a_killed_run_continues_from_its_last_checkpoint(binarised, tmp_path, traced):
    options = ["--save-interval-updates", "4", "--chunk-sentences", "2", "--max-update", "11"]

    def run(save_dir, **environment):
        arguments = [binarised, *tiny.memory(), *STREAM, "--save-dir", tmp_path / save_dir]
        process = tiny.start_training(tmp_path / "output", *arguments, *options, **environment)
        process.join(timeout=300)
        return process.exitcode

    whole = traced("whole")
    assert run("a") == 0
    before = traced("before")
    assert run("b", KILL_AT="7") == -signal.SIGKILL
    after = traced("after")
    assert run("b") == 0
    assert max(losses(before)) == 6
    assert min(losses(after)) == 5  # an epoch ended there
    assert {**losses(before), **losses(after)} == losses(whole)


@pytest.mark.long
@pytest.mark.parametrize(
    "validation",
    [[], pytest.param(["--disable-validation"], marks=LONG)],
    ids=["validation", "none"],
)
def test_two_processes_resume(binarised, tmp_path, traced, validation):
    options = ["--batch-size", "1", "--chunk-sentences", "2", "--update-freq", "3", *validation]
    whole = traced("whole")
    train_in_processes(binarised, tmp_path / "a", *options, "--max-update", "7")
    parts = traced("parts")
    for updates in ("3", "7"):
        train_in_processes(binarised, tmp_path / "b", *options, "--max-update", updates)
    for rank in ("0", "1"):
        found = [losses(trace.with_suffix(f".{rank}")) for trace in (parts, whole)]
        assert found[0] == found[1]
        assert len(found[0]) == 7


def test_two_processes_learn_the_same_as_one(tmp_path, traced):
    """Same global batch; with uneven documents, one process has only fillers at the end."""
    data = tiny.corpus(tmp_path, train=(9, 1, 2, 5))
    options = ["--dropout", "0", "--chunk-sentences", "2", "--max-epoch", "3"]
    alone, shared = traced("alone"), traced("shared")
    train_in_processes(data, tmp_path / "b", *options, "--batch-size", "2")
    traced("alone")
    tiny.train(
        data,
        tmp_path / "a",
        *[*STREAM, *options, "--batch-size", "4"],
        updates=999,
        model=tiny.memory(),
    )
    sums = []
    for traces in ([alone], [shared, shared.with_suffix(".1")]):
        totals = {}
        for trace in traces:
            for update, lines in losses(trace).items():
                totals[update] = totals.get(update, 0) + sum(float(x.split()[2]) for x in lines)
        sums.append(totals)
    assert sums[0].keys() == sums[1].keys()
    for update, total in sums[0].items():
        assert sums[1][update] == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize(
    "option", [["--update-freq", "3"], pytest.param(["--chunk-sentences", "4"], marks=LONG)]
)
def test_processes_with_nothing_left_do_not_hang(tmp_path, traced, option):
    """Every sentence is read once in an epoch, by one of the processes."""
    trace = traced("trace")
    data = tiny.corpus(tmp_path, train=(7, 1), valid=(2,))
    train_in_processes(data, tmp_path / "a", *option, "--batch-size", "1", "--max-epoch", "2")
    read = []
    for path in (trace, trace.with_suffix(".1")):
        for line in path.read_text().splitlines():
            if line.split()[1] == "False":  # not a dummy batch, whose gradients are ignored
                read += [int(row) for row in re.search(r"\[(.*?)\]", line).group(1).split(",")]
    rows = tiny.rows_of([[""] * 7, [""]])
    assert sorted(row for row in read if row >= 0) == sorted(rows * 2)


def test_validation_does_not_depend_on_chunks(binarised, tmp_path, caplog):
    """It does not depend on training either, because validation has its own lanes."""
    caplog.set_level("INFO")
    found = []
    for number, extra in enumerate(
        (["--chunk-sentences", "1"], ["--chunk-sentences", "4"], ["--batch-size-valid", "1"])
    ):
        caplog.clear()
        arguments = [*PLAIN, "--batch-size", "3", "--lr", "0", *extra]
        tiny.train(binarised, tmp_path / str(number), *arguments, updates=2, model=tiny.memory())
        found.append(re.findall(r"valid on .valid. subset \| loss ([\d.]+)", caplog.text))
    assert found[0] and found[0] == found[1] == found[2]


def test_validations_of_a_run_are_those_of_its_checkpoints(binarised, tmp_path, caplog):
    """With subsets of 4 and 3 documents, and so of different numbers of lanes."""
    caplog.set_level("INFO")
    lanes = [*PLAIN, "--batch-size", "4"]
    # Each of these checkpoints follows a validation.
    arguments = [*lanes, "--valid-subset", "test,valid", "--save-interval-updates", "5"]
    tiny.train(binarised, tmp_path, *arguments, "--lr", "0.05", updates=10, model=tiny.han())
    of_training = caplog.text
    checkpoints = sorted(tmp_path.glob("checkpoint_[0-9]*.pt"))
    assert len(checkpoints) == 2
    for subset in ("test", "valid"):
        printed = rf"valid on '{subset}' subset \| loss ([\d.]+)"
        alone = []
        for checkpoint in checkpoints:
            command = [binarised, "--path", checkpoint, *lanes, "--valid-subset", subset]
            command += ["--user-dir", tiny.USER_DIR, *tiny.DEVICE, "--num-workers", "0"]
            with keep_logging_settings():
                output = tiny.run_main(validate.cli_main, *command, "--no-progress-bar")
            alone += re.findall(printed, output)
        assert len(alone) == 2
        assert re.findall(printed, of_training) == alone


def test_validation_bleu_decodes_streams(binarised, tmp_path, caplog):
    caplog.set_level("INFO")
    arguments = [*PLAIN, "--batch-size", "2", "--chunk-sentences", "3", "--eval-bleu"]
    arguments += ["--eval-bleu-args", '{"beam": 2, "max_len_b": 10}', "--lr", "0.02"]
    checkpoint = tiny.train(binarised, tmp_path, *arguments, updates=40, model=tiny.memory())
    logged = re.findall(r"valid on .valid. subset.* bleu ([\d.]+)", caplog.text)[-1]
    assert float(logged) == pytest.approx(tiny.valid_bleu(binarised, checkpoint, *PLAIN), abs=0.011)
    assert float(logged) > 1


def test_validation_translates_as_the_command_does(binarised, memory_stream_checkpoint):
    """Batches of a stream, as they are decoded for validation BLEU."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(memory_stream_checkpoint)])
    task.load_dataset("valid")
    arguments = Namespace(beam=3, max_len_b=12)
    generator, found = task.build_generator(models, arguments), {}
    iterator = task.get_batch_iterator(task.dataset("valid"), max_sentences=2)
    for batch in iterator.next_epoch_itr(shuffle=False):
        rows = task.validation_units(batch)
        hypotheses = task.inference_step(generator, models, rows)
        ids = [row for row in batch["id"].tolist() if row >= 0]
        assert len(hypotheses) == len(ids) == len(rows["target"])
        for row, (best, *_) in zip(ids, hypotheses):
            found[row] = task.tgt_dict.string(best["tokens"])
    arguments = [*PLAIN, "--gen-subset", "valid"]
    output = tiny.generate(binarised, memory_stream_checkpoint, *arguments)
    assert found == tiny.lines_of(output)


@pytest.mark.parametrize(
    "model, options, message",
    [
        (tiny.MODEL, ["--batch-size", "2"], "--arch transformer has no document state"),
        (tiny.memory(), ["--max-tokens", "100"], "give --batch-size, the number of documents"),
        (
            tiny.memory(),
            ["--batch-size", "2", "--chunk-sentences", "0"],
            "--chunk-sentences must be at least 1, got 0",
        ),
    ],
)
def test_invalid_combinations_are_refused(binarised, tmp_path, model, options, message):
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *PLAIN, *options, model=model)


ORDER = ["--batch-size", "2", "--chunk-sentences", "2"]


@pytest.mark.parametrize(
    "other, message",
    [
        (["--batch-size", "3"], "with --batch-size 2, not 3, which would leave sentences out"),
        long(["--chunk-sentences", "4"], "with --chunk-sentences 2, not 4"),
        long(["--seed", "7"], "with --seed 1, not 7"),
        long(["--sample-chunk-sentences"], "with --sample-chunk-sentences False, not True"),
        long(["--max-source-positions", "20"], "with --max-source-positions 1024, not 20"),
    ],
)
def test_another_order_is_for_another_epoch(binarised, tmp_path, other, message):
    """Within an epoch, another order would skip sentences; between epochs it is allowed."""
    arguments = [*PLAIN, *ORDER]
    tiny.train(binarised, tmp_path, *arguments, updates=2, model=tiny.memory())
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *arguments, *other, updates=4, model=tiny.memory())
    whole = [*arguments, "--max-epoch", "1"]
    tiny.train(binarised, tmp_path, *whole, updates=99, model=tiny.memory())
    again = [*arguments, *other, "--max-epoch", "2"]
    path = tiny.train(binarised, tmp_path, *again, updates=99, model=tiny.memory())
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert state["extra_state"]["train_iterator"]["epoch"] == 3


@pytest.mark.parametrize(
    "model, option, earlier_version",
    [
        long(tiny.multi_encoder(), "--context-sentences", False),
        long(tiny.multi_encoder(), "--context-sentences", True),
        (tiny.han(), "--context-sentences", True),
        long(tiny.cache(), "--cache-size", False),
        long(tiny.memory(), "--memory-gradient-sentences", False),
    ],
)
def test_document_states_keep_their_size(binarised, tmp_path, model, option, earlier_version):
    """Within an epoch another size would not fit the states; between epochs it is allowed.

    Checkpoints of earlier versions do not have the option.
    """
    arguments, other = [*PLAIN, *ORDER], [*model, option, "2"]
    path = tiny.train(binarised, tmp_path, *arguments, updates=2, model=[*model, option, "3"])
    if earlier_version:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        state["extra_state"]["train_iterator"].pop("carries_decided_by", None)
        torch.save(state, path)
    with pytest.raises(UserError, match=f"in the middle of an epoch with {option} 3, not 2, "):
        tiny.train(binarised, tmp_path, *arguments, updates=4, model=other)
    whole = [*arguments, "--max-epoch", "1"]
    tiny.train(binarised, tmp_path, *whole, updates=99, model=[*model, option, "3"])
    tiny.train(binarised, tmp_path, *arguments, "--max-epoch", "2", updates=99, model=other)


def test_a_training_whose_gradients_are_not_there_any_more(binarised, tmp_path):
    """Checkpoints of earlier versions have ``exact_memory_gradient``, mostly False."""
    arguments = [*PLAIN, "--batch-size", "2"]
    path = tiny.train(binarised, tmp_path, *arguments, updates=2, model=tiny.memory())
    for exact in (False, True):
        state = torch.load(path, weights_only=True)
        settings = state["cfg"]["model"]
        settings = vars(settings) if isinstance(settings, Namespace) else settings
        settings.update(exact_memory_gradient=exact)
        torch.save(state, path)
        tiny.generate(binarised, path, *PLAIN)
        if not exact:
            tiny.train(binarised, tmp_path, *arguments, updates=3, model=tiny.memory())
    with pytest.raises(UserError, match="trained with --exact-memory-gradient, which is not there"):
        tiny.train(binarised, tmp_path, *arguments, updates=4, model=tiny.memory())
    start = ["--finetune-from-model", str(path)]
    tiny.train(binarised, tmp_path / "new", *arguments, *start, updates=1, model=tiny.memory())


def test_fillers_are_no_sentences(binarised, memory_stream_checkpoint):
    """Fillers are not counted in batches or in averages over sentences."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(memory_stream_checkpoint)])
    task.load_dataset("valid")
    iterator = task.get_batch_iterator(task.dataset("valid"), max_sentences=3)
    counts = []
    for average in (False, True):
        criterion = CrossEntropyCriterion(task, sentence_avg=average)
        for batch in iterator.next_epoch_itr(shuffle=False):
            real = int(batch["id"].ge(0).sum())
            counts.append((real, len(batch["id"])))
            optimizer = Namespace(backward=lambda loss: None, param_groups=[])
            learner = (models[0], criterion, optimizer, 0)
            for _, size, log in (
                task.valid_step(batch, models[0], criterion),
                task.train_step(batch, *learner),
            ):
                assert log["nsentences"] == real
                assert size == log["sample_size"] == (real if average else batch["ntokens"])
    assert any(real < rows for real, rows in counts)


def test_sentences_that_are_too_long_are_left_out(binarised, tmp_path, caplog):
    arguments = [*PLAIN, "--batch-size", "2", "--max-source-positions", "5"]
    with pytest.raises(UserError, match="valid.*: line 3 has more than 5 source or "):
        tiny.train(binarised, tmp_path, *arguments, updates=2, model=tiny.memory())
    arguments.append("--skip-invalid-size-inputs-valid-test")
    tiny.train(binarised, tmp_path, *arguments, updates=2, model=tiny.memory())
    assert "such sentences are left out" in caplog.text


def test_the_document_state_is_in_the_checkpoint(binarised, tmp_path):
    arguments = [*PLAIN, "--batch-size", "2"]
    path = tiny.train(binarised, tmp_path, *arguments, updates=2, model=tiny.memory())
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    (doc_state,) = state["extra_state"]["train_iterator"]["carries"]
    assert doc_state["encoder.0.memory"].shape == (2, 4, 16)


@torch.no_grad()
def test_ignored_prefixes_count_in_no_row(binarised):
    """``--ignore-prefix-size``, with the rows of a batch in groups of similar length."""
    arguments = [str(binarised), "-s", "src", "-t", "tgt", "--ignore-prefix-size", "2"]
    arguments += [*PLAIN, "--chunk-sentences", "4", *tiny.memory(), *tiny.TRAINING]
    parsed = options.parse_args_and_arch(options.get_training_parser(), arguments)
    cfg = convert_namespace_to_omegaconf(parsed)
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    criterion, model = (
        task.build_criterion(cfg.criterion),
        task.build_model(cfg.model, from_checkpoint=True).eval(),
    )
    batches = task.get_batch_iterator(task.dataset("train"), max_sentences=6)
    sample = next(batches.next_epoch_itr(shuffle=False))
    assert sample["net_input"]["row_groups"] is not None
    _, _, found = task.valid_step(sample, model, criterion)
    logits, _ = model(**{**sample["net_input"], "row_groups": None})
    target = sample["target"][:, 2:]
    lprobs = logits[:, 2:].log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    wanted = -lprobs[target.ne(task.tgt_dict.pad())].sum()
    assert float(found["nll_loss"]) == pytest.approx(float(wanted), rel=1e-5)


def test_more_lanes_than_documents_are_noted(binarised, tmp_path, caplog):
    for size, noted in (("5", False), ("6", True)):
        arguments = [*PLAIN, "--batch-size", size]
        tiny.train(binarised, tmp_path / size, *arguments, updates=1, model=tiny.memory())
        assert (f"--batch-size {size} makes more lanes than there are doc" in caplog.text) == noted
