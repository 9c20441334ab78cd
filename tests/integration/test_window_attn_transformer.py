"""window_attn_transformer and lst_transformer through the stock commands.

Covers models/window_attn_transformer.py, models/lst_transformer.py.
"""

import re

import pytest
import tiny
from fairseq import checkpoint_utils
from long_tests import long_but_for

from fairseq_docmt.errors import UserError

DOCUMENT = ["--task", "full_document_translation", "--max-document-tokens", "20"]
ROWS = tiny.rows_of(tiny.documents((1, 5, 2, 7), 2))
VARIANTS = {
    "absolute": tiny.window("--position", "absolute", "--attention-dropout", "0.1"),
    "full-encoder": tiny.window("--position", "absolute", "--full-encoder-attention"),
    "full-decoder": tiny.window("--position", "absolute", "--full-decoder-attention"),
    "full-cross": tiny.window("--full-cross-attention"),
    "checkpointed": tiny.window("--checkpoint-activations"),
    "lst": tiny.lst("--attention-dropout", "0.1"),
}


@pytest.mark.parametrize("variant", long_but_for(["full-encoder"], VARIANTS))
def test_variants_train_and_translate(binarised, tmp_path, variant):
    checkpoint = tiny.train(binarised, tmp_path, *DOCUMENT, model=VARIANTS[variant], updates=3)
    output = tiny.generate(binarised, checkpoint, *DOCUMENT[:2])
    assert sorted(tiny.lines_of(output)) == ROWS


@pytest.fixture
def wordy(tmp_path):
    """A corpus whose source repeats every word."""
    folder = tmp_path / "wordy"
    folder.mkdir()
    for seed, (split, lengths) in enumerate(
        (("train", (4, 1, 6, 3, 5)), ("valid", (3, 1, 4)), ("test", (1, 5, 2, 7)))
    ):
        docs = tiny.documents(lengths, seed)
        tiny.write_split(folder, split, docs)
        twice = [[re.sub(r"(w\d+)", r"\1 \1", sentence) for sentence in doc] for doc in docs]
        (folder / f"{split}.src").write_text(tiny.text_of(twice), encoding="utf-8")
    return tiny.preprocess(folder, ["train", "valid", "test"])


def test_alignment_is_chosen_at_decoding(wordy, tmp_path):
    """The length ratio is in the checkpoint; other alignments do not need it."""
    checkpoint = tiny.train(wordy, tmp_path, *DOCUMENT, model=tiny.window(), updates=60)
    found = {}
    for kind in ("sentence", "linear", "one-to-one"):
        override = ["--model-overrides", str({"alignment": kind})]
        output = tiny.generate(wordy, checkpoint, *DOCUMENT[:2], *override)
        assert sorted(tiny.lines_of(output)) == ROWS
        found[kind] = tuple(tiny.scores_of(output)[row] for row in ROWS)
    assert len(set(found.values())) == 3
    models, _ = checkpoint_utils.load_model_ensemble([str(checkpoint)])
    # Sentences of four words, with a separator or </s> after them: 9 tokens for 5.
    assert models[0].decoder.train_ratio == pytest.approx(1.8, abs=0.05)


def test_an_unknown_alignment_is_refused(binarised, window_attention_document_checkpoint):
    override = ["--model-overrides", "{'alignment': 'foo'}"]
    with pytest.raises(UserError, match="--model-overrides: alignment: .*'foo', expected one of"):
        tiny.generate(binarised, window_attention_document_checkpoint, *DOCUMENT[:2], *override)


def test_finetuning_from_a_stock_transformer(binarised, tmp_path):
    start = tiny.train(binarised, tmp_path / "a", "--task", "translation", updates=5)
    arguments = [*DOCUMENT, "--finetune-from-model", str(start), "--lr", "1e-9"]
    new = tiny.train(binarised, tmp_path / "b", *arguments, model=tiny.window(), updates=1)
    old = tiny.weights(start)
    for name, value in tiny.weights(new).items():
        if name in old:
            assert (value[: len(old[name])] - old[name]).abs().max() < 1e-6, name


@pytest.mark.parametrize(
    "model, message",
    [
        (tiny.window("--attention-window", "-1"), "--attention-window must not be negative"),
        (tiny.window("--no-cross-attention"), "not supported by window_attn_transformer"),
        (tiny.window("--encoder-layers", "0"), "--encoder-layers must be at least 1, got 0"),
        (tiny.lst("--checkpoint-activations"), "--checkpoint-activations is not supported"),
        (tiny.lst("--offload-activations"), "--offload-activations is not supported"),
        (
            tiny.window("--encoder-attention-heads", "0"),
            "--encoder-attention-heads 0 must divide --encoder-embed-dim 16; change one of them",
        ),
        (tiny.lst("--decoder-layerdrop", "0.2"), "--decoder-layerdrop is not supported by lst_tr"),
        (
            tiny.window("--store-ema"),
            "--store-ema cannot average decoder.length_ratio.documents of WindowAttentionTransf",
        ),
    ],
)
def test_invalid_options_are_refused(binarised, tmp_path, model, message):
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *DOCUMENT, model=model)


def test_alignments_cannot_be_printed(binarised, window_attention_document_checkpoint):
    options = [*DOCUMENT[:2], "--print-alignment", "hard"]
    with pytest.raises(UserError, match="needs attention weights, which a WindowAtt"):
        tiny.generate(binarised, window_attention_document_checkpoint, *options)
