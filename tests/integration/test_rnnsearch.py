"""rnnsearch through the stock commands.

Covers models/rnnsearch.py.
"""

import pytest
import tiny

from fairseq_docmt.errors import UserError

SENTENCE = ["--task", "sliding_window_translation", "--window-size", "1"]
VARIANTS = {
    "layers": ["--encoder-layers", "2", "--decoder-layers", "3", "--dropout", "0.1"],
    "shared output": ["--share-decoder-input-output-embed"],
    "small": ["--arch", "rnnsearch_512"],
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_train_and_translate(binarised, tmp_path, variant):
    model = tiny.rnnsearch(*VARIANTS[variant])
    checkpoint = tiny.train(binarised, tmp_path, *SENTENCE, model=model, updates=3)
    output = tiny.generate(binarised, checkpoint, *SENTENCE)
    assert sorted(tiny.lines_of(output)) == tiny.rows_of(tiny.documents((1, 5, 2, 7), 2))


@pytest.mark.system
def test_it_learns_to_copy(tmp_path):
    """The model learns word-by-word translation, for which it needs attention."""
    data = tiny.corpus(tmp_path, train=[8] * 40)
    arguments = [*SENTENCE, "--max-tokens", "400", "--lr", "0.02", "--dropout", "0"]
    model = tiny.rnnsearch("--decoder-hidden-size", "24", "--encoder-hidden-size", "24")
    checkpoint = tiny.train(data, tmp_path / "ck", *arguments, model=model, updates=250)
    output = tiny.generate(data, checkpoint, *SENTENCE)
    wanted, found = tiny.lines_of(output, "T"), tiny.lines_of(output)
    right = sum(a == b for row in wanted for a, b in zip(wanted[row].split(), found[row].split()))
    assert right > 0.9 * sum(len(text.split()) for text in wanted.values())


def test_hard_alignments_stay_in_the_sentence(binarised, rnnsearch_window_checkpoint):
    """Sources are padded on the left; attention refers to their columns."""
    output = tiny.generate(
        binarised,
        rnnsearch_window_checkpoint,
        *["--task", "sliding_window_translation", "--print-alignment", "hard"],
    )
    assert tiny.links_within_sentences(output) > 0


def test_training_resumes(binarised, tmp_path):
    arguments = [*SENTENCE, "--max-tokens", "30"]
    model = tiny.rnnsearch("--dropout", "0.1", "--decoder-layers", "2")
    whole = tiny.train(binarised, tmp_path / "whole", *arguments, updates=12, model=model)
    for updates in (5, 12):
        parts = tiny.train(binarised, tmp_path / "parts", *arguments, updates=updates, model=model)
    tiny.assert_same_weights(whole, parts)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--decoder-layers", "0"], "--decoder-layers must be at least 1, got 0"),
        (["--share-all-embeddings"], "--share-all-embeddings needs one dictionary"),
    ],
)
def test_invalid_options_are_refused(binarised, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *SENTENCE, model=tiny.rnnsearch(*options))
