"""The figures of the papers beside our benchmarks, whose results are given here."""

import importlib.util
import json
import subprocess
import sys

import pytest
import tiny

PATH = tiny.ROOT / "examples" / "benchmarks" / "gpu" / "papers.py"
SPEC = importlib.util.spec_from_file_location("papers", PATH)
papers = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(papers)

ROWS = {
    "decoding_speed": [
        {
            "window": 15,
            "kind": "equal",
            "ratios": {"to fairseq's": [3, 2, 7], "to the fastest transformer": [1.5]},
        }
    ],
    "training_memory": [
        {"system": "transformer", "length": 736, "runs": [{"bytes": 2e9, "seconds": 0.5}]},
        {"system": "window 10, oneDNN", "length": 736, "runs": [None]},
    ],
    "recurrent": [{"system": "cache_rnn, 25", "training": [7, 9, 8], "decoding": [1]}],
}


@pytest.fixture
def measured(tmp_path, monkeypatch, capsys):
    """Run papers.py with benchmarks that write these rows; one of them is stopped, one fails."""

    def run(command, timeout):
        folder = papers.Path(command[command.index("--out") + 1])
        folder.mkdir(parents=True)
        benchmark = papers.Path(command[3]).parent.name
        (folder / "results.json").write_text(json.dumps({"rows": ROWS[benchmark]}))
        if benchmark == "decoding_speed":
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, int(benchmark == "recurrent"))

    monkeypatch.setattr(papers.subprocess, "run", run)
    command = ["papers.py", "--out", str(tmp_path), "--device", "cpu", "--small", "--limit", "9"]
    monkeypatch.setattr(sys, "argv", command)
    papers.main()
    figures = json.loads((tmp_path / "papers.json").read_text())
    by_name = {figure["what"]: (figure["published"], figure["ours"]) for figure in figures}
    return by_name, (tmp_path / "papers.md").read_text(), capsys.readouterr().out


def test_figures_stand_beside_each_other(measured):
    figures, table, _ = measured
    assert figures["tokens/s to fairseq's, L = 15, equal batches"] == (2.09, 3)
    assert figures["tokens/s to fairseq's, L = 30, equal batches"] == (None, None)
    assert figures["GB of an update, transformer, 736 tokens"] == (2.3, 2)
    assert figures["seconds of an update, transformer, 736 tokens"] == (None, 0.5)
    assert figures["GB of an update, window 10, 736 tokens"] == (2.4, None)
    assert figures["words/s in training, cache_rnn, 25"] == (1164, 8)
    assert len(figures) == 12 + 18 + 8
    assert "| 2.09 " in table and "| 1164 " in table


def test_what_was_measured_before_the_end_is_kept(measured):
    _, _, printed = measured
    assert "decoding_speed: stopped after 9 s" in printed
    assert "recurrent: failed with status 1" in printed


def test_published_figures_are_made_from_the_results():
    figures = json.loads((PATH.parent / "papers.json").read_text())
    made = papers.table([papers.Figure(**figure) for figure in figures])
    assert figures and made in (PATH.parent / "results.md").read_text()


def test_benchmarks_know_the_systems():
    """The names of systems and settings are as in the benchmarks."""
    names = {"training_memory": papers.MEMORY, "recurrent": papers.SPEEDS}
    for folder, systems in names.items():
        path = papers.BENCHMARKS / folder / "benchmark.py"
        spec = importlib.util.spec_from_file_location(folder, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert set(systems) <= set(module.SYSTEMS)
    text = (papers.BENCHMARKS / "decoding_speed/benchmark.py").read_text()
    assert "WINDOWS = (1, 2, 3, 4, 5, 8, 10, 15, 30)" in text
    for ratio in ("to fairseq's", "to the fastest transformer"):
        assert f'"{ratio}"' in text


def test_a_gpu_is_needed(tmp_path, monkeypatch, capsys):
    if papers.torch.cuda.is_available():
        pytest.skip("there is a GPU")
    monkeypatch.setattr(sys, "argv", ["papers.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        papers.main()
    assert stopped.value.code == 2 and "needs a GPU" in capsys.readouterr().err
