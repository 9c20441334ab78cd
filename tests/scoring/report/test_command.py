"""The report: content, escaping, and display in a browser.

Covers scoring/report/difference.py, scoring/report/plots.py and scoring/words/tags.py.
"""

import base64
import hashlib
import html
import itertools
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.report import command
from fairseq_docmt.scoring.report import difference as _difference
from fairseq_docmt.scoring.report.difference import Run, runs
from fairseq_docmt.scoring.report.plots import line_plot
from fairseq_docmt.scoring.texts.test_set import Translations
from fairseq_docmt.scoring.words import tags

HOSTILE = "</td><script>document.title = 'broken'</script><img src=x onerror=alert(1)>&amp;"
NAME = "_$</td><script>document.title.remove()</script>$"
SOURCE = [["eins zwei", HOSTILE], ["drei"]]
REFERENCE = [["one two three four", f"five {HOSTILE}"], ["six seven eight nine"]]
FIRST = [["one two three four", f"5 {HOSTILE}"], ["six eight nine"]]
SECOND = [["one too three four", f"5 {HOSTILE}"], ["six eight seven nine"]]
LONG = "a b " * 149 + "a b"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)


@pytest.mark.parametrize(
    "text, reference, other, wanted",
    [
        ("a b c", "a b c", "a b c", [("a b c", "")]),
        ("a x y c.", "a b c.", None, [("a ", ""), ("x y", "off"), (" c.", "")]),
        ("a b", "a b", "a", [("a ", ""), ("b", "changed")]),
        ("x b", "a b", "c b", [("x", "off changed"), (" b", "")]),
        ("我爱你", "我恨你", None, [("我", ""), ("爱", "off"), ("你", "")]),
        ("it's", "it is", None, [("it", ""), ("'s", "off")]),
        ("", "a", "b", []),
        ("  a ", "b", None, [("  ", ""), ("a", "off"), (" ", "")]),
        # A long text of few different words.
        (f"x {LONG} x", f"y {LONG} y", None, [("x", "off"), (f" {LONG} ", ""), ("x", "off")]),
    ],
)
def test_runs(text, reference, other, wanted):
    found = runs(text, reference, other)
    assert found == [Run(part, "off" in kind, "changed" in kind) for part, kind in wanted]
    assert "".join(run.text for run in found) == text


def figures(accuracy, **distances):
    def figure(value):
        return {"items": 4, "correct": 2, "ties": 1, "chance": 0.25, "accuracy": value}

    parts = {distance: figure(value) for distance, value in distances.items()}
    by_label = {"distance": parts} if parts else {}
    return {"signature": f"set|{HOSTILE}", "all": figure(accuracy), "by label": by_label}


@pytest.fixture
def report(scoring, write, tmp_path):
    """Write a report on two systems and return its path."""

    def run(*arguments, second=SECOND, name=NAME):
        systems = [f"first={write('first', FIRST)}", f"{name}={write('second', second)}"]
        texts = ["--source", write("source", SOURCE), "--reference", write("reference", REFERENCE)]
        out = tmp_path / "report.html"
        scoring("report", *systems, *texts, "--out", str(out), "--title", HOSTILE, *arguments)
        return out

    return run


def test_results_of_two_systems_under_one_name_are_refused(report, write):
    one, two = (write(name, json.dumps({"set": figures(0.6)})) for name in ("1.json", "2.json"))
    with pytest.raises(UserError, match="--contrastive first=.*: first already has results of set"):
        report("--contrastive", f"first={one}", "--contrastive", f"first={two}")


@pytest.fixture
def every_point(monkeypatch):
    """Plot all points of small test sets."""
    monkeypatch.setattr(command, "FEWEST", 1)


def test_page(report, write, every_point):
    results = {"1": 0.5, "2": 0.75, HOSTILE: 0.25}
    contrastive = write("c.json", json.dumps({HOSTILE: figures(0.6, **results)}))
    page = report("--contrastive", f"first={contrastive}", "--range", "1").read_text()
    # The data and the script of the page; no text makes another one.
    assert page.count("<script") == page.count("</script") == 2 and "<img" not in page
    assert page.count(html.escape(HOSTILE, quote=False).replace("'", "&#39;")) > 3
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.S).group(1))
    assert data["documents"][0]["sentences"][1][0] == HOSTILE
    same = [row[-2] for document in data["documents"] for row in document["sentences"]]
    assert same == [False, True, False]
    scores = sum((document["bleu"] for document in data["documents"]), [])
    assert all(score == round(score, 2) for score in scores) and len(set(scores)) > 1
    assert data["systems"] == ["first", NAME]
    assert page.count("<svg") == 2 and "by distance" in page
    cells = re.findall(r"<td>([^<]*)</td>", page)
    assert ["60.0", "1", "25.0"] == cells[-3:]
    # Nothing is taken from elsewhere.
    assert not re.search(r"(?:src|href|url)[=(]\W*[a-z]+:", page)
    script = re.search(r"<script>(.*?)</script>", page, flags=re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page


def test_documents_of_a_few_words(scoring, write, tmp_path):
    """A perfect translation has no 4-grams, and a plot would be a single point."""
    short = [["a b"], ["c"]]
    out = tmp_path / "report.html"
    system, reference = write("system", short), write("reference", short)
    scoring("report", f"x={system}", "--reference", reference, "--out", str(out))
    page = out.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.S).group(1))
    assert [document["bleu"] for document in data["documents"]] == [[100], [100]]
    assert "<svg" not in page and "Plots" not in page
    assert "2 documents, 2 sentences." in page


def test_marks_of_significance(scoring, write, tmp_path):
    good = [["a b c d e"] * 30]
    bad = [["a b x d e"] * 30]
    systems = [f"{n}={write(n, docs)}" for n, docs in (("good", good), ("bad", bad), ("too", good))]
    out = tmp_path / "report.html"
    arguments = [*systems, "--reference", write("reference", good), "--out", str(out)]
    scoring("report", *arguments, "--metrics", "s-bleu,ter", "--tests", "randomisation")
    cells = re.findall(r"<td>([^<]*)</td>", out.read_text())
    assert cells[:9] == [
        "good",
        "100.00",
        "0.00",
        "bad",
        cells[4],
        "20.00°",
        "too",
        "100.00",
        "0.00",
    ]
    assert cells[4].endswith("°")


def test_some_documents_only(report):
    page = report("--documents", "1", name="second").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.S).group(1))
    assert [document["name"] for document in data["documents"]] == ["1"]
    assert "1 more documents are not shown" in page


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--contrastive", "FILE"], "--contrastive .*: give results as NAME=FILE"),
        (["--contrastive", "a=FILE"], "wrong.json: line 1 is not valid JSON"),
        (["--documents", "-1"], "--documents must not be negative, got -1"),
        (["--tags", "FILE"], "wrong.json: line 1 is not valid JSON"),
        (["--tags", "TAGS"], "line 1: the test set has no segment 3 of document 1"),
        (["--tags", "OTHER"], "line 1: the test set has no segment 1 of document x"),
        (["--tags", "LETTERS"], 'line 1 must have .* and "tags", a list of names'),
        (["--range", "0"], "a range must have at least 1 position, not 0"),
    ],
)
def test_mistakes(report, write, tmp_path, arguments, message):
    path = write("wrong.json", "no json")
    tags = write("tags", '{"doc_id": 1, "segment": 3, "tags": []}')
    letters = write("letters", '{"doc_id": 1, "segment": 1, "tags": "abc"}')
    other = write("other", '{"doc_id": "x", "segment": 1, "tags": []}')
    files = {"FILE": path, "TAGS": tags, "OTHER": other, "LETTERS": letters}
    arguments = [re.sub("[A-Z]+$", lambda name: files[name[0]], each) for each in arguments]
    with pytest.raises(UserError, match=message):
        report(*arguments)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    "content",
    ["[1]", '{"set": {"all": {"accuracy": "x"}}}', '{"set": 3}']
    + [
        '{"set": {"all": {"accuracy": %s, "chance": 0, "ties": 0, "items": 9}}}' % value
        for value in ("NaN", f"1{'0' * 400}", '"0.5"')
    ],
)
def test_other_json_is_refused(report, write, content):
    with pytest.raises(UserError, match="wrong.json is not a JSON file of the command contrastive"):
        report("--contrastive", f"a={write('wrong.json', content)}")


PROBE = """
const shown = () => [...document.querySelectorAll("details[open] tbody tr")]
  .filter(row => row.getBoundingClientRect().height > 0).length;
const details = () => document.querySelectorAll("details");
const choose = (id, value) => {
  const field = document.getElementById(id);
  if (field.type === "checkbox") field.checked = value; else field.value = value;
  field.dispatchEvent(new Event("change"));
};
details()[1].open = true;
setTimeout(() => {
  const found = {};
  found.cells = [...document.querySelectorAll(".texts td:not(.place)")]
    .map(cell => cell.textContent.trim());
  const plot = document.querySelector("svg").getBoundingClientRect();
  found.plot = [plot.width, plot.height];
  const mark = document.querySelector("td .off");
  found.mark = [mark.textContent, getComputedStyle(mark).backgroundColor];
  found.line = getComputedStyle(document.querySelector("td .changed")).borderBottomStyle;
  found.strange = document.querySelectorAll("script:not(#data), img, link, iframe, object").length;
  found.fetched = performance.getEntriesByType("resource").length;
  found.legend = [...document.querySelectorAll("svg text")].map(t => t.textContent);
  found.before = [details().length, shown()];
  choose("differing", true);
  found.differing = [details().length, shown()];
  choose("differing", false);
  choose("document", "1");
  found.second = [details().length, shown()];
  choose("document", "");
  choose("tag", "pronoun");
  found.tag = [details().length, shown(), document.getElementById("count").textContent];
  choose("system-0", false);
  found.columns = [...document.querySelectorAll("thead th")].slice(-2).map(c => c.textContent);
  document.body.dataset.found = JSON.stringify(found);
}, 200);
"""


def in_chromium(page, folder):
    """Return the page after it is displayed."""
    quiet = "quic no-first-run background-networking component-update sync dev-shm-usage gpu"
    flags = [f"--disable-{f}" if f != "no-first-run" else f"--{f}" for f in quiet.split()]
    command = [CHROMIUM, "--headless", "--no-sandbox", *flags, f"--user-data-dir={folder}"]
    run = subprocess.run(
        [
            *command,
            "--window-size=1200,900",
            "--virtual-time-budget=5000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return run.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to show the page")
def test_in_chromium(report, write, tmp_path):
    tags = write("tags", '{"doc_id": "1", "segment": 2, "tags": ["pronoun"]}\n')
    page = report("--tags", tags, "--range", "1")
    shown = in_chromium(page, tmp_path / "profile")
    # No text ran as a script: the title is still the text of the title.
    title = re.search(r"<title>(.*?)</title>", shown, flags=re.S).group(1)
    assert html.unescape(title) == HOSTILE
    # The page's own script ran under its own policy.
    assert shown.count("<details") == 2
    probed = tmp_path / "probed.html"
    text = re.sub(r"<meta http-equiv[^>]*>", "", page.read_text())
    probed.write_text(text.replace("draw();\n</script>", f"draw();\n{PROBE}</script>"))
    shown = in_chromium(probed, tmp_path / "profile")
    found = json.loads(html.unescape(re.search(r'data-found="([^"]*)"', shown).group(1)))
    columns = zip(*(sum(docs, []) for docs in (SOURCE, REFERENCE, FIRST, SECOND)))
    assert found["cells"] == [text for row in columns for text in row]
    assert found["before"] == [2, 3]
    assert found["differing"] == [2, 1]  # the first document is open: one sentence of two
    assert found["second"] == [1, 1]
    assert found["tag"] == [1, 1, "1 document, 1 sentence shown"]
    assert found["columns"] == ["reference", NAME]
    assert found["plot"][0] > 300 and found["plot"][1] > 150
    assert found["mark"] == ["too", "rgb(255, 227, 184)"]
    assert found["line"] == "solid"
    assert NAME in found["legend"]
    assert (found["strange"], found["fetched"]) == (1, 0)


def test_tags_of_other_commands(scoring, write, tmp_path):
    source = write("zh", [["<我>_S来了", "来"], ["<你>_S好<它>_S"]])
    reference, tags = write("en", [["I came", "come"], ["you, it is good"]]), tmp_path / "tags"
    files = [f"a={reference}", "--source", source, "--reference", reference]
    scoring("dropped-pronouns", *files, "--tags", str(tags))
    scoring("report", *files, "--tags", str(tags), "--out", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.S).group(1))
    found = [sentence[3] for document in data["documents"] for sentence in document["sentences"]]
    assert found == [["dropped I"], [], ["dropped you", "dropped it"]]
    assert "<option>dropped you</option>" in page


def test_results_of_the_contrastive_command(report, scoring, tmp_path, monkeypatch):
    """The report reads the output of the contrastive command."""
    items = [
        {
            "source": ["a", "b"],
            "candidates": [["A", "B"], ["A", "C"]],
            "correct": 0,
            "labels": {"distance": number},
        }
        for number in (1, 1, 2)
    ]
    test_set = tmp_path / "set.jsonl"
    test_set.write_text("".join(json.dumps(item) + "\n" for item in items))
    losses = tmp_path / "losses"
    losses.write_text("1\n2\n2\n1\n1\n2\n")
    results = tmp_path / "of=first.json"  # only the first "=" separates name and file
    scoring(
        "contrastive",
        str(test_set),
        "--losses",
        str(losses),
        "--format",
        "json",
        "--out",
        str(results),
    )
    page = report("--contrastive", f"first={results}").read_text()
    assert "66.7" in page and "by distance" not in page  # of two items
    monkeypatch.setattr(command, "FEWEST", 1)
    assert "by distance" in report("--contrastive", f"first={results}").read_text()


def test_points_show_what_is_behind_them_and_need_twenty(scoring, write, tmp_path):
    """50 documents of two sentences, and 19 of three."""
    texts = [["a b c d", "e f g h"]] * 50 + [["a b c d", "e f g h", "i j k l"]] * 19
    out, path = tmp_path / "report.html", write("text", texts)
    arguments = ["report", f"x={path}", "--reference", path, "--out", str(out), "--range"]
    scoring(*arguments, "1")
    page = out.read_text()
    assert page.count("<svg") == 1 and page.count("(69)") == 2 and "(19)" not in page
    assert "(not shown, with fewer than 20 sentences: 3-3)" in page
    assert "BLEU by place in the document: tok:" not in page  # that of s-BLEU
    scoring(*arguments, "1", "--metrics", "chrf")
    assert "BLEU by place in the document: tok:13a" in out.read_text()
    scoring(*arguments, "2")
    page = out.read_text()
    assert (
        "<svg" not in page
        and "--range 2: no plot, as fewer than two ranges have at least 20" in page
    )


def test_a_line_of_a_plot_has_the_name_of_its_system():
    plot = line_plot({"one": {"a": 1.0, "b": 2.0}, "_two": {"a": 2.0}}, "x", "y", {"a": 1, "b": 2})
    texts = re.findall(r">([^<]+)</text>", plot)
    assert {"one", "_two"} <= {*texts}


def test_marks_of_a_cell():
    found = [Run("a", *flags) for flags in itertools.product((False, True), repeat=2)]
    assert command._cell(found) == [["a", 0], ["a", 2], ["a", 1], ["a", 3]]
    assert command._cell(found[:1]) == "a"


def test_of_long_texts_only_unknown_words_are_marked(monkeypatch):
    monkeypatch.setattr(_difference, "MOST_WORDS", 3)
    marked = runs("d c x a", "a b c d")
    assert [(run.text.strip(), run.off) for run in marked] == [
        ("d c", False),
        ("x", True),
        ("a", False),
    ]


def test_places_count_segments_that_are_left_out(scoring, tmp_path):
    """Tags, places and numbers of sentences are as in the files."""
    texts = [f"a b c d {n}" for n in range(1, 5)]

    def records(name, field, numbers):
        rows = ({"doc_id": "x", "segment": n, field: texts[n - 1]} for n in numbers)
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    given = ["--reference", records("r", "reference", (1, 2, 3, 4)), "--missing", "skip"]
    given.append(f"m={records('m', 'hypothesis', (1, 3, 4))}")
    tagged = tmp_path / "tags"
    rows = [{"doc_id": "x", "segment": n, "tags": [f"t{n}"]} for n in (2, 3)]
    tagged.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scoring("report", *given, "--tags", str(tagged), "--out", str(tmp_path / "r.html"))
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, flags=re.S)[1])
    (document,) = data["documents"]
    assert [(row[3], row[5]) for row in document["sentences"]] == [([], 1), (["t3"], 3), ([], 4)]
    assert "--tags: 1 lines are of segments that are left out" in page
    options = ["--metrics", "s-bleu", "--by-position", "1", "--format", "json"]
    found = json.loads(scoring("metrics", *given, *options))
    assert [*found["by_position"]["m"]] == ["1-1", "3-3", "4-4"]
    assert found["segments_by_position"] == {"1-1": 1, "3-3": 1, "4-4": 1}
    values = tmp_path / "values"
    values.write_text("".join(f"{value}\n" for value in (0, 0, 100, 0)))
    printed = scoring("metrics", *given, "--scores", f"X:m={values}", *options[:4])
    assert [line.split() for line in printed.split("\n") if line.startswith("3-3")] == [
        ["3-3", "1", "100.00"],
        ["3-3", "1", "100.00"],
    ]


def test_tags_are_written_with_the_places_of_the_files(tmp_path):
    index = DocumentIndex.from_lengths([2, 1])
    texts = Translations(index, {}, [], ids=["x", "y"], whole_position=np.array([0, 2, 4]))
    tags.write(str(tmp_path / "tags"), texts, [[], ["a"], ["b"]])
    records = [json.loads(line) for line in (tmp_path / "tags").read_text().splitlines()]
    assert [(record["doc_id"], record["segment"]) for record in records] == [("x", 3), ("y", 5)]
