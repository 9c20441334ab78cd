"""Tables on the pages of the context probe: written from results.json, new results pooled."""

import json

import pages
import pytest

QUESTIONS = [
    {"phenomenon": "term", "distance": 1, "right": 3, "total": 4, "ceiling": 0.5},
    {"phenomenon": "term", "distance": 3, "right": 4, "total": 5, "ceiling": 0.5},
    {"phenomenon": "term", "distance": 4, "right": 1, "total": 10, "ceiling": 0.5},
    {"phenomenon": "pronoun", "distance": 1, "right": 1, "total": 2, "ceiling": 0.33},
]
SYSTEM = {
    "questions": QUESTIONS,
    "sentences": {"equal": 5, "sentences": 8, "length_ratio": 1.016},
}


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """A copy of pages and results, which a test may change."""
    for name in ("README.md", "results.md", "results.json"):
        (tmp_path / name).write_bytes((pages.HERE / name).read_bytes())
    monkeypatch.setattr(pages, "HERE", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["README.md", "results.md"])
def test_pages_have_the_tables_of_the_results(name):
    results = json.loads((pages.HERE / "results.json").read_text(encoding="utf-8"))
    page = (pages.HERE / name).read_text(encoding="utf-8")
    assert pages.inserted(page, results) == page
    assert page.count("<!-- written by") == page.count("<!-- end of pages.py") > 0


@pytest.mark.parametrize(
    "row, wanted",
    [
        (["term", "1", 4, 0.5], 0.75),
        (["term", "1 to 3", 9, 0.5], 0.78),
        (["term", "4 to 10", 10, 0.5], 0.1),
        (["term", "all", 19, 0.5], 0.42),
        (["equal to the reference", "", 8, None], 0.62),
        (["length / reference", "", 8, None], 1.02),
        (["epochs", "", None, None], None),
    ],
)
def test_figures_of_a_row(row, wanted):
    assert pages.figure(SYSTEM, row) == wanted


def test_questions_must_be_the_same():
    message = "9 questions of term, distance 1 to 3; the table has 10: give results on the same"
    with pytest.raises(ValueError, match=message):
        pages.figure(SYSTEM, ["term", "1 to 3", 10, 0.5])


def test_new_results_are_a_column(copies, tmp_path):
    results = json.loads((copies / "results.json").read_text())
    table = results["repair"]
    questions = [
        {"phenomenon": name, "distance": int(distance[0]), "total": total, "right": 1, "ceiling": c}
        for name, distance, total, c in table["rows"]
        if c is not None
    ]
    new = {"questions": questions, "sentences": {**SYSTEM["sentences"], "sentences": 2400}}
    (tmp_path / "scores").write_text(json.dumps({"new": new, "repaired": new}))
    pages.main(["--table", "repair", "--scores", str(tmp_path / "scores")])
    found = json.loads((copies / "results.json").read_text())
    assert list(found["repair"]["systems"]) == [*table["systems"], "new"]
    assert found["repair"]["systems"]["new"] == found["repair"]["systems"]["repaired"]
    assert found["repair"]["systems"]["new"][0] == round(1 / 186, 2)
    assert {**found, "repair": table} == results
    assert pages.markdown(found["repair"]) in (copies / "results.md").read_text()


@pytest.mark.parametrize(
    "text, message",
    [
        ("[", "scores was not written by score.py --format json"),
        ("[]", "scores was not written by score.py"),
        ('{"new": {}}', "scores was not written by score.py"),
        (json.dumps({"new": SYSTEM}), "0 questions of ellipsis"),
    ],
)
def test_files_that_score_has_not_written_change_nothing(copies, tmp_path, text, message):
    before = {path.name: path.read_bytes() for path in copies.iterdir()}
    (tmp_path / "scores").write_text(text)
    with pytest.raises(SystemExit, match=message):
        pages.main(["--table", "repair", "--scores", str(tmp_path / "scores")])
    assert {name: (copies / name).read_bytes() for name in before} == before


def test_a_table_and_scores_belong_together(capsys):
    with pytest.raises(SystemExit):
        pages.main(["--table", "repair"])
    assert "--table and --scores belong together" in capsys.readouterr().err
