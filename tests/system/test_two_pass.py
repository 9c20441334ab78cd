"""Repair of sentence-level translations, and their choice by a document language model.

A model of the target alone cannot know that a verb stands for an earlier one, so repair does not
solve ellipsis.
"""

import probe
import pytest
import score

REACH = 3  # windows of 4 sentences


def accuracies(script, folder, *names):
    """Accuracy of outputs on answers within reach, by phenomenon."""
    questions, outputs = probe.run(script, folder)
    for name in names:
        found = score.accuracy(questions, outputs[name].hypotheses)
        yield {p: score.pooled(found, p, REACH) for p in probe.PHENOMENA}


@pytest.mark.system
def test_repair(tmp_path):
    own, control = accuracies("run_repair.sh", tmp_path, "repair4_sequential", "repair1_sequential")
    for phenomenon in probe.PHENOMENA:
        if phenomenon == "ellipsis":
            probe.assert_at_ceiling(own[phenomenon])
        else:
            assert own[phenomenon].rate > 0.9
        probe.assert_at_ceiling(control[phenomenon])


@pytest.mark.system
def test_reranking(tmp_path):
    own, control = accuracies("run_rerank.sh", tmp_path, "document_reranked", "single_reranked")
    for phenomenon in probe.PHENOMENA:
        assert own[phenomenon].rate > 0.9
        probe.assert_at_ceiling(control[phenomenon])
