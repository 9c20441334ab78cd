"""Recurrent models with a few sentences of context use it."""

import probe
import pytest
import score

#: how many sentences back each of them knows the source; none if its context is cut
LOCAL = {
    "previous-source-attention": 1,
    "hierarchical": 3,
    "previous-source-attention-no-context": 0,
    "hierarchical-no-context": 0,
}


@pytest.fixture(scope="module")
def local_contexts(tmp_path_factory):
    """Questions, and translations of recurrent models with a few sentences of context."""
    folder = probe.folder_of(tmp_path_factory, "local")
    return probe.run_each("run_stream.sh", folder, *LOCAL)


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", ["pronoun", "ellipsis"])
@pytest.mark.parametrize("context", LOCAL)
def test_local_contexts_reach_as_far_as_they_look(local_contexts, context, phenomenon):
    questions, found = local_contexts
    reach, output = LOCAL[context], found[f"{context}_stream"].hypotheses
    near = [q for q in questions if q["distance"] <= reach]
    far = [q for q in questions if q["distance"] > reach]
    if reach:
        assert score.pooled(score.accuracy(near, output), phenomenon, 99).rate > 0.9
    if phenomenon in {q["phenomenon"] for q in far}:
        probe.assert_at_ceiling(score.pooled(score.accuracy(far, output), phenomenon, 99))


@pytest.mark.system
def test_the_previous_target_state_keeps_context(tmp_path):
    """The previous state depends on all earlier sentences."""
    questions, found = probe.run("run_stream.sh", tmp_path, "previous-target", "--updates", "4500")
    output = found["previous-target_stream"]
    probe.assert_whole_sentences(output, equal=0.85)
    results = score.accuracy(questions, output.hypotheses)
    for phenomenon in probe.PHENOMENA:
        assert score.pooled(results, phenomenon, 3).rate > 0.9
