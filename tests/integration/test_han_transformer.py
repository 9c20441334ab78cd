"""han_transformer through the stock commands."""

import pytest
import tiny

from fairseq_docmt.errors import UserError

STREAM = ["--task", "sentence_stream_translation", "--batch-size", "2", "--chunk-sentences", "2"]
ROWS = tiny.rows_of(tiny.documents((1, 5, 2, 7), 2))


@pytest.mark.parametrize("side", ["both", "source"])
def test_it_trains_in_stages_and_translates(binarised, tmp_path, side):
    """A transformer on sentences, then context; only the context changes with frozen parameters."""
    start = tiny.train(binarised, tmp_path / "a", "--task", "translation", updates=3)
    arguments = [*STREAM, "--finetune-from-model", str(start), "--freeze-pretrained"]
    model = tiny.han("--context-side", side, "--attention-dropout", "0.1")
    checkpoint = tiny.train(binarised, tmp_path / "b", *arguments, model=model, updates=3)
    old, new = tiny.weights(start), tiny.weights(checkpoint)
    for name, value in old.items():
        assert (new[name][: len(value)] == value).all(), name
    assert all(".hierarchical." in name for name in new if name not in old)
    output = tiny.generate(binarised, checkpoint, *STREAM[:2])
    assert sorted(tiny.lines_of(output)) == ROWS


@pytest.mark.parametrize(
    "options, message",
    [
        (["--context-sentences", "0"], "--context-sentences must be at least 1, got 0"),
        (["--checkpoint-activations"], "--checkpoint-activations is not supported"),
        (["--offload-activations"], "--offload-activations is not supported"),
        (["--no-cross-attention"], "--no-cross-attention is not supported by han_transf"),
        (
            ["--decoder-output-dim", "4"],
            "--context-side both needs --decoder-output-dim 4 to be the same as "
            "--decoder-embed-dim 16; leave --decoder-output-dim out",
        ),
    ],
)
def test_invalid_options_are_refused(binarised, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *STREAM, model=tiny.han(*options))


def test_an_output_as_wide_as_the_states_is_not_refused():
    """``fairseq-train`` gives models this option as text."""
    model = tiny.model(*tiny.han("--decoder-output-dim", "16"))
    assert model.decoder.output_projection.in_features == 16
