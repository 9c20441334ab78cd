"""Scoring: bad files get one sentence, tables and figures agree."""

import json

import pytest
import score

ROW = {
    "line": 4,
    "phenomenon": "ellipsis",
    "distance": 2,
    "distance_to_first": 2,
    "answer": "a",
    "alternatives": ["b", "c", "d"],
    "ceiling": 0.25,
}


@pytest.fixture
def run(tmp_path):
    """Writes a probe file and an output, then scores it under a name."""

    def run(probe, output, *options, name="mine"):
        (tmp_path / "probe").write_text(probe)
        (tmp_path / "out").write_text(output)
        score.main(["--probe", str(tmp_path / "probe"), f"{name}={tmp_path / 'out'}", *options])

    return run


def rows(*changes):
    return "".join(json.dumps({**ROW, **change}) + "\n" for change in changes)


@pytest.mark.parametrize("words, right", [("a", 1), ("a a", 1), ("a d", 0), ("aa", 0), ("", 0)])
def test_each_alternative_spoils_an_answer(words, right):
    result = score.accuracy([ROW], {4: words.split()})
    assert result == {("ellipsis", 2): score.Accuracy(right, 1, 0.25)}


def test_kinds_are_kept_apart_and_pooled():
    items = [ROW, {**ROW, "line": 5, "distance": 1}, {**ROW, "line": 6, "distance": 9}]
    results = score.accuracy(items, {4: ["a"], 5: ["b"], 6: ["a"]})
    assert {key: result.rate for key, result in results.items()} == {
        ("ellipsis", 2): 1.0,
        ("ellipsis", 1): 0.0,
        ("ellipsis", 9): 1.0,
    }
    assert score.pooled(results, "ellipsis", most=3) == score.Accuracy(1, 2, 0.25)


def test_of_several_hypotheses_the_first_counts(tmp_path):
    (tmp_path / "out").write_text("H-1\t-0.1\ta b\nD-1\t-0.1\tx\nH-1\t-2\tc\nH-0\t-3\t\nT-2\td\n")
    assert score.read_hypotheses(str(tmp_path / "out")) == {1: ["a", "b"], 0: []}


def test_a_column_for_each_system(run, capsys, tmp_path):
    (tmp_path / "other").write_text("H-4\t-1\tb\n")
    run(rows({}), "H-4\t-1\ta\n", f"yours={tmp_path / 'other'}", "--markdown")
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
    ]
    assert shown[0][-2:] == ["mine", "yours"]
    assert shown[2] == ["ellipsis", "2", "1", "0.25", "1.00", "0.00"]


@pytest.mark.parametrize(
    "probe, output, message",
    [
        (rows({}), "H-0\t-1\ta\n", "out: no hypothesis for line 5"),
        (rows({}), "", "out: no hypothesis for line 5"),
        ("", "H-4\t-1\ta\n", "probe has no questions"),
        ("{}\n", "H-4\t-1\ta\n", "probe, line 1: not a question"),
        (rows({}) + "4\n", "H-4\t-1\ta\n", "probe, line 2: not a question"),
        (rows({}) + "{\n", "H-4\t-1\ta\n", "probe, line 2: not a question"),
    ],
)
def test_bad_files_get_one_sentence(run, probe, output, message):
    with pytest.raises(SystemExit, match=message) as stopped:
        run(probe, output)
    assert "\n" not in stopped.value.code


def test_a_missing_file_is_named(run, tmp_path):
    with pytest.raises(SystemExit, match="nowhere"):
        run(rows({}), "H-4\t-1\ta\n", f"yours={tmp_path / 'nowhere'}")


def test_a_system_needs_a_name_and_an_output(run):
    with pytest.raises(SystemExit, match="yours: give systems as NAME=OUTPUT"):
        run(rows({}), "H-4\t-1\ta\n", "yours")


def test_figures_are_written(run, tmp_path):
    run(rows({}, {"line": 5}), "H-4\t-1\ta\nH-5\t-1\tb\n", "--json", str(tmp_path / "figures"))
    figures = {"phenomenon": "ellipsis", "distance": 2, "right": 1, "total": 2, "ceiling": 0.25}
    assert json.loads((tmp_path / "figures").read_text()) == {"mine": [figures]}


def test_a_name_is_used_once(run, tmp_path):
    with pytest.raises(SystemExit, match="two systems are named mine"):
        run(rows({}), "H-4\t-1\ta\n", f"mine={tmp_path / 'out'}")


def test_figures_that_cannot_be_written_get_one_sentence(run, tmp_path):
    with pytest.raises(SystemExit, match="absent"):
        run(rows({}), "H-4\t-1\ta\n", "--json", str(tmp_path / "absent" / "figures.json"))
