"""Gradients between sentences, for models with and without context."""

import json
import sys
from unittest import mock

import pytest
import tiny

from fairseq_docmt.analysis import gradient_attribution as analysis
from fairseq_docmt.analysis._documents import documents_of, load
from fairseq_docmt.errors import UserError


def test_memories_reach_to_the_first_sentence(binarised, memory_stream_checkpoint):
    model, task = load(str(memory_stream_checkpoint), str(binarised))
    scores = analysis.by_distance(model, documents_of(task, "test"))
    assert list(scores) == list(range(7))  # the longest document has 7 sentences
    assert all(score > 0 for score in scores.values())
    assert scores[0] == max(scores.values())
    model.encoder.forget_memory = True
    forgetful = analysis.by_distance(model, documents_of(task, "test"))
    assert forgetful[0] > 0 and all(forgetful[d] == 0 for d in range(1, 7))


def test_windows_reach_as_far_as_they_are_long(binarised, window_checkpoint):
    model, task = load(str(window_checkpoint), str(binarised))
    scores = analysis.by_distance(model, documents_of(task, "test", most=6))
    assert list(scores) == [0, 1, 2]
    assert all(score > 0 for score in scores.values())


def test_nothing_to_look_at(binarised, window_checkpoint):
    model, task = load(str(window_checkpoint), str(binarised))
    with pytest.raises(UserError, match="no example has two sentences"):
        analysis.by_distance(model, documents_of(task, "test", most=1))


def test_ranges():
    scores = {0: 9.0, **{d: float(d) for d in range(1, 13)}}
    assert analysis.in_ranges(scores) == {"1-10": 5.5, "11-20": 11.5}


def test_command(binarised, memory_stream_checkpoint, tmp_path):
    arguments = [str(binarised), "--path", str(memory_stream_checkpoint), "--out", str(tmp_path)]
    with mock.patch.object(sys, "argv", ["x", *arguments]):
        tiny.run_main(analysis.main, *arguments)
    assert json.loads((tmp_path / "gradient_attribution.json").read_text())["by range"]
    assert (tmp_path / "gradient_attribution.png").stat().st_size > 0
