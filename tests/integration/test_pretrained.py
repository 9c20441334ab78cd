"""Starts from the multilingual models of fairseq: mBART with 25 and 50 languages, M2M-100, NLLB.

The models are tiny and random, but made and saved by fairseq's own tasks and classes.

Covers tasks/_language_tags.py.
"""

import contextlib
import re
from unittest import mock

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from fairseq_docmt.tasks._base import DocumentTranslationTask

LANGUAGES = "xx_XX,tgt,yy_YY,src"
SIZES = [*tiny.MODEL[2:], "--share-all-embeddings", "--encoder-normalize-before"]
SIZES += ["--decoder-normalize-before"]
MBART = ["--arch", "mbart_base", *SIZES, "--layernorm-embedding", "--max-source-positions", "64"]
MBART += ["--max-target-positions", "64"]
MULTI = ["--task", "translation_multi_simple_epoch", "--lang-pairs", "src-tgt"]
MULTI += ["--langs", LANGUAGES, "--encoder-langtok", "src", "--decoder-langtok"]
M2M = ["--arch", "transformer", *SIZES]
#: kind of tags -> class of fairseq's task, its options, model, task to give to fairseq-generate
STOCK = {
    "mbart25": (
        TranslationFromPretrainedBARTTask,
        ["--task", "translation_from_pretrained_bart", "--langs", LANGUAGES],
        MBART,
    ),
    "mbart50": (TranslationMultiSimpleEpochTask, [*MULTI, "--lang-tok-style", "mbart"], MBART),
    "m2m": (TranslationMultiSimpleEpochTask, MULTI, M2M),
}
POSITIONS = ["--max-source-positions", "64", "--max-target-positions", "64"]
WINDOW = ["--task", "sliding_window_translation", *POSITIONS]
DOCUMENT = ["--task", "full_document_translation", *POSITIONS]
#: the stock task of mBART chooses </s> and the tag after it separately, so it needs greedy search
SEARCH = ["--beam", "1", "--max-len-b", "12", "--max-len-a", "0"]


@pytest.fixture(scope="module", autouse=True)
def repaired_stock_task():
    """fairseq's task of mBART calls its options ``args``, which later versions call ``cfg``."""
    options = property(lambda task: task.cfg)
    with mock.patch.object(TranslationFromPretrainedBARTTask, "args", options, create=True):
        yield


@pytest.fixture(scope="module")
def data(made_once):
    """Documents with one dictionary; and their sentences without blank lines for fairseq's tasks."""

    def build(folder):
        for seed, (split, lengths) in enumerate(
            (("train", (4, 1, 6, 9, 9)), ("valid", (3, 1)), ("test", (1, 4, 2)))
        ):
            tiny.write_split(folder, split, tiny.documents(lengths, seed))
        tiny.preprocess(folder, ["train", "valid", "test"], "--joined-dictionary")
        (folder / "sentences").mkdir()
        for path in [*folder.glob("*.src"), *folder.glob("*.tgt")]:
            lines = [line for line in path.read_text().splitlines() if line]
            (folder / "sentences" / path.name).write_text("\n".join(lines) + "\n")
        dictionary = str(folder / "bin" / "dict.src.txt")
        words = ["--srcdict", dictionary, "--joined-dictionary"]
        tiny.preprocess(folder / "sentences", ["train", "valid", "test"], *words)

    return made_once("pretrained", build)


@pytest.fixture(scope="module")
def stock(data, made_once):
    """Return a function that trains a model with fairseq's task."""

    def make(kind):
        _, task, model = STOCK[kind]

        def build(folder):
            options = [*task, "--lr", "0.01", "--required-batch-size-multiple", "1"]
            sentences = data / "sentences" / "bin"
            tiny.train(sentences, folder, *options, updates=60, model=model)

        return made_once(("stock", kind), build) / "checkpoint_last.pt"

    return make


def searched(task_class, data, checkpoint, *options):
    """Hypotheses of ``fairseq-generate``, best first, by line of the test set."""
    found = {}
    original = task_class.inference_step

    def inference_step(self, generator, models, sample, *args, **kwargs):
        hypotheses = original(self, generator, models, sample, *args, **kwargs)
        found.update(zip(sample["id"].tolist(), hypotheses))
        return hypotheses

    with mock.patch.object(task_class, "inference_step", inference_step):
        output = tiny.generate(data, checkpoint, *SEARCH, *options)
    return [found[number] for number in sorted(found)], output


@contextlib.contextmanager
def without_new_symbols():
    """Take <sep> and <bod>, which stock models do not have, out of the softmax."""
    original = TransformerDecoderBase.output_layer

    def output_layer(self, features):
        return original(self, features).index_fill(-1, self.new, -float("inf"))

    def new(self):
        return torch.tensor([self.dictionary.index(symbol) for symbol in ("<sep>", "<bod>")])

    with mock.patch.object(TransformerDecoderBase, "output_layer", output_layer):
        with mock.patch.object(TransformerDecoderBase, "new", property(new), create=True):
            yield


@pytest.mark.parametrize("scoring", [[], ["--score-reference"]], ids=["search", "reference"])
@pytest.mark.parametrize("decoding", ["window", "sequential", "segment"])
@pytest.mark.parametrize("kind", STOCK)
def test_window_1_is_the_pretrained_model(data, stock, kind, decoding, scoring):
    """Tokens and their scores; also of the tag, which the stock tasks generate as well."""
    task_class, task, _ = STOCK[kind]
    options = [*task, "-s", "src", "-t", "tgt", *scoring]
    options += ["--required-batch-size-multiple", "1"]
    theirs, _ = searched(task_class, data / "sentences" / "bin", stock(kind), *options)
    options = [*WINDOW, "--window-size", "1", "--decoding", decoding, *scoring]
    if kind != "mbart25" and decoding == "sequential":
        options += ["--max-len-b", "11"]  # the others count the tag of the target
    with without_new_symbols():
        ours, _ = searched(DocumentTranslationTask, data / "bin", stock(kind), *options)
    ours = [nbest for nbest in ours if len(nbest[0]["tokens"]) > 1]
    assert len(ours) == len(theirs) == 7
    for our, their in zip(ours, theirs):
        best, wanted = our[0], their[0]
        # [tgt] comes after </s>, and __tgt__ before the sentence.
        kept = slice(0, -1) if kind == "mbart25" else slice(1, None)
        assert best["tokens"].tolist() == wanted["tokens"].tolist()[kept]
        torch.testing.assert_close(
            best["positional_scores"], wanted["positional_scores"][kept], atol=1e-5, rtol=0
        )
        if kind != "mbart25" and decoding != "sequential" and not scoring:
            torch.testing.assert_close(best["score"], wanted["score"], atol=1e-5, rtol=0)
