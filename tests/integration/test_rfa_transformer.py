"""rfa_transformer through the stock commands: options, initialisation, errors.

Covers models/rfa_transformer.py.
"""

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from long_tests import long_but_for

from fairseq_docmt.errors import UserError

WINDOW = ["--task", "sliding_window_translation", "--window-size", "3"]
VARIANTS = {
    "positive": ["--feature-map", "positive"],
    "encoder": ["--rfa-encoder", "--activation-dropout", "0.1"],
    "cross-gate": ["--sentence-gate", "decay", "--gate-cross-attention", "--gate-bias-init", "1"],
    "unscaled": ["--no-key-rescale", "--denominator-floor", "0.1"],
    "checkpointed": ["--checkpoint-activations", "--sentence-gate", "average", "--dropout", "0.1"],
    "shared": [
        *["--share-random-matrices", "--same-matrices-in-decoding", "--key-rescale-with-padding"],
        *["--sentence-gate", "decay", "--shared-gate", "--checkpoint-activations"],
    ],
    "iwslt": ["--arch", "rfa_transformer_iwslt"],
}


@pytest.mark.parametrize("variant", long_but_for(["positive", "encoder", "shared"], VARIANTS))
def test_variants_train_and_translate(binarised, tmp_path, variant):
    model = tiny.rfa(*VARIANTS[variant])
    checkpoint = tiny.train(binarised, tmp_path, *WINDOW, model=model, updates=3)
    output = tiny.generate(binarised, checkpoint, *WINDOW)
    assert sorted(tiny.lines_of(output)) == tiny.rows_of(tiny.documents((1, 5, 2, 7), 2))


def test_heads_of_a_stock_encoder_need_no_matrices():
    tiny.as_built(*tiny.rfa("--random-matrices", "2", "--encoder-attention-heads", "4"))


def test_activation_checkpointing_draws_the_same_matrices_again(binarised, tmp_path):
    """The second forward pass must use the random matrices of the first."""
    states = []
    for number, extra in enumerate(([], ["--checkpoint-activations"])):
        model = tiny.rfa("--dropout", "0.1", *extra)
        states.append(
            tiny.weights(
                tiny.train(binarised, tmp_path / str(number), *WINDOW, model=model, updates=5)
            )
        )
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], msg=name)


@pytest.mark.parametrize(
    "start", [tiny.MODEL, tiny.rfa()], ids=["stock transformer", "without a gate"]
)
def test_finetuning_from_checkpoints_without_some_parameters(binarised, tmp_path, start):
    old = tiny.train(binarised, tmp_path / "a", "--task", "translation", model=start, updates=5)
    gated = tiny.rfa("--sentence-gate", "decay")
    arguments = [*WINDOW, "--finetune-from-model", str(old), "--lr", "1e-9"]
    new = tiny.train(binarised, tmp_path / "b", *arguments, model=gated, updates=1)
    before, after = tiny.weights(old), tiny.weights(new)
    for name, value in before.items():
        torch.testing.assert_close(after[name][: len(value)], value, atol=1e-6, rtol=0, msg=name)


def test_sentence_level_stock_task(binarised, tmp_path):
    """Without ``<sep>`` in the dictionary a gate never closes, not even at unknown words."""
    model = tiny.rfa("--sentence-gate", "decay", "--gate-bias-init", "-9")
    plain = tiny.train(binarised, tmp_path, "--task", "translation", model=model, updates=5)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(plain)])
    tokens = torch.tensor([[2, 5, task.target_dictionary.unk(), 7]])
    source = torch.tensor([[4, 5, 2]])
    models[0].eval()
    _, extra = models[0](source, torch.tensor([3]), tokens)
    assert extra["log_decay"].eq(0).all()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--random-matrices", "1"], "--random-matrices 1 is not enough for 2 attention heads"),
        (["--causal-feature-dim", "0"], "--causal-feature-dim must be at least 1, got 0"),
        (["--gate-cross-attention"], "--gate-cross-attention needs --sentence-gate"),
        (["--shared-gate"], "--shared-gate needs --sentence-gate"),
        (["--gate-bias-init", "0"], "--gate-bias-init needs --sentence-gate"),
        (["--denominator-floor", "0"], "--denominator-floor must be positive, not 0.0"),
        (
            ["--decoder-attention-heads", "3"],
            "--decoder-attention-heads 3 must divide --decoder-embed-dim 16; change one of them",
        ),
        (["--base-layers", "1"], "--base-layers is not supported by rfa_transformer"),
        (["--same-matrices-in-decoding"], "--same-matrices-in-decoding needs --share-random-mat"),
        (
            ["--decoder-layers", "3", "--share-random-matrices", "--random-matrices", "5"],
            "5 is not enough for the attention heads of all 3 layers; set it to 6 or more",
        ),
        (["--key-rescale-with-padding", "--no-key-rescale"], "contradicts --no-key-rescale"),
        (["--no-cross-attention"], "--no-cross-attention is not supported by rfa_transformer"),
        (
            ["--decoder-xformers-att-config", "{}"],
            "--decoder-xformers-att-config is not supported by rfa_transformer",
        ),
    ],
)
def test_invalid_options_are_refused(binarised, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *WINDOW, model=tiny.rfa(*options))


def test_layer_drop_may_leave_out_all_layers():
    gated = tiny.rfa("--sentence-gate", "decay", "--decoder-layerdrop", "1")
    model, tokens = tiny.model(*gated).train(), torch.tensor([[5, 6, 2]])
    logits, extra = model(tokens, torch.tensor([3]), tokens)
    assert logits.isfinite().all() and extra["log_decay"] is None
