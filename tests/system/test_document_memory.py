"""Memories of the whole document are read."""

import probe
import pytest
import score
from scipy.stats import binom


@pytest.mark.system
def test_a_memory_of_the_document_is_read(tmp_path):
    """In short documents also for pronouns; of many nouns it cannot tell which one is meant."""
    questions, found = probe.run("run_memnet.sh", tmp_path, SENTENCES="5")
    base, memory = (
        score.accuracy(questions, found[name]) for name in ("rnnsearch_window", "source_iterative")
    )
    for phenomenon in ("formality", "pronoun"):
        probe.assert_at_ceiling(score.pooled(base, phenomenon, 99))
    assert score.pooled(memory, "formality", 99).rate > 0.85
    pronoun = score.pooled(memory, "pronoun", 99)
    assert pronoun.right > binom.ppf(0.999, pronoun.total, pronoun.ceiling)
