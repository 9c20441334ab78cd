"""multi_encoder_transformer through the stock commands."""

import pytest
import tiny

from fairseq_docmt.errors import UserError

STREAM = ["--task", "sentence_stream_translation", "--batch-size", "2", "--chunk-sentences", "2"]
ROWS = tiny.rows_of(tiny.documents((1, 5, 2, 7), 2))


@pytest.mark.parametrize("integration", ["outside", "inside"])
def test_it_trains_from_a_transformer_and_translates(binarised, tmp_path, integration):
    """With frozen parameters, only context encoders and attention to contexts change."""
    start = tiny.train(binarised, tmp_path / "a", "--task", "translation", updates=3)
    arguments = [*STREAM, "--finetune-from-model", str(start), "--freeze-pretrained"]
    model = tiny.multi_encoder("--context-side", "both", "--context-integration", integration)
    checkpoint = tiny.train(binarised, tmp_path / "b", *arguments, model=model, updates=3)
    old, new = tiny.weights(start), tiny.weights(checkpoint)
    for name, value in old.items():
        assert (new[name][: len(value)] == value).all(), name
    assert all(".context_" in name for name in new if name not in old)
    output = tiny.generate(binarised, checkpoint, *STREAM[:2])
    assert sorted(tiny.lines_of(output)) == ROWS


@pytest.mark.parametrize("side, most", [("encoder", 7), ("decoder", 8)])
def test_learned_positions_reach_over_all_previous_sentences(binarised, tmp_path, side, most):
    """The contexts of a side have learned positions if the side has."""
    learned = [f"--{side}-learned-pos", "--context-side", "both", "--context-sentences", "3"]
    limits = ["--max-source-positions", "7", "--max-target-positions", "8"]
    arguments, model = [*STREAM, *limits], tiny.multi_encoder(*learned)
    checkpoint = tiny.train(binarised, tmp_path, *arguments, model=model, updates=3)
    sizes = {
        name: len(value)
        for name, value in tiny.weights(checkpoint).items()
        if name.endswith("context_encoder.embed_positions.weight")
    }
    # fairseq's positions begin at 2.
    assert sizes == {f"{side}.context_encoder.embed_positions.weight": 3 * most + 2}
    output = tiny.generate(binarised, checkpoint, *STREAM[:2])
    assert sorted(tiny.lines_of(output)) == ROWS


def test_it_is_not_pruned(binarised, tmp_path):
    """fairseq would remove layers of the context encoders that have the same numbers."""
    checkpoint = tiny.train(binarised, tmp_path, *STREAM, model=tiny.multi_encoder(), updates=1)
    override = ["--model-overrides", str({"encoder_layers_to_keep": "0"})]
    with pytest.raises(UserError, match="--encoder-layers-to-keep is not supported"):
        tiny.generate(binarised, checkpoint, *STREAM[:2], *override)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--context-sentences", "0"], "--context-sentences must be at least 1, got 0"),
        (["--context-layers", "-2"], "--context-layers must be at least 1, got -2"),
        (
            ["--share-context-encoder", "--context-side", "target"],
            "--share-context-encoder is for previous source sentences",
        ),
        (
            ["--share-context-encoder", "--context-layers", "3"],
            "--context-layers 3 is for separate context encoders",
        ),
        (["--checkpoint-activations"], "--checkpoint-activations is not supported"),
        (["--offload-activations"], "--offload-activations is not supported"),
        (
            ["--share-context-encoder", "--context-sentences", "2", "--encoder-learned-pos"],
            "--share-context-encoder has learned positions for single sentences, not for "
            "--context-sentences 2; leave out --encoder-learned-pos",
        ),
    ],
)
def test_invalid_options_are_refused(binarised, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *STREAM, model=tiny.multi_encoder(*options))
