"""Models with memories of the whole document use them."""

import probe
import pytest
import score
from scipy.stats import binom


def accuracies(folder, system, *options):
    """Return the accuracies of the model without and with its memories."""
    questions, found = probe.run("run_memnet.sh", folder, system, *options)
    alone, memory = found["rnnsearch_window"], found[f"{system}_iterative"]
    probe.assert_whole_sentences(memory, equal=score.quality(alone).rate)
    return [score.accuracy(questions, output.hypotheses) for output in (alone, memory)]


def assert_above_ceiling(result):
    assert result.right > binom.ppf(0.999, result.total, result.ceiling)


@pytest.mark.system
def test_a_source_memory_knows_the_nearest_of_several_nouns(tmp_path):
    """In documents of six sentences and then, from the same model, of twelve."""
    short, long = tmp_path / "six", tmp_path / "twelve"
    going_on = ("--sentences", "12", "--from", short)
    for folder, options in ((short, ()), (long, going_on)):
        base, memory = accuracies(folder, "source", *options)
        for distance in (1, 2, 3):
            probe.assert_at_ceiling(base["pronoun", distance])
            assert_above_ceiling(memory["pronoun", distance])
        assert score.pooled(memory, "pronoun", 3).rate >= 0.9


@pytest.mark.system
def test_both_memories_know_how_the_document_begins(tmp_path):
    options = ("--phenomena", "formality,pronoun", "--sentences", "5")
    base, memory = accuracies(tmp_path, "both", *options)
    for phenomenon in ("formality", "pronoun"):
        probe.assert_at_ceiling(score.pooled(base, phenomenon, 99))
    assert score.pooled(memory, "formality", 99).rate > 0.85
    assert_above_ceiling(score.pooled(memory, "pronoun", 99))
