"""Options that have no effect, which a warning names."""

import logging

import pytest
import tiny

WINDOWS = ["--task", "sliding_window_translation"]
STREAM = ["--task", "sentence_stream_translation", "--batch-size", "2"]
SINGLE = "made for several sentences, but --window-size is 1: "
CONTEXT = "--window-size 1 trains --arch {} on single sentences, where its context options have no "
CONTEXT += "effect; give a larger --window-size for context"
BLEU = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 3}']
REACH = "--chunk-sentences {} lets no gradient reach the 1 sentence(s) before of "
REACH += "--memory-gradient-sentences; give more than that"
SHORT = ["--window-size", "1"]
FULL = ["--full-encoder-attention", "--full-decoder-attention", "--full-cross-attention"]
BEGINNINGS = ("no effect", SINGLE, "--window-size 1 trains", "--chunk-sentences", "--full-cross")


def warnings(caplog):
    return [text for text in caplog.messages if text.startswith(BEGINNINGS)]


@pytest.mark.parametrize(
    "arguments, model, warning",
    [
        ([*WINDOWS], tiny.group(), None),
        ([*WINDOWS, *SHORT], tiny.MODEL, None),
        ([*WINDOWS, *SHORT], tiny.rfa(), None),
        ([*WINDOWS, *SHORT, "--next-sentences", "1"], tiny.group(), None),
        ([*WINDOWS, *SHORT], tiny.group(), CONTEXT.format("g_transformer")),
        ([*WINDOWS, *SHORT], tiny.lst(), CONTEXT.format("lst_transformer")),
        (
            [*WINDOWS, *SHORT],
            tiny.rfa("--sentence-gate", "decay"),
            CONTEXT.format("rfa_transformer"),
        ),
        (
            [*WINDOWS, *SHORT, "--coword-dropout", "0.1", "--loss-on", "last"],
            tiny.MODEL,
            SINGLE + "--coword-dropout, --loss-on last",
        ),
        ([*WINDOWS, *SHORT, "--restart-positions"], tiny.MODEL, SINGLE + "--restart-positions"),
        ([*WINDOWS, "--coword-dropout", "0.1", "--restart-positions"], tiny.MODEL, None),
        (
            [*WINDOWS, "--decoding", "window", "--wrong-sentence-count", "keep"],
            tiny.MODEL,
            "no effect in training without --eval-bleu: --decoding, --wrong-sentence-count",
        ),
        ([*WINDOWS, "--decoding", "window", *BLEU], tiny.MODEL, None),
        ([*STREAM], tiny.memory(), REACH.format(1)),
        ([*STREAM, "--chunk-sentences", "2"], tiny.memory(), None),
        ([*STREAM], tiny.memory("--no-context"), None),
        (
            [*STREAM, "--chunk-sentences", "2"],
            tiny.memory("--no-context", "--memory-gradient-sentences", "0"),
            "no effect with --no-context: --memory-gradient-sentences",
        ),
        (
            [*WINDOWS],
            tiny.rfa("--rfa-encoder", "--attention-dropout", "0.1"),
            "no effect with --rfa-encoder: --attention-dropout",
        ),
        ([*WINDOWS], tiny.rfa("--attention-dropout", "0.1"), None),
        ([*STREAM], tiny.han(), None),
        (
            [*STREAM, "--curriculum", "1", "--grouped-shuffling"],
            tiny.han(),
            "no effect on streams, which shuffle documents: --curriculum, --grouped-shuffling",
        ),
        (
            [*WINDOWS],
            tiny.window("--full-cross-attention", "--alignment", "linear"),
            "--full-cross-attention has no window for --alignment to place",
        ),
        (
            [*WINDOWS],
            tiny.window(*FULL, "--position", "absolute", "--attention-window", "3"),
            "no effect without windows and relative positions: --attention-window",
        ),
        ([*WINDOWS], tiny.window(*FULL, "--attention-window", "3"), None),
        (
            [*STREAM, "--chunk-sentences", "2"],
            tiny.cache("--cache-size", "0", "--no-overwrite"),
            "no effect without a cache (--cache-size 0): --no-overwrite",
        ),
        (
            ["--task", "document_rows_translation", "--gold-drafts"],
            tiny.memnet("--context-side", "target", "--sentence-lm", "a:b"),
            "no effect with --context-side target: --sentence-lm, --sentence-lm-embed-dim, "
            "--sentence-lm-hidden-size",
        ),
    ],
)
def test_in_training(binarised, tmp_path, caplog, arguments, model, warning):
    tiny.train(binarised, tmp_path, *arguments, model=model, updates=1)
    assert warnings(caplog) == ([warning] if warning else [])


@pytest.mark.parametrize("limit, shorter", [("40", False), ("12", True)])
def test_windows_that_lose_sentences_are_counted(binarised, tmp_path, caplog, limit, shorter):
    caplog.set_level(logging.INFO)
    options = [*WINDOWS, "--window-size", "3", "--max-source-positions", limit]
    tiny.train(binarised, tmp_path, *options, updates=1)
    assert (
        "windows have fewer than 3 sentences, because they would exceed" in caplog.text
    ) == shorter


def test_in_decoding(binarised, window_checkpoint, caplog):
    tiny.generate(binarised, window_checkpoint, *WINDOWS, "--decoding", "window")
    assert not warnings(caplog)
    options = ["--word-dropout", "0.1", "--window-stride", "2", "--eval-bleu"]
    tiny.generate(binarised, window_checkpoint, *WINDOWS, *options)
    assert warnings(caplog) == [
        "no effect in decoding, as options of training: --eval-bleu, --word-dropout, "
        "--window-stride"
    ]


def test_options_of_training_in_a_checkpoint_are_no_mistake(binarised, tmp_path, caplog):
    from fairseq_docmt.generation import DocumentTranslator

    options = ["--word-dropout", "0.1", "--window-stride", "2"]
    path = tiny.train(binarised, tmp_path, *WINDOWS, *options, updates=1)
    DocumentTranslator.from_pretrained(path)
    assert not warnings(caplog)
