"""The benchmark of recurrent systems compares systems of equal size."""

import argparse
import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from fairseq_docmt.errors import UserError

PATH = Path(__file__).resolve().parents[2] / "examples/benchmarks/recurrent/benchmark.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("recurrent_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_results_need_a_folder(benchmark, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--out .*/file cannot be made \(File exists\); give a"):
        benchmark.make_folder(tmp_path / "file")
    benchmark.make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_there_may_be_no_gpu(benchmark, monkeypatch):
    common = sys.modules[benchmark.make_folder.__module__]
    for there, default in ((False, ["cpu"]), (True, ["cpu", "cuda"])):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert common.devices_of(None) == default and common.devices_of("cpu") == ["cpu"]
    assert common.devices_of("cuda") == ["cuda"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="--device cuda: torch finds no GPU; leave it out"):
        common.devices_of("cuda")


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


@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_numbers_from_one(benchmark, monkeypatch, capsys, value):
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--repeats", value])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert "argument --repeats: " in capsys.readouterr().err


def test_all_benchmarks_check_their_numbers():
    """Only turns before the first, and what is 0 or 1, may be none."""
    scripts = PATH.parents[1].glob("*/*.py")
    options = [
        o
        for script in scripts
        for o in re.findall(r'"(--[a-z-]+)",\s*type=int', script.read_text())
    ]
    assert {*options} <= {"--warm-up"}
