"""Corpus metrics: values computed by hand, agreement with the sacreBLEU command, significance.

Covers readers/files.py, scoring/_tables.py, scoring/corpus/meteor.py,
scoring/corpus/corpus_metrics.py.
"""

import json
import os
import random
import re
import subprocess
import sys
from urllib.error import URLError

import pytest
from sacrebleu.metrics import BLEU
from scipy.stats import binomtest

from fairseq_docmt._processes import forked_map
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.corpus import corpus_metrics, significance
from fairseq_docmt.scoring.corpus.corpus_metrics import Options
from fairseq_docmt.scoring.corpus.meteor import Meteor
from fairseq_docmt.scoring.corpus.metrics import is_significant
from fairseq_docmt.scoring.texts.translations import read_translations

LENGTHS = (4, 1, 7, 3, 5, 2, 6, 3, 4, 2, 5, 3)


@pytest.fixture
def texts(write):
    """Files of a reference and three systems with more and more mistakes, the first one twice."""
    generator = random.Random(3)
    words = "The cat sat on a mat , Paul and Mary saw it there today .".split()
    documents = [
        [" ".join(generator.choices(words, k=generator.randint(5, 12))) for _ in range(length)]
        for length in LENGTHS
    ]

    def worse(rate):
        return [
            [
                " ".join(w if generator.random() > rate else "wrong" for w in s.split())
                for s in document
            ]
            for document in documents
        ]

    found = {"reference": write("reference", documents)}
    for name, rate in (("base", 0.3), ("close", 0.3), ("bad", 0.6)):
        found[name] = write(name, worse(rate))
    return {**found, "same": found["base"]}


def sacrebleu(*arguments):
    """Scores and p-values of sacreBLEU's command."""
    command = [sys.executable, "-m", "sacrebleu", *arguments, "--format", "json", "-w", "6"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def flat(path, joined):
    """A file without blank lines, or with a line for each document."""
    text = open(path, encoding="utf-8").read()
    documents = [d.split("\n") for d in text.rstrip("\n").split("\n\n")]
    lines = [" ".join(d) for d in documents] if joined else [s for d in documents for s in d]
    out = f"{path}.{'joined' if joined else 'flat'}"
    with open(out, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    return out


def measured(scoring, texts, systems, *arguments):
    """Metrics by label, from JSON."""
    named = [f"{name}={texts[name]}" for name in systems]
    printed = scoring("metrics", *named, "--reference", texts["reference"], *arguments)
    return {m["label"]: m for m in json.loads(printed)["metrics"]}


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize(
    "ours, theirs", [((), ()), (("--lowercase",), ("-lc", "--chrf-lowercase"))]
)
def test_scores_are_those_of_the_sacrebleu_command(scoring, texts, joined, ours, theirs):
    ours = ["--metrics", "s-bleu,d-bleu,chrf,d-chrf,ter", *ours]
    found = measured(scoring, texts, ["bad"], "--format", "json", *ours)
    files = [flat(texts["reference"], joined), "-i", flat(texts["bad"], joined)]
    wanted = sacrebleu(*files, "-m", "bleu", "chrf", "ter", *theirs)
    wanted = {score["name"]: score for score in wanted}
    labels = {"BLEU": "s-BLEU", "chrF2": "chrF2", "TER": "TER"}
    labels = {"BLEU": "d-BLEU", "chrF2": "d-chrF2"} if joined else labels
    for name, label in labels.items():
        assert found[label]["scores"]["bad"] == pytest.approx(wanted[name]["score"], abs=1e-5)
        signature = f"docs:12|sents:45|unit:{'document' if joined else 'sentence'}|"
        assert found[label]["signature"] == signature + wanted[name]["signature"]


@pytest.mark.parametrize("test, option", [("bootstrap", "bs"), ("randomisation", "ar")])
@pytest.mark.parametrize("joined, label", [(False, "s-BLEU"), (True, "d-BLEU")])
def test_p_values_are_those_of_the_sacrebleu_command(scoring, texts, test, option, joined, label):
    systems = ["base", "close", "bad"]
    options = ["--tests", test, "--samples", "200", "--format", "json"]
    found = measured(scoring, texts, systems, *options)[label]["tests"][test]
    files = [flat(texts[name], joined) for name in systems]
    arguments = ["-m", "bleu", f"--paired-{option}", f"--paired-{option}-n", "200"]
    wanted = sacrebleu(flat(texts["reference"], joined), "-i", *files, *arguments)
    for name, row in zip(systems[1:], wanted[1:]):
        assert found[name]["p"] == pytest.approx(row["BLEU"]["p_value"], abs=1e-6)
        assert found[name]["procedure"] == f"{option}:200|seed:12345"
        interval = row["BLEU"]["ci"] if test == "bootstrap" else None
        assert found[name].get("interval") == pytest.approx(interval, abs=1e-6)


@pytest.mark.parametrize("test", significance.TESTS)
def test_a_copy_of_the_baseline_does_not_differ(texts, test):
    found = read_translations({n: texts[n] for n in ("base", "same")}, [texts["reference"]])
    for result in corpus_metrics.corpus_metrics(found, tests=[test], samples=50):
        assert result.tests[test]["same"].p == 1.0


def test_d_bleu_matches_anywhere_in_the_document(write):
    reference = write("r", [["a b c d e", "f g h i j"], ["k l m n o"]])
    swapped = write("s", [["f g h i j", "a b c d e"], ["k l m n o"]])
    found = read_translations({"x": swapped}, [reference])
    metrics = ["s-bleu", "d-bleu", "ter"]
    scores = {r.label: r.scores["x"] for r in corpus_metrics.corpus_metrics(found, metrics)}
    # Of 1- to 4-grams, all words match; of the others all but those over the sentence boundary.
    by_hand = 100 * (15 / 15 * 12 / 13 * 9 / 11 * 6 / 9) ** 0.25
    assert scores["d-BLEU"] == pytest.approx(by_hand)
    # Sentences apart: 5 of 15 words, 4 of 12 bigrams, 3 of 9, 2 of 6.
    assert scores["s-BLEU"] == pytest.approx(100 / 3)
    assert scores["TER"] == pytest.approx(100 * 10 / 15)


def test_higher_is_better_but_for_ter():
    for name, kind in corpus_metrics.METRICS.items():
        assert kind.higher_is_better is (name != "ter"), name


def test_case_and_several_references(write):
    one, two = write("one", "the Cat sat down\n"), write("two", "a dog sat down here\n")
    system = write("system", "the cat sat down\n")
    found = read_translations({"x": system}, [one, two])
    kind = corpus_metrics.corpus_metrics(found, ["s-bleu"], options=Options(lowercase=True))[0]
    assert kind.scores == {"x": pytest.approx(100)}
    assert "nrefs:2|case:lc" in kind.signature
    kind = corpus_metrics.corpus_metrics(found, ["s-bleu"])[0]
    # the, sat, down; "sat down"; then nothing, which is smoothed to 1/2 and 1/4.
    by_hand = 100 * (3 / 4 * 1 / 3 * (1 / 2) / 2 * (1 / 4) / 1) ** 0.25
    assert kind.scores["x"] == pytest.approx(by_hand)


def test_sign_test_replaces_one_sentence_at_a_time(texts):
    found = read_translations({n: texts[n] for n in ("base", "bad", "same")}, [texts["reference"]])
    result = corpus_metrics.corpus_metrics(found, ["s-bleu"], ["sign"])[0].tests["sign"]
    base, bad = found.systems["base"], found.systems["bad"]
    bleu = BLEU()
    reached = bleu.corpus_score(base, found.references).score
    replaced = [
        bleu.corpus_score([*base[:i], bad[i], *base[i + 1 :]], found.references).score
        for i in range(len(base))
    ]
    better = sum(score > reached for score in replaced)
    worse = sum(score < reached for score in replaced)
    assert (result["bad"].better, result["bad"].worse) == (better, worse)
    assert better < worse
    assert result["bad"].p == pytest.approx(binomtest(better, better + worse).pvalue)
    assert result["same"] == significance.Comparison(1.0, better=0, worse=0)


def test_json_of_all_tests_and_metrics(scoring, texts):
    metrics, tests = ("s-bleu", "d-bleu", "chrf", "d-chrf", "ter"), ",".join(significance.TESTS)
    options = ["--metrics", ",".join(metrics), "--tests", tests, "--samples", "20"]
    found = measured(scoring, texts, ["base", "bad"], *options, "--format", "json")
    assert len(found) == len(metrics)
    for metric in found.values():
        assert isinstance(metric["tests"]["sign"]["bad"]["better"], int)


def test_ter_is_better_when_it_is_lower(texts):
    found = read_translations({n: texts[n] for n in ("bad", "base")}, [texts["reference"]])
    result = corpus_metrics.corpus_metrics(found, ["ter"], ["sign"])[0]
    assert result.scores["base"] < result.scores["bad"]
    assert result.tests["sign"]["base"].better > result.tests["sign"]["base"].worse


@pytest.mark.parametrize(
    ("score", "better", "p", "higher_is_better", "expected"),
    [
        (11, 30, 0.01, True, True),
        (9, 10, 0.01, True, True),
        (11, 10, 0.01, True, False),  # more segments are worse
        (9, 30, 0.01, True, False),
        (9, 30, 0.01, False, True),
        (11, 30, 0.01, False, False),
        (11, 30, 0.05, True, False),
        (11, 30, None, True, False),
        (10, 10, 0.01, True, False),  # equal scores
        (10, 30, 0.01, False, False),
    ],
)
def test_significant_tests_have_to_agree(score, better, p, higher_is_better, expected):
    tests = {
        "bootstrap": {"x": significance.Comparison(0.01)},
        "sign": {"x": significance.Comparison(p, better=better, worse=20)},
    }
    result = corpus_metrics.MetricResult("m", "", higher_is_better, {"base": 10, "x": score}, tests)
    assert is_significant(result, "x") == expected
    assert not is_significant(result, "base")


def test_few_documents_have_no_p(scoring, write):
    reference = write("r", [["a b c d e"], ["f g h i j"]])
    systems = [f"{n}={write(n, [[t], ['f g h i j']])}" for n, t in (("x", "a b"), ("y", "a b c d"))]
    printed = scoring("metrics", *systems, "--reference", reference, "--tests", "bootstrap")
    assert ": fewer than 10 segments or, where documents are scored, documents" in printed
    assert not re.search(r"\d[*°]", printed)


def test_tables(scoring, texts, tmp_path):
    arguments = [f"{n}={texts[n]}" for n in ("base", "same", "bad")]
    arguments += ["--reference", texts["reference"], "--metrics", "s-bleu,ter", "--tests", "sign"]
    arguments += ["--by-position", "3"]
    text = scoring("metrics", *arguments)
    lines = [line.split() for line in text.splitlines()]
    assert ["system", "s-BLEU", "TER"] in lines
    rows = {line[0]: line[1:] for line in lines if line and line[0] in ("base", "same", "bad")}
    assert rows["same"] == ["1.0000", "(+0", "-0)", "1.0000", "(+0", "-0)"]
    scores = {line[0]: line[1:] for line in lines[3:6]}
    assert scores["base"] == scores["same"]
    assert scores["bad"][0].endswith("°") and scores["same"][0][-1].isdigit()
    assert ["1-3", "4-6", "7-9"] == [line[0] for line in lines if line and line[0][0].isdigit()]
    out = tmp_path / "made" / "table.md"
    assert scoring("metrics", *arguments, "--format", "markdown", "--out", str(out)) == ""
    assert "| system   |" in out.read_text() and "\n* s-BLEU: docs:12|" in out.read_text()
    assert [p.name for p in out.parent.iterdir()] == ["table.md"]
    other = tmp_path / "other"
    other.touch()
    assert out.stat().st_mode == other.stat().st_mode


def test_bars_in_names_of_systems_do_not_end_cells_of_markdown(scoring, texts):
    arguments = [f"a|b={texts['base']}", "--reference", texts["reference"], "--metrics", "chrf"]
    text = scoring("metrics", *arguments, "--by-position", "3", "--format", "markdown")
    rows = [line for line in text.splitlines() if "a\\|b" in line]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3, 4]


def test_docids_divide_lines(scoring, write):
    lines, ids = write("lines", "a b c d\ne f\ng\n"), write("ids", "p\np\nq\n")
    arguments = ["metrics", f"x={lines}", "--reference", lines, "--metrics", "d-bleu"]
    assert "docs:2|sents:3|" in scoring(*arguments, "--docids", ids)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["x"], "x: give systems as NAME=FILE"),
        (["a=FILE", "a=FILE"], "two systems are named a"),
        (["a=FILE", "--tests", "sign"], "--tests compare systems with the first one"),
        (["a=FILE", "--by-position", "0"], "a range must have at least 1 position, not 0"),
        (["a=FILE", "--samples", "-1"], "--samples must be from 5 to 1,000,000, got -1"),
        (["a=FILE", "--samples", "1000001"], "--samples must be from 5 to 1,000,000, got 1000001"),
        (
            ["a=FILE", "b=FILE", "--tests", "sign", "--samples", "9"],
            "--samples is for --tests bootstrap and randomisation; leave it out",
        ),
        (
            ["a=FILE", "--metrics", "chrf", "--tokenize", "char"],
            "--tokenize is for s-bleu, d-bleu and --by-position; leave it out",
        ),
        (
            ["a=FILE", "--metrics", "ter", "--lowercase"],
            "--lowercase is for BLEU and chrF; leave it out",
        ),
        (["a=FILE", "--out", "FILE/x"], "FILE/x cannot be written"),
    ],
)
def test_mistakes(scoring, texts, arguments, message):
    file = texts["base"]
    arguments = [argument.replace("FILE", file) for argument in arguments]
    with pytest.raises(UserError, match=message.replace("FILE/", f"{file}/")):
        scoring("metrics", *arguments, "--reference", texts["reference"])


@pytest.mark.parametrize(
    "command",
    [
        ["metrics", "--metrics", "s-bleu"],
        ["metrics", "--metrics", "chrf", "--by-position", "2"],
        ["report", "--metrics", "chrf", "--out", "OUT"],
        ["mbr", "--metric", "bleu", "--out", "OUT"],
        ["rerank", "--score", "length:1,2", "--out", "OUT"],
    ],
)
@pytest.mark.parametrize("error", [RuntimeError, ImportError, URLError])
def test_tokenizers_say_what_they_lack(scoring, texts, tmp_path, monkeypatch, command, error):
    def tokenizer(name):
        raise error("\nIt is not\nthere.")

    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", tokenizer)
    out, reference = str(tmp_path / "out"), texts["reference"]
    command = [out if word == "OUT" else word for word in command]
    files = ["--source", reference, "--reference", reference]
    files = files[:2] if command[0] == "mbr" else files
    message = "sacreBLEU's tokenizer zh lacks a package, or a model .* once: .*It is not there"
    with pytest.raises(UserError, match=message):
        scoring(*command, *files, "--tokenize", "zh", f"a={texts['bad']}", f"b={texts['same']}")


def test_unknown_names_are_told(scoring, texts, capsys):
    with pytest.raises(SystemExit):
        scoring("metrics", f"a={texts['base']}", "--metrics", "s-bleu,d-blue")
    assert (
        "'d-blue' is not one of s-bleu, d-bleu, chrf, chrf++, d-chrf, ter, meteor, comet, comet-doc"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["metrics", "--reference", "FILE", "--format", "html"], "invalid choice: 'html'"),
        (["report", "--reference", "FILE"], "required: --out"),
        (["pronouns", "--reference", "FILE"], "required: --source"),
    ],
)
def test_options_that_are_wrong_or_missing(scoring, texts, capsys, arguments, message):
    arguments = [argument.replace("FILE", texts["reference"]) for argument in arguments]
    with pytest.raises(SystemExit):
        scoring(*arguments, f"a={texts['base']}")
    printed = capsys.readouterr().err
    assert message in printed and printed.startswith("usage: fairseq-docmt ")


def test_the_command_as_it_is_typed(texts):
    command = [sys.executable, "-m", "fairseq_docmt", "metrics", "a=nowhere"]
    run = subprocess.run(
        [*command, "--reference", texts["reference"]], capture_output=True, text=True
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "error: nowhere cannot be read: No such file or directory"
    assert "Traceback" not in run.stderr and "DEBUG" not in run.stderr


class OneSynonym:
    """A WordNet that knows that a kitten is a cat."""

    def synsets(self, word):
        class Synset:
            def lemmas(self):
                class Lemma:
                    def name(self):
                        return "cat"

                return [Lemma()]

        return [Synset()] if word == "kitten" else []


def test_meteor():
    pytest.importorskip("nltk", reason="METEOR needs NLTK")
    metric = Meteor(OneSynonym())
    # Word, stem, synonym: all three words match in one chunk, 1 - 0.5 * (1 / 3) ** 3.
    score = metric.corpus_score(["The kitten sits"], [["the cat sitting"]])
    assert score.score == pytest.approx(100 * (1 - 0.5 / 27))
    # One of two words: P = R = 1/2, chunk penalty 0.5; the corpus is the mean of both sentences.
    both = metric.corpus_score(["The kitten sits", "a b"], [["the cat sitting", "a c"]])
    assert both.score == pytest.approx((100 * (1 - 0.5 / 27) + 25) / 2)
    assert "nrefs:1|case:lc|tok:13a|nltk:" in str(metric.get_signature())


def test_meteor_says_what_is_missing(monkeypatch):
    monkeypatch.setattr("fairseq_docmt.scoring.corpus.meteor.find_spec", lambda name: None)
    with pytest.raises(UserError, match="METEOR needs NLTK; install it with `pip install nltk`"):
        Meteor()


def test_meteor_says_that_wordnet_is_missing(monkeypatch):
    nltk = pytest.importorskip("nltk", reason="METEOR needs NLTK")
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(UserError, match="METEOR needs the WordNet of NLTK; fetch it with"):
        Meteor()


PROCESSES = """
import sys
sys.argv[0] = "fairseq-docmt"
from fairseq_docmt import command_line
from fairseq_docmt.scoring.corpus import corpus_metrics
corpus_metrics.LARGE = 0
assert corpus_metrics.can_fork(), "torch is imported"
command_line.main()
"""


@pytest.mark.skipif(sys.platform != "linux" or os.cpu_count() < 2, reason="needs two processors")
def test_processes_that_share_the_work_find_the_same(scoring, write):
    texts = [[f"w{n} w{n * k % 7} w{n % 5} x y" for n in range(9)] for k in range(9)]
    other = [[line.replace("w3", "v") for line in document] for document in texts]
    arguments = ["metrics", f"a={write('a', texts)}", f"b={write('b', other)}", "--reference"]
    arguments += [write("r", other[::-1]), "--reference", write("s", texts), "--format", "json"]
    arguments += ["--metrics", "s-bleu,d-bleu,chrf,ter", "--tests", "bootstrap,sign"]
    command = [sys.executable, "-c", PROCESSES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == scoring(*arguments), done.stderr


def test_a_killed_process_is_reported():
    with pytest.raises(UserError, match="a process was killed"):
        forked_map(os._exit, [1, 2])


@pytest.mark.parametrize(
    "metrics, tests, message",
    [
        (["bleu"], [], "unknown metric 'bleu'; give s-bleu, "),
        (["s-bleu"], ["t-test"], "unknown test 't-test'; give bootstrap, randomisation, sign$"),
    ],
)
def test_unknown_names_in_python(metrics, tests, message):
    with pytest.raises(UserError, match=message):
        corpus_metrics.corpus_metrics(None, metrics, tests)
