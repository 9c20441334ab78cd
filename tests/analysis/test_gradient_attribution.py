"""Gradients between sentences, for models with and without context."""

import json
import sys
from unittest import mock

import pytest
import tiny
from long_tests import LONG

from fairseq_docmt.analysis import gradient_attribution as analysis
from fairseq_docmt.analysis import memory_attention
from fairseq_docmt.analysis._documents import documents_of, load
from fairseq_docmt.errors import UserError


def test_memories_reach_to_the_first_sentence(binarised, memory_stream_checkpoint):
    model, task = load(str(memory_stream_checkpoint), str(binarised))
    scores = analysis.by_distance(model, documents_of(task, "test"))
    assert list(scores) == list(range(7))  # the longest document has 7 sentences
    assert all(score > 0 for score in scores.values())
    assert scores[0] == max(scores.values())
    model.encoder.no_context = True
    forgetful = analysis.by_distance(model, documents_of(task, "test"))
    assert forgetful[0] > 0 and all(forgetful[d] == 0 for d in range(1, 7))


def test_windows_reach_as_far_as_they_are_long(binarised, window_checkpoint):
    model, task = load(str(window_checkpoint), str(binarised))
    scores = analysis.by_distance(model, documents_of(task, "test", most=2))
    assert list(scores) == [0, 1, 2]
    assert all(score > 0 for score in scores.values())


def test_documents_are_counted_not_windows_or_parts(binarised, window_checkpoint, barely_trained):
    """The test set has documents of 1, 5, 2 and 7 sentences."""
    parts = ["--task", "full_document_translation", "--max-document-tokens", "12"]
    for checkpoint in (window_checkpoint, barely_trained(*parts)):
        task = load(str(checkpoint), str(binarised))[1]
        for most, sentences in ((1, 1), (3, 8), (4, 15), (0, 15)):
            read = list(documents_of(task, "test", most))
            spans = task.dataset("test").spans[: len(read)].tolist()
            assert {s for span in spans for s in range(*span)} == set(range(sentences))
        assert len(read) > 4


def test_windows_with_loss_on_their_last_sentence(binarised, barely_trained):
    options = ["--task", "sliding_window_translation", "--window-size", "3", "--loss-on", "last"]
    model, task = load(str(barely_trained(*options)), str(binarised))
    documents = list(documents_of(task, "test", most=2))
    scores = analysis.by_distance(model, documents)
    assert list(scores) == [0, 1, 2]
    assert all(score > 0 for score in scores.values())
    # the last of these windows is full, and has a loss in its third sentence alone
    assert documents[-1].of_target.unique().tolist() == [-1, 2]
    assert documents[-1].of_input.unique().tolist() == [0, 1, 2]


def test_nothing_to_look_at(binarised, window_checkpoint):
    model, task = load(str(window_checkpoint), str(binarised))
    with pytest.raises(UserError, match="no example has two sentences"):
        analysis.by_distance(model, documents_of(task, "test", most=1))
    with pytest.raises(UserError, match="no example has two sentences"):
        analysis.by_distance(model, [])


@pytest.fixture(scope="session")
def long_document(made_once):
    """Return a binarised corpus with a test document of 17 sentences, enough for groups of rows."""
    return made_once("long document", lambda folder: tiny.corpus(folder, test=(17,))) / "bin"


def test_long_documents(long_document, memory_stream_checkpoint):
    model, task = load(str(memory_stream_checkpoint), str(long_document))
    scores = analysis.by_distance(model, documents_of(task, "test"))
    assert list(scores) == list(range(17)) and scores[16] > 0
    (document,) = documents_of(task, "test")
    for maps in memory_attention.attention_maps(model, document).values():
        assert len(maps.update) == 16 and len(maps.output) == 17


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("cache_stream", "CacheRNNModel keeps earlier sentences without gradients"),
        pytest.param(
            "memnet_rows", "MemnetRNNModel keeps earlier sentences without gradients", marks=LONG
        ),
        ("context_stream", "ContextRNNModel embeds earlier sentences once more as context"),
    ],
)
def test_architectures_that_cannot_be_analysed(binarised, request, system, message):
    checkpoint = request.getfixturevalue(f"{system}_checkpoint")
    model, task = load(str(checkpoint), str(binarised))
    with pytest.raises(UserError, match=message):
        analysis.by_distance(model, documents_of(task, "test"))


def test_sentence_pairs_are_no_documents(binarised, barely_trained):
    model, task = load(str(barely_trained("--task", "translation")), str(binarised))
    with pytest.raises(UserError, match="checkpoint is of sentence pairs; give one of a document"):
        analysis.by_distance(model, documents_of(task, "test"))


def test_ranges():
    scores = {0: 9.0, **{d: float(d) for d in range(1, 13)}}
    assert analysis.in_ranges(scores) == {"1-10": 5.5, "11-20": 11.5}


def test_command(binarised, memory_stream_checkpoint, tmp_path):
    arguments = [str(binarised), "--path", str(memory_stream_checkpoint), "--out", str(tmp_path)]
    with mock.patch.object(sys, "argv", ["x", *arguments]):
        tiny.run_main(analysis.main, *arguments)
    assert json.loads((tmp_path / "gradient_attribution.json").read_text())["by range"]
    assert (tmp_path / "gradient_attribution.png").stat().st_size > 0
