"""g_transformer through the stock commands.

Covers models/g_transformer.py.
"""

import pytest
import tiny
from long_tests import LONG

from fairseq_docmt.errors import UserError

DOCUMENT = ["--task", "full_document_translation", "--max-document-tokens", "20"]
WINDOW = ["--task", "sliding_window_translation", "--window-size", "3"]
ROWS = tiny.rows_of(tiny.documents((1, 5, 2, 7), 2))


@pytest.mark.parametrize(
    "task",
    [pytest.param(DOCUMENT, id="documents"), pytest.param(WINDOW, id="windows", marks=LONG)],
)
def test_it_trains_and_translates(binarised, tmp_path, task):
    model = tiny.group("--attention-dropout", "0.1", "--encoder-layers", "2")
    checkpoint = tiny.train(binarised, tmp_path, *task, model=model, updates=3)
    for decoding in ("segment" if task is DOCUMENT else "window", "sequential"):
        output = tiny.generate(binarised, checkpoint, *task, "--decoding", decoding)
        assert sorted(tiny.lines_of(output)) == ROWS


def test_finetuning_from_a_stock_transformer(binarised, tmp_path):
    """The transformer gives group attention; --freeze-pretrained leaves it as it is."""
    start = tiny.train(binarised, tmp_path / "a", "--task", "translation", updates=5)
    arguments = [*DOCUMENT, "--finetune-from-model", str(start), "--freeze-pretrained"]
    new = tiny.train(binarised, tmp_path / "b", *arguments, model=tiny.group(), updates=2)
    old, weights = tiny.weights(start), tiny.weights(new)
    for name, value in old.items():
        assert (weights[name][: len(value)] == value).all(), name
    assert {name.split(".")[-3] for name in weights if name not in old} <= {
        *("self_attn", "encoder_attn", "document")
    }


def test_it_is_not_pruned(binarised, tmp_path):
    """Fewer layers would move its group attention to layers without trained parameters."""
    model = tiny.group("--decoder-layers", "3")
    checkpoint = tiny.train(binarised, tmp_path, *DOCUMENT, model=model, updates=1)
    override = ["--model-overrides", str({"decoder_layers_to_keep": "0,2"})]
    with pytest.raises(UserError, match="--decoder-layers-to-keep is not supported"):
        tiny.generate(binarised, checkpoint, *DOCUMENT[:2], *override)


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["--encoder-context-layers", "2"],
            "--encoder-context-layers is 2, but must be from 0",
        ),
        (["--cross-context-layers", "-1"], "--cross-context-layers is -1, but must be from 0"),
        (["--checkpoint-activations"], "--checkpoint-activations is not supported"),
        (["--offload-activations"], "--offload-activations is not supported"),
        (["--no-cross-attention"], "--no-cross-attention is not supported by g_transformer"),
        (["--quant-noise-pq", "0.1"], "--quant-noise-pq is not supported by g_transformer"),
        (["--encoder-layerdrop", "0.1"], "--encoder-layerdrop is not supported by g_transformer"),
    ],
)
def test_invalid_options_are_refused(binarised, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *DOCUMENT, model=tiny.group(*options))
