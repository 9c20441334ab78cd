"""Matching weights of a continuous cache."""

import json

import pytest
import tiny
import torch

from fairseq_docmt.analysis import attention_share
from fairseq_docmt.analysis import cache_matching as analysis
from fairseq_docmt.analysis._documents import documents_of, load
from fairseq_docmt.errors import UserError
from fairseq_docmt.ops.translation_cache import NO_WORD, Cache


def test_matching_equals_the_weights_of_the_decoder(
    binarised, cache_stream_checkpoint, monkeypatch
):
    from fairseq_docmt.modules.rnn.cache import Lookup

    model, task = load(str(cache_stream_checkpoint), str(binarised))
    *_, document = documents_of(task, "test")
    seen, read = [], Lookup.read
    monkeypatch.setattr(Lookup, "read", lambda *x: seen.append(read(*x)) or seen[-1])
    with torch.no_grad():
        model(**document.sample["net_input"])
    assert len(seen) == 1
    cache, weights = analysis.matching_of(model, document)
    torch.testing.assert_close(weights, seen[0][0])
    sums = weights.sum(-1)
    assert (sums[0] == 0).all() and (cache.words[0] == NO_WORD).all()
    torch.testing.assert_close(sums[1:], torch.ones_like(sums[1:]))


def test_places_by_hand():
    """Slot 1 was written last; slot 2 of the second sentence is empty."""
    nothing = torch.zeros(2, 3, 1)
    words = torch.tensor([[7, 8, 9], [7, 8, NO_WORD]])
    ages = torch.tensor([[4, 9, 5], [0, 3, -1]])
    weights = torch.tensor([[[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]], [[0.6, 0.4, 0.0], [0.5, 0.5, 0.0]]])
    present = torch.tensor([[True, True], [True, False]])
    found = analysis.by_recency(Cache(nothing, nothing, words, ages), weights, present)
    torch.testing.assert_close(found["probability"], torch.tensor([0.9, 0.9, 1.2]))
    assert found["tokens"].tolist() == [3, 3, 2]


def test_command(binarised, cache_stream_checkpoint, tmp_path):
    arguments = [str(binarised), "--path", str(cache_stream_checkpoint), "--out", str(tmp_path)]
    tiny.run_main(analysis.main, *arguments, "--document", "2", "--sentence", "4")
    matrix = json.loads((tmp_path / "cache_matching.json").read_text())
    words = [w.replace("w", "v") for w in tiny.documents((1, 5, 2, 7), 2)[1][3].split()]
    assert matrix["words"] == [*words, "</s>"]
    assert len(matrix["slots"]) == 6  # all of them are filled by then
    for row in matrix["probabilities"]:
        assert len(row) == 6 and sum(row) == pytest.approx(1, abs=1e-5)
    means = json.loads((tmp_path / "cache_by_recency.json").read_text())
    assert len(means) == 6
    # The mean over the tokens of all documents.
    model, task = load(str(cache_stream_checkpoint), str(binarised))
    sums = {"probability": 0, "tokens": 0}
    for one in documents_of(task, "test"):
        found = analysis.by_recency(*analysis.matching_of(model, one), one.of_target.ge(0))
        sums = {key: sums[key] + found[key] for key in sums}
    assert means == pytest.approx((sums["probability"] / sums["tokens"]).tolist())
    for name in ("cache_matching", "cache_by_recency"):
        assert (tmp_path / f"{name}.png").stat().st_size > 0
    with pytest.raises(UserError, match="--sentence 1 needs a sentence before it"):
        tiny.run_main(analysis.main, *arguments, "--sentence", "1")


def test_a_training_that_has_diverged(binarised, cache_stream_checkpoint, tmp_path):
    path = tiny.diverged(cache_stream_checkpoint, tmp_path)
    with pytest.raises(UserError, match="diverged.pt has parameters that are NaN or infinite"):
        load(path, str(binarised))
    with pytest.raises(UserError, match="diverged.pt has parameters that are NaN or infinite"):
        tiny.run_main(attention_share.main, str(binarised), "--path", path)


def test_models_without_a_cache(binarised, memory_stream_checkpoint):
    model, task = load(str(memory_stream_checkpoint), str(binarised))
    with pytest.raises(
        UserError, match="MemoryTransformerModel has no cache; analyse a checkpoint of cache_rnn"
    ):
        analysis.matching_of(model, next(documents_of(task, "test")))
