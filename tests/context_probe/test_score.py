"""Scoring of the context probe: errors for bad files, and agreement of tables and figures."""

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
    """Write a probe file and an output, and score the output under a name."""

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


def test_accuracy_by_kind_and_pooled():
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
    output = score.read_output(str(tmp_path / "out"))
    assert output.hypotheses == {1: ["a", "b"], 0: []}
    assert output.references == {2: ["d"]}


def test_whole_sentences_are_compared():
    references = {1: ["a", "b"], 3: ["c"], 4: ["d", "e", "f"]}
    found = score.quality(score.Output({1: ["a", "b"], 3: ["c", "c"], 4: ["d"]}, references))
    assert (found.equal, found.sentences, found.rate) == (1, 3, pytest.approx(1 / 3))
    assert found.length_ratio == pytest.approx(5 / 6)


def test_a_column_for_each_system(run, capsys, tmp_path):
    (tmp_path / "other").write_text("T-4\ta e\nH-4\t-1\tb\n")
    run(rows({}), "T-4\ta\nH-4\t-1\ta\n", f"yours={tmp_path / 'other'}", "--format", "markdown")
    shown = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()[2:]  # title
    ]
    assert shown[0][-2:] == ["mine", "yours"]
    assert shown[2] == ["ellipsis", "2", "1", "0.25", "1.00", "0.00"]
    assert shown[3] == ["equal to the reference", "", "1", "", "1.00", "0.00"]
    assert shown[4] == ["length / reference", "", "1", "", "1.00", "0.50"]


@pytest.mark.parametrize(
    "probe, output, message",
    [
        (rows({}), "H-0\t-1\ta\n", "out: no hypothesis for line 5"),
        (rows({}), "", "out: no hypothesis for line 5"),
        (rows({}), "H-4\t-1\ta\n", r"out: no reference \(T-\) for line 5"),
        (
            rows({}),
            "T-4\te\nH-4\t-1\ta\n",
            "out: the reference of line 5 lacks the answer 'a'",
        ),
        *(
            (
                rows({}),
                f"T-4\t{words}\nH-4\t-1\ta\n",
                "out: the reference of line 5 has 'c' where the answer is 'a'; give the output for",
            )
            for words in ("c", "a c", "<<unk>> c")
        ),
        (rows({}, {"alternatives": []}), "", "probe, line 2: no alternatives; give each question"),
        (
            rows({"alternatives": ["b", "a"]}),
            "",
            "probe, line 1: the answer 'a' is an alternative too; give each question",
        ),
        (rows({"alternatives": "bcd"}), "", "probe, line 1: not a question"),
        (rows({"line": "4"}), "", "probe, line 1: not a question"),
        (rows({"ceiling": None}), "", "probe, line 1: not a question"),
        ("", "H-4\t-1\ta\n", "probe has no questions"),
        ("{}\n", "H-4\t-1\ta\n", "probe, line 1: not a question"),
        (rows({}) + "4\n", "H-4\t-1\ta\n", "probe, line 2: not a question"),
        (rows({}) + "{\n", "H-4\t-1\ta\n", "probe, line 2: not a question"),
        (rows({}) + 99999 * "[" + "\n", "", "probe, line 2: not a question"),
    ],
)
def test_bad_files_get_one_sentence(run, probe, output, message):
    with pytest.raises(SystemExit, match=message) as stopped:
        run(probe, output)
    assert "\n" not in stopped.value.code


def test_a_missing_file_is_named(run, tmp_path):
    with pytest.raises(SystemExit, match="nowhere"):
        run(rows({}), "T-4\ta\nH-4\t-1\ta\n", f"yours={tmp_path / 'nowhere'}")


def test_a_system_needs_a_name_and_an_output(run):
    with pytest.raises(SystemExit, match="yours: give systems as NAME=OUTPUT"):
        run(rows({}), "T-4\ta\nH-4\t-1\ta\n", "yours")


def test_systems_have_the_same_sentences(run, tmp_path):
    (tmp_path / "other").write_text("T-4\ta\nH-4\t-1\tb\n")
    message = "yours has 1 sentences, mine has 2; generate the whole test set with each"
    with pytest.raises(SystemExit, match=message):
        output = "T-4\ta\nH-4\t-1\ta\nT-5\tc\nH-5\t-1\tc\n"
        run(rows({}), output, f"yours={tmp_path / 'other'}")


def test_the_answer_may_be_unknown(run, capsys):
    run(rows({}), "T-4\t<<unk>>\nH-4\t-1\ta\n")
    assert "1.00" in capsys.readouterr().out


def test_figures_are_written(run, tmp_path):
    output = "T-4\ta\nH-4\t-1\ta\nT-5\ta\nH-5\t-1\tb\n"
    run(rows({}, {"line": 5}), output, "--format", "json", "--out", str(tmp_path / "figures"))
    figures = {"phenomenon": "ellipsis", "distance": 2, "right": 1, "total": 2, "ceiling": 0.25}
    sentences = {"equal": 1, "sentences": 2, "length_ratio": 1.0}
    written = json.loads((tmp_path / "figures").read_text())
    assert written == {"mine": {"questions": [figures], "sentences": sentences}}


def test_a_name_is_used_once(run, tmp_path):
    with pytest.raises(SystemExit, match="two systems are named mine"):
        run(rows({}), "T-4\ta\nH-4\t-1\ta\n", f"mine={tmp_path / 'out'}")


def test_figures_that_cannot_be_written_get_one_sentence(run, tmp_path):
    with pytest.raises(SystemExit, match="probe/figures.json cannot be written"):
        run(rows({}), "T-4\ta\nH-4\t-1\ta\n", "--out", str(tmp_path / "probe" / "figures.json"))
