"""A memory on one side has the context of this side."""

import json

import probe
import pytest
from scipy.stats import binom


@pytest.fixture(scope="module")
def one_sided(tmp_path_factory):
    """Contrastive accuracies by side of the memory, for answers that only one side shows."""
    folder, sides = tmp_path_factory.mktemp("one_sided"), ["source", "target"]
    probe.run("run_one_sided.sh", folder, *sides)
    found = {side: json.loads((folder / f"{side}.json").read_text()) for side in sides}
    return {side: found[side]["test.contrastive"]["by label"]["phenomenon"] for side in sides}


@pytest.mark.system
def test_a_memory_of_the_source_knows_the_source_alone(one_sided):
    assert one_sided["source"]["number"]["accuracy"] > 0.9
    # The speaker is drawn once per document, for 200 documents.
    speaker = one_sided["source"]["speaker"]
    assert speaker["accuracy"] <= binom.ppf(0.999, 200, speaker["chance"]) / 200


@pytest.mark.system
def test_a_memory_of_the_target_knows_what_only_the_target_shows(one_sided):
    """It knows the source too, because it is updated from states that attend to the source."""
    assert one_sided["target"]["speaker"]["accuracy"] > 0.9
    assert one_sided["target"]["number"]["accuracy"] > 0.9
