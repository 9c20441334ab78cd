"""The benchmark of recurrent systems compares systems of equal size."""

import argparse
import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "examples/benchmarks/recurrent/benchmark.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("recurrent_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_systems_have_the_same_sizes(benchmark, monkeypatch):
    """The sizes do not depend on the defaults of the architectures."""
    monkeypatch.setitem(benchmark.SCALES, "paper", (14, 6, 50))
    args = argparse.Namespace(scale="paper", device="cpu")
    for name in benchmark.SYSTEMS:
        if name != "lstm (fairseq)":
            decoder = benchmark.Runner(name, args).model.decoder
            attending = decoder.attending
            sizes = (attending.attention_dim, attending.hidden_dim, attending.key_proj.in_features)
            assert (*sizes, decoder.embed_tokens.embedding_dim) == (14, 14, 28, 6), name
            assert decoder.upper is None, name
