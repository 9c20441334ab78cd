"""Recurrent memories carry what is needed as far back as documents go."""

import probe
import pytest
import score


@pytest.fixture(scope="module")
def memories(tmp_path_factory):
    """Accuracies of memories on both sides or one, and of one that forgets."""
    systems = ["both", "source", "target", "forget"]
    questions, found = probe.run("run_stream.sh", tmp_path_factory.mktemp("memory"), *systems)
    return {name: score.accuracy(questions, found[f"{name}_stream"]) for name in systems}


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", probe.PHENOMENA)
@pytest.mark.parametrize("side", ["both", "source", "target"])
def test_memories_carry_what_is_needed(memories, side, phenomenon):
    """As far back as documents go.  Each side shows everything that is asked for here."""
    assert score.pooled(memories[side], phenomenon, 99).rate > 0.9


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", probe.PHENOMENA)
def test_a_memory_that_forgets_is_at_the_ceiling(memories, phenomenon):
    probe.assert_at_ceiling(score.pooled(memories["forget"], phenomenon, 99))
