"""COMET in a process of its own: the wrapper with a stand-in, the package with a small model.

The test of the package needs COMET_PYTHON, the Python of an environment with unbabel-comet.

Covers scoring/corpus/comet_metric.py and scoring/corpus/comet_worker.py.
"""

import json
import os
import subprocess
import sys

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.corpus.comet_worker import SPECIAL, with_context

SOURCE = [["eins", "zwei", "drei", "vier"], ["fünf"]]
REFERENCE = [["one", "two", "three", "four"], ["five"]]
GOOD = [["one", "two", "three", "four"], ["five"]]
BAD = [["one", "2", "3", "four"], ["5"]]

STAND_IN = """
class Tokenizer:
    sep_token = "</s>"
    def tokenize(self, text): return text.split()
class Encoder:
    tokenizer, max_positions = Tokenizer(), 12
class Scores:
    def __init__(self, scores): self.scores = scores
class Model:
    encoder, use_context = Encoder(), False
    def __init__(self, path): self.path = path
    def enable_context(self): self.use_context = "plain" not in self.path
    def predict(self, samples, **options):
        with open(__file__ + ".seen", "a") as stream:
            print(json.dumps(samples), file=stream)
        side = "src" if "kiwi" in self.path else "ref"
        return Scores([float("nan" if s["mt"] == "n" else s["mt"] == s[side]) for s in samples])
import json
__version__ = "2.2"
def download_model(name):
    if "/" not in name: raise KeyError(f"Model {name} not supported by COMET.")
    return name
def load_from_checkpoint(path): return Model(path)
"""
#: torch, as far as the worker needs it; the real one takes a second to import
STAND_IN_TORCH = """
class cuda:
    device_count = staticmethod(lambda: 0)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a stand-in for the package on the path; return what its model was given."""
    package = tmp_path / "packages" / "comet.py"
    package.parent.mkdir()
    package.write_text(STAND_IN)
    package.with_name("torch.py").write_text(STAND_IN_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))

    def seen():
        with open(f"{package}.seen", encoding="utf-8") as stream:
            return [json.loads(line) for line in stream]

    return seen


@pytest.fixture
def arguments(write):
    systems = [f"good={write('good', GOOD)}", f"bad={write('bad', BAD)}"]
    texts = ["--source", write("source", SOURCE), "--reference", write("reference", REFERENCE)]
    return ["metrics", *systems, *texts]


def test_scores_tests_and_positions(scoring, arguments, stand_in):
    options = ["--metrics", "comet", "--tests", "sign", "--by-position", "2", "--format"]
    found = json.loads(scoring(*arguments, *options, "json"))["metrics"][0]
    assert found["scores"] == {"good": 100, "bad": pytest.approx(40)}
    assert found["segments"]["bad"] == [100, 0, 0, 100, 0]
    sign = found["tests"]["sign"]["bad"]
    assert (sign["better"], sign["worse"]) == (0, 3)
    assert found["signature"].endswith(
        "nrefs:1|model:wmt22-comet-da|comet:2.2|context:0|version:2.6.0"
    )
    assert len(stand_in()) == 2  # one process for each system
    text = scoring(*arguments, *options, "text")
    assert ["1-2", "3", "100.00", "33.33"] in [line.split() for line in text.splitlines()]


@pytest.mark.long  # starts programs; test_scores_tests_and_positions starts them too
def test_context_is_that_of_the_reference(scoring, arguments, stand_in):
    text = scoring(*arguments, "--metrics", "comet-doc")
    assert "doc-COMET" in text and "context:2" in text
    samples = stand_in()[1]
    assert samples[0] == {"src": "eins", "mt": "one", "ref": "one"}
    assert samples[3] == {
        "src": "zwei </s> drei </s> vier",
        "mt": "two </s> three </s> four",
        "ref": "two </s> three </s> four",
    }
    assert samples[1]["mt"] == "one </s> 2"
    assert samples[4]["src"] == "fünf"  # a new document has no context


@pytest.mark.long  # starts programs
def test_left_out_segments_are_no_context(scoring, write, stand_in):
    def lines(name, documents, first):
        records = [
            {"doc_id": str(d), "segment": n, "text": text}
            for d, document in enumerate(documents)
            for n, text in enumerate(document)
        ]
        return write(name, "\n".join(map(json.dumps, records[first:])))

    arguments = ["metrics", f"good={lines('good.jsonl', GOOD, 1)}", "--missing", "skip"]
    arguments += ["--reference", lines("r.jsonl", REFERENCE, 0), "--source", write("s", SOURCE)]
    note = "segments that are left out are missing from the context of later ones, too"
    for metric, noted in (("comet-doc", True), ("comet-slide", True), ("comet", False)):
        assert (note in scoring(*arguments, "--metrics", metric)) == noted


def test_several_references_give_the_mean(scoring, arguments, write, stand_in):
    second = write("second", [["one", "2", "drei", "four"], ["five"]])
    arguments = [*arguments, "--reference", second, "--metrics", "comet", "--format", "json"]
    (found,) = json.loads(scoring(*arguments))["metrics"]
    assert found["segments"]["good"] == [100, 50, 50, 100, 100]
    assert found["segments"]["bad"] == [100, 50, 0, 100, 0]
    assert "|nrefs:2|" in found["signature"] and "|refs:mean|" in found["signature"]


def test_blocks_of_sentences(scoring, write, stand_in):
    texts = [[f"w{n}" for n in range(8)], ["v1", "v2"]]
    good, source = write("good", texts), write("source", texts)
    bad = write("bad", [[*texts[0][:7], "x"], texts[1]])
    arguments = ["metrics", f"good={good}", f"bad={bad}", "--source", source, "--reference", good]
    arguments += ["--metrics", "comet-slide", "--by-position", "4", "--format", "json"]
    (found,) = json.loads(scoring(*arguments))["metrics"]
    assert [sample["src"] for sample in stand_in()[0]] == ["w0 w1 w2 w3 w4 w5", "w6 w7", "v1 v2"]
    assert found["scores"] == {"good": 100, "bad": pytest.approx(200 / 3)}
    assert "|unit:6 sentences|" in found["signature"] and found["segments"] == {}


@pytest.mark.parametrize(
    "lengths, kept",
    [
        ((3, 3, 3), 2),
        ((2, 2, 2), 3),
        ((3, 2, 2), 2),
        ((1, 9, 3), 1),
        ((1, 1, 20), 1),
        ((1, 1, 1), 3),
        ((2, 2, 5), 2),
    ],
)
def test_what_is_too_long_loses_context(lengths, kept):
    """Never the scored sentence: COMET would cut the end."""

    class Encoder:
        max_positions = 12 - 4 + SPECIAL

        class tokenizer:  # noqa: N801
            sep_token = "</s>"

            @staticmethod
            def tokenize(text):
                return text.split()

    texts = [" ".join([f"{n}"] * length) for n, length in enumerate(lengths)]
    found = with_context({"src": ["a"], "mt": texts, "ref": ["b"]}, Encoder())
    assert found == {"src": "a", "mt": " </s> ".join(texts[-kept:]), "ref": "b"}


@pytest.mark.parametrize(
    "options, message",
    [
        (["--comet-model", "x"], "--comet-model x cannot be used: .*Model x not supported"),
        (["--metrics", "comet-doc", "--comet-model", "a/plain"], "cannot use context; use comet"),
        (["--comet-python", "/nowhere"], "--comet-python /nowhere cannot be run: No such file"),
    ],
)
def test_mistakes(scoring, arguments, stand_in, options, message):
    with pytest.raises(UserError, match=message):
        scoring(*arguments, "--metrics", "comet", *options)


def test_options_without_comet(scoring, arguments, tmp_path):
    message = "--comet-model is for --metrics comet and its variants; leave it out"
    for command in (arguments, ["report", *arguments[1:], "--out", str(tmp_path / "out")]):
        with pytest.raises(UserError, match=message):
            scoring(*command, "--comet-model", "a/b")


def test_missing_package_or_source(scoring, arguments, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(UserError, match="unbabel-comet cannot be imported by .*; install it there"):
        scoring(*arguments, "--metrics", "comet")
    with pytest.raises(UserError, match="COMET also reads the source; give --source"):
        scoring(*arguments[:3], *arguments[5:], "--metrics", "comet")


@pytest.fixture
def candidates(write):
    """Three systems, and the options of the commands that choose among them."""
    texts = {"a": [["x", "y"], ["z"]], "b": [["w", "zwei"], ["x"]], "c": [["w", "y"], ["x"]]}
    systems = [f"{name}={write(name, documents)}" for name, documents in texts.items()]
    return [*systems, "--source", write("source", [["eins", "zwei"], ["eins"]])]


@pytest.mark.long  # test_rerank scores candidates too
def test_mbr(scoring, candidates, stand_in, tmp_path):
    out = tmp_path / "out"
    scoring("mbr", *candidates, "--metric", "comet", "--out", str(out))
    assert out.read_text() == "w\ny\n\nx\n"
    (samples,) = stand_in()  # one process for all pairs, each once
    assert len(samples) == 4 + 4 + 3
    assert {"src": "eins", "mt": "w", "ref": "x"} in samples
    for options in (["--by", "context"], ["--by", "document"]):
        with pytest.raises(UserError, match="--metric comet needs --source and --by sentence"):
            scoring("mbr", *candidates, "--metric", "comet", *options, "--out", str(out))


def test_rerank(scoring, candidates, stand_in, tmp_path):
    out = tmp_path / "out"
    options = ["--score", "comet:2", "--score", "length", "--out", str(out)]
    scoring("rerank", *candidates, *options)
    assert out.read_text() == "x\nzwei\n\nz\n"
    (samples,) = stand_in()
    assert len(samples) == 9 and samples[0] == {"src": "eins", "mt": "x"}
    scoring("rerank", *candidates, "--score", "length", "--out", str(out))
    assert out.read_text() == "x\ny\n\nz\n" and len(stand_in()) == 1  # only if asked for


def test_scores_of_comet_must_be_finite(scoring, write, stand_in, tmp_path):
    source, text = write("s", "x\ny\n"), write("n", "x\nn\n")
    metrics = ["metrics", f"a={text}", "--source", source, "--reference", source]
    rerank = ["rerank", f"a={text}", f"b={source}", "--source", source, "--score", "comet"]
    for command in ([*metrics, "--metrics", "comet"], [*rerank, "--out", str(tmp_path / "o")]):
        with pytest.raises(UserError, match="COMET gives 'n' the score nan, which is not finite"):
            scoring(*command)


def test_rerank_takes_a_model_without_reference(scoring, candidates, stand_in, tmp_path):
    options = ["--score", "comet", "--comet-model", "a/b", "--out", str(tmp_path / "out")]
    with pytest.raises(UserError, match="--comet-model a/b cannot be used: it needs references"):
        scoring("rerank", *candidates, *options)


@pytest.mark.parametrize("option", ["--comet-model", "--comet-python"])
def test_choice_without_comet(scoring, candidates, tmp_path, option):
    out = ["--out", str(tmp_path / "out")]
    with pytest.raises(UserError, match=f"{option} is for --metric comet; leave it out"):
        scoring("mbr", *candidates, *out, option, "x")
    with pytest.raises(UserError, match=f"{option} is for --score comet; leave it out"):
        scoring("rerank", *candidates, *out, "--score", "length", option, "x")


def test_rerank_needs_a_source(scoring, write, tmp_path):
    nbest = write("nbest", "H-0\t-1\ta\nH-0\t-2\tb\n")
    options = ["--docids", write("ids", "d\n"), "--score", "comet", "--out", str(tmp_path / "out")]
    with pytest.raises(UserError, match="--score comet needs --source"):
        scoring("rerank", nbest, *options)


SMALL_MODEL = """
import sys, torch, yaml
from pathlib import Path
from transformers import BertConfig
from comet.models import RegressionMetric
folder = Path(sys.argv[1])
bert = folder / "bert"
bert.mkdir()
words = "[PAD] [UNK] [CLS] [SEP] [MASK] one two three four five eins zwei drei vier 2 3 5"
(bert / "vocab.txt").write_text("\\n".join(words.split()))
BertConfig(vocab_size=17, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
           intermediate_size=16).save_pretrained(bert)
torch.manual_seed(1)
model = RegressionMetric(encoder_model="BERT", pretrained_model=str(bert), hidden_sizes=[8, 8],
                         load_pretrained_weights=False, local_files_only=True)
(folder / "checkpoints").mkdir()
torch.save({"state_dict": model.state_dict(), "hyper_parameters": dict(model.hparams),
            "pytorch-lightning_version": "2.0.0"}, folder / "checkpoints" / "model.ckpt")
(folder / "hparams.yaml").write_text(yaml.dump(dict(model.hparams)))
"""


@pytest.mark.skipif("COMET_PYTHON" not in os.environ, reason="needs COMET_PYTHON")
def test_the_package_with_a_small_random_model(scoring, arguments, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = os.environ["COMET_PYTHON"]
    assert python != sys.executable
    subprocess.run([python, "-c", SMALL_MODEL, str(tmp_path)], check=True)
    model = str(tmp_path / "checkpoints" / "model.ckpt")
    options = ["--comet-python", python, "--comet-model", model, "--format", "json"]
    found = json.loads(scoring(*arguments, "--metrics", "comet,comet-doc", *options))["metrics"]
    plain, context = (metric["segments"] for metric in found)
    assert plain["good"][0] == pytest.approx(plain["bad"][0], abs=1e-4)
    assert plain["good"][1] != pytest.approx(plain["bad"][1], abs=1e-4)
    # Without previous sentences context changes nothing, with them it does.
    assert context["good"][0] == pytest.approx(plain["good"][0], abs=1e-3)
    assert context["good"][4] == pytest.approx(plain["good"][4], abs=1e-3)
    assert context["good"][3] != pytest.approx(plain["good"][3], abs=1e-4)
