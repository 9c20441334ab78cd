"""COMET in a process of its own: the wrapper with a stand-in, the package with a small model.

The test of the package needs COMET_PYTHON, the Python of an environment with unbabel-comet.
"""

import json
import os
import subprocess
import sys

import pytest

from fairseq_docmt.errors import UserError

SOURCE = [["eins", "zwei", "drei", "vier"], ["fünf"]]
REFERENCE = [["one", "two", "three", "four"], ["five"]]
GOOD = [["one", "two", "three", "four"], ["five"]]
BAD = [["one", "2", "3", "four"], ["5"]]

STAND_IN = """
class Tokenizer:
    sep_token = "</s>"
class Encoder:
    tokenizer = Tokenizer()
class Scores:
    def __init__(self, scores): self.scores = scores
class Model:
    encoder, use_context = Encoder(), False
    def __init__(self, path): self.path = path
    def enable_context(self): self.use_context = "plain" not in self.path
    def predict(self, samples, **options):
        with open(__file__ + ".seen", "a") as stream:
            print(json.dumps(samples), file=stream)
        return Scores([float(s["mt"] == s["ref"]) for s in samples])
import json
def download_model(name):
    if "/" not in name: raise KeyError(f"Model {name} not supported by COMET.")
    return name
def load_from_checkpoint(path): return Model(path)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a stand-in for the package on the path; return what its model was given."""
    package = tmp_path / "packages" / "comet.py"
    package.parent.mkdir()
    package.write_text(STAND_IN)
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
    assert found["signature"].endswith("nrefs:1|model:wmt22-comet-da|context:0|version:2.6.0")
    assert len(stand_in()) == 2  # one process for each system
    text = scoring(*arguments, *options, "text")
    assert ["1-2", "100.00", "33.33"] in [line.split() for line in text.splitlines()]


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


def test_missing_package_or_source(scoring, arguments, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(UserError, match="unbabel-comet cannot be imported by .*; install it there"):
        scoring(*arguments, "--metrics", "comet")
    with pytest.raises(UserError, match="COMET needs --source"):
        scoring(*arguments[:3], *arguments[5:], "--metrics", "comet")
    with pytest.raises(UserError, match="COMET is defined for one reference"):
        scoring(*arguments, *arguments[5:], "--metrics", "comet")


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
