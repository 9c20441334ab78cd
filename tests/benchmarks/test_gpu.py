"""The benchmark for GPUs runs, here with tiny models on the CPU."""

import importlib.util
import json
import sys

import pytest
import tiny

BENCHMARK = tiny.ROOT / "examples" / "benchmarks" / "gpu" / "benchmark.py"
SPEC = importlib.util.spec_from_file_location("gpu_benchmark", BENCHMARK)
benchmark = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(benchmark)


@pytest.mark.long
def test_systems_are_compared_in_turns(tmp_path, monkeypatch, capsys):
    systems = ["transformer", "memory_transformer", "rnnsearch", "cache_rnn"]
    command = ["--out", str(tmp_path), "--device", "cpu", "--tiny", "--rows", "0.0625"]
    command += ["--sizes", "small", "--precisions", "single", "--repeats", "2", "--profile"]
    command += ["--documents", "2", "--length", "4", "--systems", *systems]
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *command])
    benchmark.main()
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {(row["what"], row["system"]) for row in rows} == {
        (what, name) for what in ("update", "decoding") for name in systems
    }
    assert all(len(row["runs"]) == 2 for row in rows)
    assert all(row["waits"] is None and row["kernels"] is None for row in rows)
    assert all(row["time"] == 1 for row in rows if row["system"] in ("transformer", "rnnsearch"))
    assert all("time" in row for row in rows)
    printed = capsys.readouterr().out
    assert "small, update, float32" in printed and "| cache_rnn " in printed
    assert printed.strip() == (tmp_path / "results.md").read_text().strip()


def test_published_tables_are_made_from_the_results():
    folder = BENCHMARK.parent
    made = benchmark.table(json.loads((folder / "results.json").read_text()))
    page = (folder / "results.md").read_text()
    for part in made.split("\n\n")[2::2]:
        assert part.strip() in page


def test_every_base_does_what_is_compared_with_it():
    keys = {
        (name, "sentence" if task is benchmark.SENTENCE else decoding)
        for name, system in benchmark.SYSTEMS.items()
        for task, decoding in system.decodings
    }
    shapes = {(name, shape) for name, s in benchmark.SYSTEMS.items() for shape in s.shapes}
    assert all(benchmark.base_of(key) in keys for key in keys)
    assert all(benchmark.base_of(key) in shapes for key in shapes)


def test_a_gpu_is_needed(tmp_path, monkeypatch, capsys):
    if benchmark.torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(sys, "argv", ["benchmark.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        benchmark.main()
    assert stopped.value.code == 2 and "needs a GPU" in capsys.readouterr().err
