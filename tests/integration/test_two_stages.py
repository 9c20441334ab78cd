"""Training in two stages: a sentence-level model, then the parameters that an architecture adds.

Covers models/base.py, optim/grouped_adam.py, tasks/starts/weights.py.
"""

import shutil
from pathlib import Path

import pytest
import tiny
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim import AMPOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from long_tests import LONG, long_but_for
from omegaconf import OmegaConf

from fairseq_docmt import error_sentences, errors
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.optim.grouped_adam import GroupedAdam, GroupedAdamConfig, is_new

SENTENCE = ["--task", "sliding_window_translation", "--window-size", "1"]
STREAM = ["--task", "sentence_stream_translation", "--batch-size", "2", "--chunk-sentences", "2"]
GROUPED = ["--optimizer", "grouped_adam", "--pretrained-lr-scale", "0.2"]
GATED = tiny.rfa("--sentence-gate", "decay")
#: options, model, parts of the names of new parameters
SECOND_STAGES = {
    "memory": (STREAM, tiny.memory(), [".memories."]),
    "cache": (STREAM, tiny.cache(), [".cache_gate."]),
    "context": (STREAM, tiny.context(), [".context_"]),
    "gate": ([*SENTENCE[:2], "--window-size", "2"], GATED, ["gate.linear", "temperature"]),
}


@pytest.fixture(scope="module", params=["translation", "sliding_window_translation"])
def sentence_level(request, binarised, tmp_path_factory):
    """Checkpoint of the first stage, of the stock task or of ours."""
    task = SENTENCE if request.param != "translation" else ["--task", "translation"]
    return tiny.train(binarised, tmp_path_factory.mktemp("first"), *task, updates=5)


def rates(save_dir):
    """Learning rates of the parameter groups in the checkpoint's optimizer state."""
    state = checkpoint_utils.load_checkpoint_to_cpu(str(save_dir / "checkpoint_last.pt"))
    groups = state["last_optimizer_state"]["param_groups"]
    return [group["lr"] for group in groups]


def test_memory_starts_from_a_sentence_level_model(binarised, sentence_level, tmp_path):
    """Two learning rates under a stock scheduler; the parameters of the first stage are loaded."""
    arguments = [*STREAM, *GROUPED, "--finetune-from-model", str(sentence_level), "--lr", "3e-9"]
    path = tiny.train(binarised, tmp_path, *arguments, model=tiny.memory(), updates=1)
    old, new = tiny.weights(sentence_level), tiny.weights(path)
    for name, value in old.items():
        torch.testing.assert_close(new[name][: len(value)], value, atol=1e-6, rtol=0, msg=name)
    assert all(name in old or ".memories." in name for name in new)


def rows_of(path):
    """Parameters of <sep> and </s>, which are the last row but one and row 2."""
    layers = "embed_tokens", "output_projection", "fc_out"
    values = [v for name, v in tiny.weights(path).items() if name.split(".")[-2] in layers]
    assert len(values) >= 3
    return tuple(torch.cat([value[row].view(-1) for value in values]) for row in (-2, 2))


def started(binarised, folder, start, *task, model):
    """Checkpoint of a second stage that changes the parameters by next to nothing."""
    arguments = [*task, "--finetune-from-model", str(start), "--lr", "3e-9"]
    return tiny.train(binarised, folder, *arguments, model=model, updates=1)


NEXT = [*SENTENCE, "--next-sentences", "1"]
DOCUMENTS = ["--task", "full_document_translation", "--max-document-tokens", "40"]
WINDOWS = [*SENTENCE[:2], "--window-size", "2"]


@pytest.mark.parametrize("task", [WINDOWS, NEXT, DOCUMENTS], ids=["windows", "next", "documents"])
def test_separators_begin_as_ends_of_sentences(binarised, sentence_level, tmp_path, task):
    """Where the sequences have several sentences, after training on single ones."""
    path = started(binarised, tmp_path, sentence_level, *task, model=tiny.MODEL)
    (separator, end), (_, before) = rows_of(path), rows_of(sentence_level)
    torch.testing.assert_close(separator, before, atol=1e-6, rtol=0)
    torch.testing.assert_close(end, before, atol=1e-6, rtol=0)


def test_separators_of_a_stock_model_that_had_them_stay(binarised, tmp_path):
    data = Path(shutil.copytree(binarised, tmp_path / "data"))
    for dictionary in data.glob("dict.*.txt"):
        dictionary.write_text(dictionary.read_text() + "<sep> 1\n<bod> 1\n")
    base = tiny.train(data, tmp_path / "a", "--task", "translation", updates=2)
    path = started(data, tmp_path / "b", base, *WINDOWS, model=tiny.MODEL)
    torch.testing.assert_close(rows_of(path)[0], rows_of(base)[0], atol=1e-6, rtol=0)


def test_separators_of_an_lstm_begin_as_ends_of_sentences(binarised, tmp_path):
    model = tiny.RECURRENT_MODEL
    base = tiny.train(binarised, tmp_path / "a", *SENTENCE, model=model, updates=2)
    path = started(binarised, tmp_path / "b", base, *WINDOWS, model=model)
    torch.testing.assert_close(rows_of(path)[0], rows_of(base)[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "first, second",
    [(SENTENCE, SENTENCE), (SENTENCE, STREAM), (WINDOWS, WINDOWS), (DOCUMENTS, WINDOWS)],
    ids=["sentences", "stream", "windows", "documents"],
)
def test_separators_stay_as_they_are(binarised, tmp_path, first, second):
    """Where they have been learned, or are not read."""
    model = tiny.memory() if second is STREAM else tiny.MODEL
    base = tiny.train(binarised, tmp_path / "a", *first, model=tiny.MODEL, updates=2)
    path = started(binarised, tmp_path / "b", base, *second, model=model)
    torch.testing.assert_close(rows_of(path)[0], rows_of(base)[0], atol=1e-6, rtol=0)


def test_cache_starts_from_rnnsearch(binarised, tmp_path):
    """In the second stage of Tu et al. (2018), only the gate is trained."""
    base = tiny.train(binarised, tmp_path / "a", *SENTENCE, model=tiny.rnnsearch(), updates=5)
    arguments = [*STREAM, "--finetune-from-model", str(base), "--freeze-pretrained"]
    path = tiny.train(binarised, tmp_path / "b", *arguments, model=tiny.cache(), updates=5)
    old, new = tiny.weights(base), tiny.weights(path)
    assert {name for name in new if name not in old} == {
        f"decoder.cache_gate.of_{part}.weight" for part in ("state", "context", "cache")
    }
    for name, value in old.items():
        assert torch.equal(new[name], value), name


SCHEDULES = [
    ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "4"],
    ["--lr-scheduler", "fixed", "--warmup-updates", "4"],
    ["--lr-scheduler", "polynomial_decay", "--total-num-update", "10"],
    ["--lr-scheduler", "cosine", "--lr-period-updates", "8"],
]


@pytest.mark.parametrize(
    "stage, schedule",
    [
        ("memory", SCHEDULES[0]),
        *(pytest.param("memory", schedule, marks=LONG) for schedule in SCHEDULES[1:-1]),
        ("memory", SCHEDULES[-1]),
        *(
            pytest.param(stage, SCHEDULES[0], marks=LONG)
            for stage in SECOND_STAGES
            if stage != "memory"
        ),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else value,
)
def test_two_learning_rates_under_any_scheduler(binarised, tmp_path, stage, schedule):
    task, model, _ = SECOND_STAGES[stage]
    arguments = [*task, *GROUPED, "--lr", "3e-4", *schedule]
    found = []
    for updates in (2, 6):  # the second run resumes
        tiny.train(binarised, tmp_path, *arguments, model=model, updates=updates)
        found.append(rates(tmp_path))
    assert found[0][0] != found[1][0]
    for new, pretrained in found:
        assert pretrained == pytest.approx(new / 5)


def test_resuming_gives_the_same(binarised, tmp_path):
    arguments = [*STREAM, *GROUPED, "--dropout", "0.1"]
    whole = tiny.train(binarised, tmp_path / "a", *arguments, model=tiny.memory(), updates=9)
    for updates in (4, 9):
        parts = tiny.train(
            binarised, tmp_path / "b", *arguments, model=tiny.memory(), updates=updates
        )
    tiny.assert_same_weights(whole, parts)


def test_resuming_with_other_parameters_is_refused(binarised, tmp_path):
    arguments = [*STREAM, *GROUPED]
    tiny.train(binarised, tmp_path, *arguments, model=tiny.memory(), updates=2)
    arguments.append("--freeze-pretrained")
    with pytest.raises(UserError, match="has other parameters .* give --freeze-pretrained and"):
        tiny.train(binarised, tmp_path, *arguments, model=tiny.memory(), updates=4)


@pytest.mark.parametrize(
    "options, sentence",
    [
        (["--share-decoder-input-output-embed"], errors.OTHER_PARAMETERS),
        (
            ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "2"],
            error_sentences.OTHER_SCHEDULER,
        ),
    ],
    ids=["shared embeddings", "schedule"],
)
def test_what_an_optimizer_cannot_go_on_with(binarised, tmp_path, options, sentence):
    """Where fairseq has a traceback."""
    window = ["--task", "sliding_window_translation"]
    tiny.train(binarised, tmp_path, *window, updates=1)
    with pytest.raises((ValueError, KeyError)) as caught:
        tiny.train(binarised, tmp_path, *window, *options, updates=2)
    assert error_sentences.reason_of(caught.value) == sentence
    if sentence == error_sentences.OTHER_SCHEDULER:
        tiny.train(binarised, tmp_path, *window, *options, "--reset-lr-scheduler", updates=2)


def test_another_name_of_the_same_model_goes_on(binarised, tmp_path, caplog):
    window = ["--task", "sliding_window_translation"]
    tiny.train(binarised, tmp_path, *window, updates=1)
    model = ["--arch", "transformer_iwslt_de_en", *tiny.MODEL[2:]]
    path = tiny.train(binarised, tmp_path, *window, model=model, updates=2)
    assert torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"] == 2
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_frozen_symbols_are_warned_of(binarised, tmp_path, caplog):
    """A stock model has no <sep>, which windows need."""
    task, model, _ = SECOND_STAGES["gate"]
    path = tiny.train(binarised, tmp_path / "a", "--task", "translation", model=GATED, updates=1)
    arguments = [*task, "--finetune-from-model", str(path), "--freeze-pretrained"]
    tiny.train(binarised, tmp_path / "b", *arguments, model=model, updates=1)
    assert "the parameters of <sep>, <bod> are new" in caplog.text


def test_what_a_tied_model_loses_of_an_untied_one(binarised, tmp_path, caplog):
    tied = "--share-decoder-input-output-embed"
    path = tiny.train(binarised, tmp_path / "a", *SENTENCE, updates=1)
    for start, said in ((path, 1), (tmp_path / "b1" / "checkpoint_last.pt", 0)):
        caplog.clear()
        start = ["--finetune-from-model", str(start), tied]
        tiny.train(binarised, tmp_path / f"b{said}", *SENTENCE, *start, updates=1)
        lost = f"decoder.embed_tokens.weight of {path} is lost: the model shares its values with "
        assert (f"{lost}decoder.output_projection.weight" in caplog.text) == bool(said)
        assert caplog.text.count(" lost: ") == said


@pytest.mark.parametrize("scale", ["-1.0", "nan", "inf"])
def test_impossible_scales(binarised, tmp_path, scale):
    arguments = [*STREAM, *GROUPED[:3], scale]
    message = f"--pretrained-lr-scale must be a number of at least 0, got {scale}"
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *arguments, model=tiny.memory(), updates=1)


def test_an_incomplete_memory_is_not_initialised(binarised, tmp_path):
    path = tiny.train(binarised, tmp_path, *STREAM, model=tiny.memory(), updates=2)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    lost = next(name for name in state["model"] if ".memories." in name)
    del state["model"][lost]
    checkpoint_utils.torch_persistent_save(state, str(path))
    with pytest.raises(UserError, match=f"does not fit the model .*the checkpoint lacks {lost}"):
        tiny.train(binarised, tmp_path, *STREAM, model=tiny.memory(), updates=4)


@pytest.mark.parametrize("stage", long_but_for(["memory", "gate"], SECOND_STAGES))
@pytest.mark.parametrize("optimizer", [GROUPED, []], ids=["grouped", "stock"])
def test_frozen_parameters_stay_as_they_are(binarised, tmp_path, stage, optimizer):
    task, model, new = SECOND_STAGES[stage]
    start = tiny.train(binarised, tmp_path / "a", *task, model=model, updates=2)
    arguments = [*task, *optimizer, "--finetune-from-model", str(start)]
    path = tiny.train(
        binarised, tmp_path / "b", *arguments, "--freeze-pretrained", model=model, updates=6
    )
    before, after = tiny.weights(start), tiny.weights(path)
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert changed and all(any(part in name for part in new) for name in changed)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))["last_optimizer_state"]["state"]
    assert sum(s["exp_avg"].numel() for s in state.values()) == sum(
        value.numel() for name, value in before.items() if any(part in name for part in new)
    )


@pytest.mark.parametrize(
    "options, message",
    [
        (GROUPED, "grouped_adam finds no new parameters"),
        (["--freeze-pretrained"], "--freeze-pretrained leaves nothing to train"),
    ],
)
def test_architectures_without_new_parameters_are_refused(
    binarised, window_checkpoint, tmp_path, options, message
):
    start = ["--finetune-from-model", str(window_checkpoint)]
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *SENTENCE, *start, *options)


@pytest.mark.parametrize(
    "model, given",
    [
        (tiny.han("--no-context"), "--no-context"),
        (tiny.multi_encoder("--no-context"), "--no-context"),
        (tiny.context("--no-context"), "--no-context"),
        (tiny.cache("--cache-size", "0"), "--cache-size 0"),
    ],
    ids=["han", "multi-encoder", "context", "cache"],
)
def test_new_parameters_that_are_not_used(binarised, tmp_path, model, given):
    """Nothing trains them, so training nothing else is refused."""
    task = ["--task", "sentence_stream_translation", "--batch-size", "2"]
    first, second = (
        tiny.train(binarised, tmp_path / str(n), *task, model=model, updates=n) for n in (1, 3)
    )
    before, after = tiny.weights(first), tiny.weights(second)
    new = ARCH_MODEL_REGISTRY[model[1]].new_parameters
    own = {name for name in before if any(part in name for part in new)}
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert own and changed and own.isdisjoint(changed)
    start = ["--finetune-from-model", str(first), "--freeze-pretrained"]
    with pytest.raises(UserError, match=f"leaves nothing to train: with {given}, the new param"):
        tiny.train(binarised, tmp_path / "b", *task, *start, model=model)


def test_a_control_of_a_model_whose_start_was_frozen(binarised, tmp_path):
    """What is trained can be decoded without context."""
    task = ["--task", "sentence_stream_translation", "--batch-size", "2"]
    start = tiny.train(binarised, tmp_path / "a", *task, model=tiny.han(), updates=1)
    given = ["--finetune-from-model", str(start), "--freeze-pretrained"]
    path = tiny.train(binarised, tmp_path / "b", *task, *given, model=tiny.han(), updates=1)
    translator = DocumentTranslator.from_pretrained(str(path), no_context=True)
    assert len(translator.translate([["w1 w2", "w3"]], beam=1)[0]) == 2


def test_a_scale_without_pretrained_parameters(binarised, tmp_path, caplog):
    task = ["--task", "sentence_stream_translation", "--batch-size", "2", *GROUPED]
    said = "training starts from no model: --pretrained-lr-scale changes the learning rate of new"
    start = tiny.train(binarised, tmp_path / "a", *task[:-2], model=tiny.han(), updates=1)
    tiny.train(
        *(binarised, tmp_path / "b", *task, "--finetune-from-model", str(start)),
        model=tiny.han(),
        updates=1,
    )
    assert said not in caplog.text
    tiny.train(binarised, tmp_path / "c", *task, model=tiny.han(), updates=1)
    assert said in caplog.text


def test_a_scale_of_parameters_that_are_frozen(caplog):
    """With --freeze-pretrained, only new parameters are left."""
    new, old = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    new.param_group = "new"
    cfg = OmegaConf.structured(GroupedAdamConfig(pretrained_lr_scale=0.2, lr=[0.1], tpu=False))
    for parameters, warned in (([new, old], 0), ([new], 1)):
        GroupedAdam(cfg, parameters)
        text = "no effect without pre-trained parameters to train: --pretrained-lr-scale"
        assert caplog.messages.count(text) == warned


def test_a_resumed_run_takes_its_own_scale():
    new, old = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    new.param_group = "new"
    first, second = (
        GroupedAdam(
            OmegaConf.structured(GroupedAdamConfig(pretrained_lr_scale=scale, lr=[1], tpu=False)),
            [new, old],
        )
        for scale in (0.2, 0.5)
    )
    first.set_lr(0.1)
    second.load_state_dict(first.state_dict())
    assert [group["lr_scale"] for group in second.param_groups] == [1, 0.5]
    assert [group["lr"] for group in second.param_groups] == pytest.approx([0.1, 0.05])


HALF_PRECISION = {
    "amp": (AMPOptimizer, ["--amp"]),
    "memory efficient": (MemoryEfficientFP16Optimizer, ["--memory-efficient-fp16"]),
    "not flat": (FP16Optimizer, ["--fp16", "--fp16-no-flatten-grads"]),
}


@pytest.mark.parametrize("kind", HALF_PRECISION)
def test_groups_of_half_precision_optimizers(kind):
    """Optimizer wrappers of fairseq that work without a GPU; flat parameters lose the mark."""
    wrapper, flags = HALF_PRECISION[kind]
    arguments = ["data", *tiny.memory(), *GROUPED, *flags, "--lr", "3e-4"]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    model = tiny.model(*tiny.memory()).half()
    optimizer = wrapper.build_optimizer(
        convert_namespace_to_omegaconf(args), list(model.parameters())
    )
    optimizer.set_lr(1e-3)
    new, pretrained = optimizer.param_groups
    assert (new["lr"], pretrained["lr"]) == (1e-3, pytest.approx(2e-4))
    assert len(new["params"]) == sum(is_new(p) for p in model.parameters())


def test_flat_parameters_are_refused():
    flat = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(UserError, match="with --fp16 give --fp16-no-flatten-grads"):
        GroupedAdam(OmegaConf.structured(GroupedAdamConfig), [flat])


@pytest.mark.long  # test_training.py has two processes
def test_two_processes(binarised, tmp_path):
    arguments = [*STREAM, *GROUPED, "--max-update", "5", "--lr", "3e-4"]
    tiny.train_in_processes(binarised, tmp_path, *arguments, model=tiny.memory())
    assert rates(tmp_path) == [3e-4, pytest.approx(6e-5)]
