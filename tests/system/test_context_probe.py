"""Windows learn what lies in other sentences, and without context nothing beats the ceiling.

The quickstart's own script, so that what the README promises is what is tested; minutes of CPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import score
import tiny
from scipy.stats import binom

REACH = 3  # windows of 4 sentences
PROBE = tiny.ROOT / "examples" / "context_probe"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Accuracies of the quickstart's systems."""
    folder = tmp_path_factory.mktemp("probe")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = ["bash", str(PROBE / "run.sh"), str(folder)]
    subprocess.run(run, env=environment, check=True)
    questions = score.read_questions(str(folder / "data" / "test.probe.jsonl"))
    # Decoding windows sees no own output but that of the window: count what its sources show.
    for question in questions:
        question["distance"] = question["distance_to_first"]
    return {
        name: score.accuracy(
            questions, score.read_hypotheses(str(folder / f"out_{name}" / "generate-test.txt"))
        )
        for name in ("sentence_window", "window4_window", "window4_sequential")
    }


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", ["pronoun", "formality", "term", "ellipsis"])
@pytest.mark.parametrize("system", ["window4_window", "window4_sequential"])
def test_windows_use_their_context(outputs, system, phenomenon):
    assert score.pooled(outputs[system], phenomenon, REACH).rate > 0.9


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", ["pronoun", "formality", "term", "ellipsis"])
def test_without_context_the_ceiling_holds(outputs, phenomenon):
    result = score.pooled(outputs["sentence_window"], phenomenon, 99)
    # Formality is one draw for a whole document of the 200, the rest one draw for each question.
    trials = min(result.total, 200)
    assert result.rate <= binom.ppf(0.999, trials, result.ceiling) / trials
