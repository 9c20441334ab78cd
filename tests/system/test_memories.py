"""Recurrent memories keep context over whole documents."""

import probe
import pytest
import score


@pytest.fixture(scope="module")
def memories(tmp_path_factory):
    """Questions, and outputs with memories on both sides, on one side, and without memory."""
    systems = ["both", "source", "target", "no-context"]
    folder = probe.folder_of(tmp_path_factory, "memory")
    questions, found = probe.run_each("run_stream.sh", folder, *systems)
    return questions, {name: found[f"{name}_stream"] for name in systems}


def pooled(memories, system, phenomenon):
    """Accuracy of a system on one phenomenon at all distances."""
    questions, outputs = memories
    return score.pooled(score.accuracy(questions, outputs[system].hypotheses), phenomenon, 99)


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", probe.PHENOMENA)
@pytest.mark.parametrize("side", ["both", "source", "target"])
def test_memories_keep_the_context_of_whole_documents(memories, side, phenomenon):
    """Over whole documents.  Here each side has the context of all questions."""
    assert pooled(memories, side, phenomenon).rate > 0.9


@pytest.mark.system
@pytest.mark.parametrize("side", ["both", "source", "target"])
def test_whole_sentences_are_written(memories, side):
    probe.assert_whole_sentences(memories[1][side], equal=0.85)


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", probe.PHENOMENA)
def test_a_memory_that_forgets_is_at_the_ceiling(memories, phenomenon):
    probe.assert_at_ceiling(pooled(memories, "no-context", phenomenon))
