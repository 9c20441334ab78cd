"""A continuous cache reuses the translation of a term."""

import probe
import pytest
import score


@pytest.mark.system
def test_a_cache_brings_terms_back(tmp_path):
    """Base model, and cache model with and without slots; only the gate is trained."""
    questions, found = probe.run("run_cache.sh", tmp_path, "25", "0", "--updates", "1000")
    base, cache, empty = (
        score.pooled(score.accuracy(questions, found[name].hypotheses), "term", 99)
        for name in ("rnnsearch_window", "cache25_stream", "cache0_stream")
    )
    probe.assert_at_ceiling(base)
    probe.assert_at_ceiling(empty)
    assert cache.rate > 0.7
    equal_without = score.quality(found["rnnsearch_window"]).rate
    probe.assert_whole_sentences(found["cache25_stream"], equal=equal_without)
