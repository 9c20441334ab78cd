"""Checkpoints of earlier versions give the same output and continue training identically."""

import json

import pytest
from golden import systems
from long_tests import long_but_for


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return systems.corpus(tmp_path_factory.mktemp("golden"))


def assert_same(found, wanted):
    """Compare words exactly and scores up to rounding."""
    assert found.keys() == wanted.keys()
    for decoding, lines in wanted.items():
        for row, line in lines.items():
            score, _, text = found[decoding][row].partition(" ")
            wanted_score, _, wanted_text = line.partition(" ")
            assert (decoding, row, text) == (decoding, row, wanted_text)
            assert float(score) == pytest.approx(float(wanted_score), abs=2e-3)
        assert found[decoding].keys() == lines.keys()


#: one of each task; equations/ hold what all compute
FAST = ["transformer-windows", "lst", "cache-deep", "memnet"]


@pytest.mark.parametrize("name", long_but_for(FAST, systems.SYSTEMS))
def test_a_kept_checkpoint(data, tmp_path, name):
    wanted = json.loads((systems.KEPT / f"{name}.json").read_text(encoding="utf-8"))
    checkpoint = systems.unpack(name, tmp_path / "saved")
    assert_same(systems.outputs(name, data, checkpoint), wanted["saved"])
    resumed = systems.resume(name, data, tmp_path / "resumed")
    first = systems.SYSTEMS[name].decodings[0]
    resumed = systems.outputs(name, data, resumed, [first])
    assert_same(resumed, {first: wanted["resumed"][first]})
    assert wanted["resumed"][first] != wanted["saved"][first]
