"""Training and decoding on a GPU agree with those on a CPU, for all architectures and decodings.

    python -m pytest tests/test_cuda.py -q -n 6

Without a GPU these tests are skipped.  ``DOCMT_TEST_DEVICE=cpu`` runs them on the CPU, which only
shows that they run.
"""

import inspect
import json
import logging
import math
import os
from unittest import mock

import pytest
import tiny
import torch
import torch.nn.functional as F
import yaml
from architectures import ARCHITECTURES
from fairseq.modules import MultiheadAttention
from golden import systems
from golden.test_golden import assert_same
from integration.test_hydra import RUNS, SHARED, batches, group, state_of
from models.test_contract import PAD, batch, following, previous

from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.ops.precision import masked_attention

DEVICE = torch.device(os.environ.get("DOCMT_TEST_DEVICE", "cuda"))
ON_GPU = DEVICE.type == "cuda"
pytestmark = pytest.mark.skipif(
    ON_GPU and not torch.cuda.is_available(), reason="torch.cuda.is_available() is False: no GPU"
)

#: the sentences of the test split of the kept checkpoints
DOCS = tiny.documents((1, 4, 3), 2, words=8)
DECODINGS = [(name, kind) for name, system in systems.SYSTEMS.items() for kind in system.decodings]
#: architectures that compute gates in single precision, whatever the type of their parameters
SINGLE_GATES = ("rfa-decay", "cache-shallow")
SAVED, UPDATES = 3, 6


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """Recurrences in single precision, not in TF32, which cuDNN uses unless it is told not to."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def on_device(monkeypatch):
    """Stock commands run on the device."""
    if ON_GPU:
        monkeypatch.setattr(tiny, "DEVICE", [])
        training = [option for option in tiny.TRAINING if option != "--cpu"]
        monkeypatch.setattr(tiny, "TRAINING", training)


@pytest.fixture(scope="module")
def data(made_once):
    """Return the binarised corpus of the kept checkpoints."""
    return made_once("corpus of the kept checkpoints", systems.corpus) / "bin"


@pytest.fixture(scope="module")
def checkpoint(made_once):
    """Return a function from the name of a system to its kept checkpoint."""

    def find(name):
        folder = made_once(("kept", name), lambda made: systems.unpack(name, made / "saved"))
        return folder / "saved" / "checkpoint_last.pt"

    return find


# ---- models --------------------------------------------------------------------------------------


def trained_twice(model, device, dtype=torch.float64):
    """Train on two batches, the second of which goes on where the first has ended, if it can.

    There is no dropout.  Random matrices are drawn on the CPU, the same for every device.

    Returns:
        two outputs, two losses, and the gradients by parameter; all on the CPU.
    """
    model = model.to(device, dtype).train()
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.dropout = 0.0  # inside torch, where the patch below does not reach
    source, target = batch([9, 4, 13, 7], left_pad=True), batch([6, 12, 3, 5], seed=10)
    source, target = source.to(device), target.to(device)
    inputs = {k: v.to(device) if torch.is_tensor(v) else v for k, v in following(model).items()}
    torch.manual_seed(3)
    outputs, losses = [], []
    with mock.patch.object(F, "dropout", lambda x, *_, **__: x):
        for _ in range(2):
            output, extra = model(source, source.ne(PAD).sum(1), previous(target), **inputs)
            assert output.device.type == device.type and output.dtype == dtype
            exact = torch.promote_types(dtype, torch.float32)
            loss = F.cross_entropy(
                output.flatten(0, 1).to(exact),
                target.flatten(),
                ignore_index=PAD,
                label_smoothing=0.1,
            )
            loss.backward()
            outputs.append(output.detach().cpu())
            losses.append(loss.detach().cpu())
            if "lanes" in inputs:
                doc_state = {name: x.detach() for name, x in extra["doc_state"].items()}
                inputs.update(doc_state=doc_state, starts=torch.zeros_like(inputs["starts"]))
    gradients = {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}
    return outputs, losses, gradients


def assert_near(found, wanted, tolerance, name, largest=0.0):
    """Compare tensors; differences are relative to the largest value of a tensor, or to another."""
    atol = tolerance * max(float(wanted.abs().max()), largest, 1e-3)
    torch.testing.assert_close(found, wanted, atol=atol, rtol=0, msg=lambda m: f"{name}: {m}")


def tolerance_of(name, model):
    """Return the relative error that the parts in single precision explain.

    fairseq's attention computes its softmax in single precision.
    """
    if name in SINGLE_GATES:
        return 2e-5
    stock = any(isinstance(module, MultiheadAttention) for module in model.modules())
    return 1e-6 if stock else 1e-9


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_losses_and_gradients(name):
    """In double precision, from the same parameters and random matrices."""
    here, there = (tiny.model(*ARCHITECTURES[name]) for _ in range(2))
    there.load_state_dict(here.state_dict())
    wanted, found = trained_twice(here, torch.device("cpu")), trained_twice(there, DEVICE)
    tolerance = tolerance_of(name, here)
    for number in range(2):
        assert_near(found[0][number], wanted[0][number], tolerance, f"{name}, output {number}")
        assert_near(found[1][number], wanted[1][number], tolerance, f"{name}, loss {number}")
    assert found[2].keys() == wanted[2].keys()
    # Some gradients are zero but for rounding, such as gradients of the bias of keys.
    largest = max(float(gradient.abs().max()) for gradient in wanted[2].values())
    for parameter, gradient in wanted[2].items():
        assert_near(found[2][parameter], gradient, tolerance, f"{name}, {parameter}", largest)


@pytest.mark.parametrize("rows", [1, 12], ids=["one mask row", "a mask row for each query"])
@pytest.mark.parametrize("heads", [1, 2], ids=["shared mask", "mask of each head"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_masked_attention(dtype, heads, rows):
    """Outputs and gradients are those in double precision on a CPU."""
    torch.manual_seed(1)
    inputs = [torch.randn(4, 2, length, 8) for length in (12, 13, 13)]
    mask = torch.rand(4, heads, rows, 13) < 0.6
    mask[..., 0] = True
    weight = torch.randn(4, 2, 12, 8)

    def output_and_gradients(device, dtype):
        leaves = [x.to(device, dtype, copy=True).requires_grad_() for x in inputs]
        output = masked_attention(*leaves, mask.to(device), 0.0)
        (output * weight.to(device, dtype)).sum().backward()
        return [x.cpu().double() for x in (output.detach(), *(leaf.grad for leaf in leaves))]

    found = output_and_gradients(DEVICE, dtype)
    wanted = output_and_gradients("cpu", torch.float64)
    for here, there in zip(found, wanted):
        assert_near(here, there, 16 * torch.finfo(dtype).eps, f"{dtype}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_lower_precision(name, dtype):
    """Outputs are close to those in double precision on a CPU, and gradients are finite."""
    wanted, _, _ = trained_twice(tiny.model(*ARCHITECTURES[name]), torch.device("cpu"))
    found, _, gradients = trained_twice(tiny.model(*ARCHITECTURES[name]), DEVICE, dtype)
    # As many bits as the type has, after some twenty operations.
    bound = {torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.06}[dtype]
    atol = bound * float(wanted[0].std())
    torch.testing.assert_close(found[0].double(), wanted[0], atol=atol, rtol=0)
    assert found[1].isfinite().all()
    for parameter, gradient in gradients.items():
        assert gradient.isfinite().all(), f"{name}, {parameter}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_automatic_mixed_precision(name, dtype):
    """Gradients under autocast are finite, and as far from exact ones as the type is precise."""
    if not ON_GPU and dtype == torch.float16:
        pytest.skip("autocast to float16 needs a GPU")
    _, wanted, _ = trained_twice(tiny.model(*ARCHITECTURES[name]), torch.device("cpu"))
    model = tiny.model(*ARCHITECTURES[name])
    forward = model.forward

    def lowered(*args, **kwargs):
        with torch.autocast(DEVICE.type, dtype):
            output, extra = forward(*args, **kwargs)
        return output.float(), extra

    # Stream models are asked for the arguments of their forward function.
    lowered.__signature__ = inspect.signature(forward)
    model.forward = lowered
    _, losses, gradients = trained_twice(model, DEVICE, torch.float32)
    for loss, exact in zip(losses, wanted):
        torch.testing.assert_close(loss.double(), exact, atol=0.1, rtol=0)
    for parameter, gradient in gradients.items():
        assert gradient.isfinite().all(), f"{name}, {parameter}"


# ---- decoding ------------------------------------------------------------------------------------


def translations(checkpoint, data, decoding, device, dtype=None):
    translator = DocumentTranslator.from_pretrained(
        str(checkpoint), str(data), device=str(device), decoding=decoding
    )
    if dtype is not None:
        translator.hub.to(dtype)
    return translator.translate_nbest(DOCS, nbest=3, beam=3, max_len_b=12)


@pytest.mark.parametrize("name, decoding", DECODINGS)
def test_hypotheses(checkpoint, data, name, decoding):
    """In double precision; log-probabilities of fairseq are in single precision all the same."""
    wanted = translations(checkpoint(name), data, decoding, "cpu", torch.float64)
    found = translations(checkpoint(name), data, decoding, DEVICE, torch.float64)
    assert [len(document) for document in found] == [len(document) for document in DOCS]
    for document, document_found in zip(wanted, found):
        # Token scores are differences of sums over a document, in single precision.
        total = sum(abs(sum(hypotheses[0].token_scores)) for hypotheses in document)
        error = 2 * torch.finfo(torch.float32).eps * total
        for here, there in zip(document, document_found):
            assert [h.text for h in there] == [h.text for h in here], f"{name}, {decoding}"
            for a, b in zip(there, here):
                assert a.score == pytest.approx(b.score, abs=5e-6)
                assert a.token_scores == pytest.approx(b.token_scores, abs=error)


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_kept_checkpoints(on_device, checkpoint, data, name):
    """``fairseq-generate`` on a GPU in single precision gives the stored texts."""
    stored = json.loads((systems.KEPT / f"{name}.json").read_text(encoding="utf-8"))
    assert_same(systems.outputs(name, data, checkpoint(name)), stored["saved"])


@pytest.mark.parametrize("name, decoding", DECODINGS)
def test_half_precision_from_python(checkpoint, data, name, decoding):
    """``DocumentTranslator`` with a device and half precision."""
    translator = DocumentTranslator.from_pretrained(
        str(checkpoint(name)), str(data), device=str(DEVICE), precision="fp16", decoding=decoding
    )
    parameters = list(translator.hub.parameters())
    assert {p.dtype for p in parameters} == {torch.float16}
    assert {p.device.type for p in parameters} == {DEVICE.type}
    found = translator.translate_nbest(DOCS, nbest=2, beam=3, max_len_b=12)
    assert [len(document) for document in found] == [len(document) for document in DOCS]
    for hypotheses in sum(found, []):
        assert all(math.isfinite(h.score) for h in hypotheses), f"{name}, {decoding}"


# ---- stock commands ------------------------------------------------------------------------------


@pytest.fixture
def losses(caplog):
    """Return a function that trains and returns the losses of its updates by their number.

    Arguments: data, folder, name of the system, last update, options.
    """

    def train(data, folder, name, last, *options):
        caplog.clear()
        task, model, _ = systems.SYSTEMS[name]
        options = [*task, *systems.TRAINING[task[1]], "--label-smoothing", "0.1", *options]
        options += ["--log-format", "json", "--log-interval", "1"]
        if name == "memnet":
            options += ["--gold-drafts", *_sentence_lm(data, folder)]
        with caplog.at_level(logging.INFO):
            tiny.train(data, folder, *options, updates=last, model=model)
        found = {}
        for record in caplog.records:
            text = record.getMessage()
            if record.name == "train_inner" and text.startswith("{"):
                stats = json.loads(text)
                found[int(stats["num_updates"])] = float(stats["loss"])
        return found

    return train


def _sentence_lm(data, folder):
    models = folder.parent / "language-models"
    if not models.exists():
        models.mkdir()
        (models / "paths").write_text(tiny.sentence_lm(data, models), encoding="utf-8")
    return ["--sentence-lm", (models / "paths").read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_training_and_resuming(losses, data, tmp_path, request, name):
    """Losses on a GPU are those on a CPU, also after training has gone on from a checkpoint."""
    still = ["--dropout", "0", *(["--memory-dropout", "0"] if name == "memnet" else [])]
    wanted = losses(data, tmp_path / "cpu", name, UPDATES, *still)
    assert len(wanted) == UPDATES
    request.getfixturevalue("on_device")
    found = losses(data, tmp_path / "whole", name, UPDATES, *still)
    begun = losses(data, tmp_path / "parts", name, SAVED, *still)
    continued = losses(data, tmp_path / "parts", name, UPDATES, *still)
    assert found == pytest.approx(wanted, abs=2e-3)
    assert begun == pytest.approx({n: found[n] for n in range(1, SAVED + 1)}, abs=2e-3)
    assert continued == pytest.approx(
        {n: found[n] for n in range(SAVED + 1, UPDATES + 1)}, abs=2e-3
    )


def assert_usable(data, checkpoint, task, name):
    """Parameters are finite, and ``fairseq-generate --fp16`` translates every sentence."""
    for parameter, value in state_of(checkpoint)["model"].items():
        assert not value.is_floating_point() or value.isfinite().all(), f"{name}, {parameter}"
    output = tiny.generate(data, checkpoint, *task, "--fp16")
    scores = tiny.scores_of(output)
    assert sorted(scores) == tiny.rows_of(DOCS)
    assert all(math.isfinite(float(score)) for score in scores.values()), name


@pytest.mark.parametrize("option", ["--fp16", "--amp"])
@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_training_in_half_precision(on_device, losses, data, tmp_path, name, option):
    # Parameters in one piece are put on a GPU.
    pieces = [] if ON_GPU else ["--fp16-no-flatten-grads"]
    found = losses(data, tmp_path / "model", name, UPDATES, option, *pieces)
    # Updates that overflow are left out.
    assert found and all(math.isfinite(loss) for loss in found.values()), f"{name}: {found}"
    assert_usable(data, tmp_path / "model" / "checkpoint_last.pt", systems.SYSTEMS[name].task, name)


@pytest.mark.parametrize("name", RUNS)
def test_training_in_bfloat16(on_device, data, tmp_path, monkeypatch, name):
    """By ``fairseq-hydra-train``: fairseq keeps ``fairseq-train --bf16`` for TPUs."""
    monkeypatch.chdir(tmp_path)
    task, model = RUNS[name]
    common = {**SHARED["common"], "cpu": not ON_GPU, "bf16": True}
    common["fp16_no_flatten_grads"] = not ON_GPU
    config = {
        **SHARED,
        "common": common,
        "dataset": {**SHARED["dataset"], **batches(task)},
        "task": {**group(task), "data": str(data)},
        "model": group(model),
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    tiny.hydra_train(tmp_path, "tiny")
    made = tmp_path / "run" / "checkpoints" / "checkpoint_last.pt"
    assert_usable(data, made, task[:2], name)
